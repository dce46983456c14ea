package flagfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

type settings struct {
	node     string
	interval time.Duration
	servers  []string
	enabled  bool
	limit    int
}

func flags(s *settings) *pflag.FlagSet {
	fs := pflag.NewFlagSet("program", pflag.ContinueOnError)
	fs.StringVar(&s.node, "node-name", "", "the node")
	fs.DurationVar(&s.interval, "interval", time.Second, "how often")
	fs.StringSliceVar(&s.servers, "servers", nil, "where")
	fs.BoolVar(&s.enabled, "enabled", true, "whether")
	fs.IntVar(&s.limit, "limit", 5, "how many")
	return fs
}

func TestFileAndCommandLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	content := "node-name: from-file\ninterval: 3s\nservers: [https://a, https://b]\nenabled: false\nlimit: 100000000\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	var s settings
	if err := Parse(flags(&s), []string{"--config", path, "--node-name=from-line"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if s.node != "from-line" || s.interval != 3*time.Second || s.enabled || len(s.servers) != 2 ||
		s.limit != 100000000 {
		t.Errorf("got %+v", s)
	}
}

func TestErrorsAreOneLineThatNamesTheFault(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		args       []string
		want       string
	}{
		{"unknown flag", "", []string{"--nod-name=x"}, "--nod-name"},
		{"bad value", "", []string{"--interval=soon"}, "interval"},
		{"stray argument", "", []string{"start"}, `"start"`},
		{"missing file", "", []string{"--config", "/nonexistent/c.yaml"}, "/nonexistent/c.yaml"},
		{"unknown key", "nodename: x\n", nil, `"nodename"`},
		{"bad value in file", "interval: soon\n", nil, "interval"},
		{"a map where a value belongs", "servers: {a: b}\n", nil, "servers"},
		{"key twice", "node-name: a\nnode-name: b\n", nil, "node-name"},
		{"not a map", "- a\n- b\n", nil, "not a YAML map"},
		{"no value", "node-name:\n", nil, "no value"},
		{"a file naming another", "config: other.yaml\n", nil, `"config"`},
		{"huge", strings.Repeat("# nothing\n", 200_000), nil, "larger than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := tt.args
			if tt.file != "" {
				path := filepath.Join(t.TempDir(), "c.yaml")
				if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--config", path)
			}
			var s settings
			err := Parse(flags(&s), args, nil, nil)
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q: want one line with %q", err, tt.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	var s settings
	if err := Parse(flags(&s), []string{"--help"}, &out, nil); !errors.Is(err, ErrHelp) {
		t.Fatalf("Parse = %v, want ErrHelp", err)
	}
	for _, want := range []string{"--node-name", "--config", "Usage: program"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q:\n%s", want, out.String())
		}
	}
}

// TestPrints: who asks gets the text, whatever else is on the command line, and a file can't ask.
func TestPrints(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
		err  error
	}{
		{[]string{"--version"}, "program v1\n", ErrHelp},
		{[]string{"--version", "--config=/nonexistent/c.yaml", "stray"}, "program v1\n", ErrHelp},
		{[]string{"--version=false", "--node-name=n"}, "", nil},
		{nil, "", nil},
	} {
		var s settings
		var out bytes.Buffer
		fs := flags(&s)
		Prints(fs, VersionFlag, "which version", "program v1")
		if err := Parse(fs, test.args, &out, nil); !errors.Is(err, test.err) || out.String() != test.want {
			t.Errorf("%v: %q, %v", test.args, out.String(), err)
		}
	}
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("version: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var s settings
	fs := flags(&s)
	Prints(fs, VersionFlag, "which version", "program v1")
	err := Parse(fs, []string{"--config", path}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), `unknown setting "version"`) {
		t.Errorf("of a file: %v", err)
	}
}
