// The only program of the suite's pods: it does nothing until it is stopped. With the argument "linger" it also ignores
// SIGTERM, as a pod does that needs its whole grace period.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
	if len(os.Args) > 1 && os.Args[1] == "linger" {
		select {}
	}
}
