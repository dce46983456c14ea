package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
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

// letters returns what the name of a field and that of its flag have in common: lower case, and no dashes. The field of --v is
// verbosity.
func letters(name string) string {
	if name == logs.VerbosityFlag {
		return "verbosity"
	}
	return strings.ToLower(strings.ReplaceAll(name, "-", ""))
}

// fieldOf returns the names of a YurtHubConfiguration's fields by their letters.
func fieldOf() map[string]string {
	fields := map[string]string{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.YurtHubConfiguration]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && !f.Anonymous {
			fields[letters(name)] = name
		}
	}
	return fields
}

// Configuration returns what fs was given, on the command line and in a file, as a YurtHubConfiguration in YAML.
func Configuration(fs *pflag.FlagSet) ([]byte, error) {
	fields := fieldOf()
	given := map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind}
	var failed error
	fs.Visit(func(f *pflag.Flag) {
		field := fields[letters(f.Name)]
		if field == "" { // --config, and what is for tests
			return
		}
		var value any = f.Value.String()
		var err error
		switch f.Value.Type() {
		case "bool":
			value, err = strconv.ParseBool(f.Value.String())
		case "int", "Level":
			value, err = strconv.Atoi(f.Value.String())
		case "stringSlice":
			value, err = fs.GetStringSlice(f.Name)
		}
		if err != nil {
			failed = fmt.Errorf("--%s: %w", f.Name, err)
		}
		given[field] = value
	})
	if failed != nil {
		return nil, failed
	}
	content, err := yaml.Marshal(given)
	if err != nil {
		return nil, err
	}
	if _, err := v1alpha1.Decode(content); err != nil {
		return nil, err
	}
	return content, nil
}
