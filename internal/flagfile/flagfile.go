// Package flagfile reads a program's settings from its command line and from a configuration file. Both use the same
// names: `renew-interval: 2s` in the file is `--renew-interval=2s` on the command line. The command line wins.
package flagfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// FlagName is the flag that names the configuration file.
const FlagName = "config"

// annotationRead is where a flag set keeps, at the flag --config, what Parse has read of the file.
const annotationRead = "read"

// maxFileSize bounds the configuration file, in bytes. A file of settings is a few kilobytes; more is a mistake.
const maxFileSize = 1 << 20

// ErrHelp is what Parse returns after it printed what the user asked for: the help, or a text of Prints.
var ErrHelp = pflag.ErrHelp

// VersionFlag is the flag by which programs say of which version they are.
const VersionFlag = "version"

// Prints adds a flag that has Parse print a text, and nothing else happen. A configuration file can't have it.
func Prints(fs *pflag.FlagSet, name, usage, text string) {
	fs.Var(&printed{text: text}, name, usage)
	fs.Lookup(name).NoOptDefVal = "true"
}

// printed is the value of a flag of Prints.
type printed struct {
	text  string
	asked bool
}

// String implements pflag.Value.
func (p *printed) String() string { return strconv.FormatBool(p.asked) }

// Type implements pflag.Value.
func (p *printed) Type() string { return "bool" }

// Set implements pflag.Value.
func (p *printed) Set(text string) (err error) {
	p.asked, err = strconv.ParseBool(text)
	return err
}

// asked prints the texts that the command line asks for, and returns whether it does for any.
func asked(fs *pflag.FlagSet, out io.Writer) (found bool) {
	fs.VisitAll(func(f *pflag.Flag) {
		if p, ok := f.Value.(*printed); ok && p.asked {
			fmt.Fprintln(out, p.text)
			found = true
		}
	})
	return found
}

// Versioned reads a file that has an apiVersion and a kind, and returns its settings by the names of flags. If it returns an
// error, it also returns the settings that it could read.
type Versioned func(content []byte) (settings map[string]any, err error)

// Parse sets fs from args and from the YAML file that --config names; Parse adds that flag. If the file has an apiVersion,
// versioned reads it; nil means that the program knows no such files. If args ask for help, or have a flag that Prints has added,
// Parse prints the help or that flag's text to help, and returns ErrHelp. Any other error is one line, and names what is wrong.
// If a setting of the file is wrong, Parse nevertheless sets the others, so that the program can log the error in the form that
// the file asks for.
func Parse(fs *pflag.FlagSet, args []string, help io.Writer, versioned Versioned) error {
	file := fs.String(FlagName, "", "YAML file of settings, with the names of these flags; flags on the command line win")
	fs.SetOutput(io.Discard) // pflag prints the whole usage on an error; one line is what a person can use
	fs.SortFlags = true
	fs.Usage = func() {
		fmt.Fprintf(help, "Usage: %s [flags]\n\n%s", fs.Name(), fs.FlagUsagesWrapped(120))
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return ErrHelp
		}
		return fmt.Errorf("%w; see %s --help", err, fs.Name())
	}
	if asked(fs, help) {
		return ErrHelp
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see %s --help", fs.Arg(0), fs.Name())
	}
	if *file == "" {
		return nil
	}
	return fromFile(fs, *file, versioned)
}

func fromFile(fs *pflag.FlagSet, path string, versioned Versioned) error {
	content, err := read(path)
	if err != nil {
		return fmt.Errorf("--%s: %w", FlagName, err)
	}
	fs.Lookup(FlagName).Annotations = map[string][]string{annotationRead: {string(content)}}
	settings, err := decode(content)
	if err != nil {
		return fmt.Errorf("%s: not a YAML map of settings: %s", path, oneLine(err))
	}
	if _, says := settings["apiVersion"]; says && versioned != nil {
		if settings, err = versioned(content); err != nil {
			err = errors.New(oneLine(err))
		}
	}
	for _, key := range sortedKeys(settings) {
		if wrong := set(fs, key, settings[key]); err == nil {
			err = wrong
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// set sets a flag as a file says, unless the command line has set it.
func set(fs *pflag.FlagSet, key string, value any) error {
	flag := fs.Lookup(key)
	if flag == nil || key == FlagName || key == "help" || isPrinted(flag) {
		return fmt.Errorf("unknown setting %q; see %s --help", key, fs.Name())
	}
	if flag.Changed {
		return nil
	}
	text, err := scalar(value)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if err := fs.Set(key, text); err != nil {
		return fmt.Errorf("%s: %s", key, oneLine(err))
	}
	return nil
}

func isPrinted(f *pflag.Flag) bool {
	_, ok := f.Value.(*printed)
	return ok
}

// decode keeps numbers as written; YAML's own types would change them (100000000 to 1e+08).
func decode(content []byte) (map[string]any, error) {
	asJSON, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, err
	}
	var settings map[string]any
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	err = d.Decode(&settings)
	return settings, err
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFileSize {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFileSize)
	}
	return content, nil
}

// scalar turns a value of the file into a flag's text. A list becomes comma-separated text, as list flags take it.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", errors.New("has no value")
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			text, err := scalar(item)
			if err != nil {
				return "", err
			}
			if strings.Contains(text, ",") {
				return "", fmt.Errorf("item %q contains a comma", text)
			}
			parts[i] = text
		}
		return strings.Join(parts, ","), nil
	case map[string]any:
		return "", errors.New("is a map; it must be a value or a list")
	default:
		return fmt.Sprint(v), nil
	}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
