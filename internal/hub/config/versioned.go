package config

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/logs"
)

// Versioned reads a YurtHubConfiguration and returns its settings by the names of flags: a flagfile.Versioned.
func Versioned(content []byte) (map[string]any, error) {
	_, wrong := v1alpha1.Decode(content)
	// What is given is more than the object shows: an empty list is one.
	var given map[string]any
	if err := yaml.Unmarshal(content, &given, func(d *json.Decoder) *json.Decoder {
		d.UseNumber()
		return d
	}); err != nil {
		return nil, errors.Join(wrong, err)
	}
	delete(given, "apiVersion")
	delete(given, "kind")
	flags := map[string]string{}
	new(Config).flagSet().VisitAll(func(f *pflag.Flag) { flags[letters(f.Name)] = f.Name })
	settings := map[string]any{}
	for field, value := range given {
		if flag := flags[letters(field)]; flag != "" { // wrong says what else there is
			settings[flag] = value
		}
	}
	return settings, wrong
}

// flagSet returns the flags of c.
func (c *Config) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("yurthub", pflag.ContinueOnError)
	c.AddFlags(fs)
	return fs
}

// letters returns the form in which the names of a field and of its flag are equal: in lower case and without dashes. The field
// of --v is verbosity.
func letters(name string) string {
	if name == logs.VerbosityFlag {
		return "verbosity"
	}
	return strings.ToLower(strings.ReplaceAll(name, "-", ""))
}
