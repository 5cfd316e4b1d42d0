// Translates each Butane config DIRECTORY/*.bu, as the butane tool does, to NAME.butane, as JSON,
// or writes the reason to NAME.refused.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coreos/butane/config"
	"github.com/coreos/butane/config/common"
	"gopkg.in/yaml.v3"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: butane DIRECTORY")
		os.Exit(2)
	}
	if err := translateAll(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "butane:", err)
		os.Exit(1)
	}
}

func translateAll(directory string) error {
	inputs, err := filepath.Glob(filepath.Join(directory, "*.bu"))
	if err != nil {
		return err
	}
	for _, input := range inputs {
		text, err := os.ReadFile(input)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(input, ".bu")
		options := common.TranslateBytesOptions{TranslateOptions: common.TranslateOptions{FilesDir: directory}}
		result, report, err := config.TranslateBytes(text, options)
		output := name + ".butane"
		if err == nil {
			result, err = asJSON(result)
		}
		if err != nil {
			output, result = name+".refused", []byte(err.Error()+"\n"+report.String())
		}
		if err := os.WriteFile(output, result, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// asJSON converts MachineConfigs, which are YAML, and Ignition configs, which are JSON.
func asJSON(text []byte) ([]byte, error) {
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}
