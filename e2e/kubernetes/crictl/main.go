// A client of the Container Runtime Interface with the part of crictl's command line that nodes need here: "images",
// "info" and "pull". It speaks to the real runtime.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type image struct {
	ID          string   `json:"id"`
	RepoTags    []string `json:"repoTags"`
	RepoDigests []string `json:"repoDigests"`
	Pinned      bool     `json:"pinned"`
}

func run(arguments []string) error {
	endpoint, timeout, words := "unix:///run/containerd/containerd.sock", time.Minute, []string{}
	for i := 0; i < len(arguments); i++ {
		switch argument := arguments[i]; argument {
		case "--runtime-endpoint", "--image-endpoint", "--timeout", "--output", "-o":
			i++
			if i == len(arguments) {
				return fmt.Errorf("%s needs a value", argument)
			}
			if argument == "--runtime-endpoint" {
				endpoint = arguments[i]
			}
		case "--":
		default:
			words = append(words, argument)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	connection, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := cri.NewImageServiceClient(connection)
	switch {
	case len(words) == 1 && words[0] == "images":
		answer, err := client.ListImages(ctx, &cri.ListImagesRequest{})
		if err != nil {
			return err
		}
		images := []image{}
		for _, found := range answer.Images {
			// Lists are never null, as in crictl's output.
			tags, digests := append([]string{}, found.RepoTags...), append([]string{}, found.RepoDigests...)
			images = append(images, image{found.Id, tags, digests, found.Pinned})
		}
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"images": images})
	case len(words) == 1 && words[0] == "info":
		answer, err := cri.NewRuntimeServiceClient(connection).Status(ctx, &cri.StatusRequest{Verbose: true})
		if err != nil {
			return err
		}
		info := map[string]any{"status": answer.Status}
		for key, text := range answer.Info {
			info[key] = text
			if json.Valid([]byte(text)) {
				info[key] = json.RawMessage(text)
			}
		}
		return json.NewEncoder(os.Stdout).Encode(info)
	case len(words) == 2 && words[0] == "pull":
		answer, err := client.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: words[1]}})
		if err == nil {
			fmt.Println("Image is up to date for", answer.ImageRef)
		}
		return err
	}
	return fmt.Errorf("unknown command %q (expected images, info, or pull IMAGE)", words)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "FATA", err)
		os.Exit(1)
	}
}
