package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/logs/logstest"
)

func TestMain(m *testing.M) { logstest.Main(m, talk) }

// talk is a program that logs in all ways that there are, as much as it is told to, then with one level more.
func talk() {
	var s Settings
	fs := pflag.NewFlagSet("talk", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	s.AddFlags(fs)
	quiet := fs.Bool("only-errors", false, "")
	err := fs.Parse(os.Args[1:])
	var own klog.Logger
	if err == nil {
		own, err = s.Start()
	}
	if err != nil {
		s.Tell(os.Stderr, "talk", os.Args[1:], err)
		os.Exit(1)
	}
	if *quiet {
		s.OnlyErrors(own)
	}
	ctx := klog.NewContext(context.Background(), own)
	say := func(when string) {
		for level := range 10 {
			klog.FromContext(ctx).WithName("own").V(level).Info(when+" own", "level", level)
			klog.Background().WithValues("a", "b").V(level).Info(when+" background", "level", level)
			klog.V(klog.Level(level)).Infof("%s formatted %d", when, level)
			klog.V(klog.Level(level)).InfoS(when+" structured", "level", level)
		}
		klog.Warningf("%s warned\nof two lines", when)
		klog.ErrorS(errors.New("broken"), when+" failed")
		klog.ErrorS(fmt.Errorf("watch: %w", context.Canceled), when+" given up")
		log.Printf("%s by log", when)
		slog.Info(when + " by slog")
		klog.FromContext(ctx).Error(errors.New("broken"), when+" own error")
	}
	own.Info("A time", "then", time.UnixMilli(1700000000123), "long", 90*time.Second)
	say("first")
	if err := SetVerbosity(s.Verbosity + 1); err != nil {
		klog.ErrorS(err, "SetVerbosity")
	}
	say("then")
	klog.Flush()
}

func said(t *testing.T, args ...string) string {
	t.Helper()
	p := logstest.Start(t, args...)
	if err := p.Wait(); err != nil {
		t.Errorf("%v: %v\n%s", args, err, p.Log())
	}
	return p.Log()
}

// TestEverythingIsInOneForm: what a program logs by klog, log/slog and log, and how much of it.
func TestEverythingIsInOneForm(t *testing.T) {
	for _, v := range []int{0, 3, 6, 7, 9} {
		all := logstest.Entries(t, said(t, "--logging-format=json", fmt.Sprintf("-v=%d", v)))
		counts := map[string]int{}
		for _, e := range all {
			counts[e.Message()]++
		}
		most, next := min(v, Most)+1, min(v+1, Most)+1 // levels from 0 on
		for message, want := range map[string]int{
			"first own": most, "first background": most, "first structured": most, "then own": next, "then background": next,
			"then structured": next, "first warned\nof two lines": 1, "first failed": 1, "first by log": 1, "first by slog": 1,
			"first own error":                         1,
			fmt.Sprintf("first formatted %d", most-1): 1, fmt.Sprintf("first formatted %d", most): 0,
			fmt.Sprintf("then formatted %d", next-1): 1, fmt.Sprintf("then formatted %d", next): 0,
		} {
			if counts[message] != want {
				t.Errorf("-v=%d: %d times %q, want %d", v, counts[message], message, want)
			}
		}
		if highest := logstest.Highest(all); highest != min(v+1, Most) {
			t.Errorf("-v=%d: the highest level is %d", v, highest)
		}
		for _, e := range all {
			if strings.HasSuffix(e.Message(), "own error") && (e["err"] != "broken" || e.Level() != -1) {
				t.Errorf("an error is %v", e)
			}
			if e.Message() == "A time" && (e["then"] != 1700000000123.0 || e["long"] != "1m30s") {
				t.Errorf("a time that is logged is %v", e)
			}
			if e.Message() == "first own" && e["logger"] != "own" {
				t.Errorf("the logger's name is missing: %v", e)
			}
		}
	}
}

func TestText(t *testing.T) {
	text := said(t, "-v=4")
	for _, line := range []string{
		`"first own" logger="own" level=4`, `] first formatted 1`, `"first by slog"`, `E`, `"first failed" err="broken"`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	if strings.Contains(text, "level=6") || strings.Contains(text, `{"`) {
		t.Errorf("it is\n%s", text)
	}
}

// TestOnlyErrors: what Kubernetes' code says besides errors is left out below a level, and what the program says itself stays.
func TestOnlyErrors(t *testing.T) {
	for v, wants := range map[string]bool{"0": false, "1": false, "2": true} {
		for _, form := range []string{Text, JSON} {
			text := said(t, "--logging-format="+form, "-v="+v, "--only-errors")
			for _, of := range []string{
				"first background", "first structured", "first formatted", "first warned", "first given up",
			} {
				if strings.Contains(text, of) != wants {
					t.Errorf("%s, -v=%s: %q is there: %t\n%s", form, v, of, !wants, text)
				}
			}
			for _, of := range []string{"first own", "first failed", "first own error"} {
				i := strings.Index(text, of)
				if i < 0 {
					t.Errorf("%s, -v=%s: no %q\n%s", form, v, of, text)
					continue
				}
				// Which line of which file said it stands before.
				if before := text[strings.LastIndex(text[:i], "\n")+1 : i]; !strings.Contains(before, "logs_test.go:") {
					t.Errorf("%s, -v=%s: %q is said by %s", form, v, of, before)
				}
			}
		}
	}
}

// TestWhatIsRefused, and in which form a program tells of it.
func TestWhatIsRefused(t *testing.T) {
	for _, tt := range []struct {
		args []string
		json bool
		want string
	}{
		{[]string{"--logging-format=xml"}, false, `--logging-format "xml": want text or json`},
		{[]string{"--logging-format="}, false, "want text or json"},
		{[]string{"-v=much"}, false, `"much"`},
		{[]string{"-v=-1"}, false, `"-1"`},
		{[]string{"--logging-format=json", "--unknown"}, true, "--unknown"},
		{[]string{"--unknown=x", "--logging-format=json"}, true, "--unknown"},
		{[]string{"--unknown", "--logging-format", "json"}, true, "--unknown"},
		{[]string{"-v=much", "--logging-format=json"}, false, `"much"`},
		{[]string{"--logging-format=json", "-v=much"}, true, `"much"`},
	} {
		p := logstest.Start(t, tt.args...)
		if err := p.Wait(); err == nil {
			t.Errorf("%v is taken", tt.args)
		}
		text := p.Log()
		if !tt.json {
			if !strings.HasPrefix(text, "talk: ") || !strings.Contains(text, tt.want) || strings.Contains(text, "\n") {
				t.Errorf("%v: %s", tt.args, text)
			}
			continue
		}
		all := logstest.Entries(t, text)
		if len(all) != 1 || all[0].Message() != "talk ends" || !strings.Contains(fmt.Sprint(all[0]["err"]), tt.want) {
			t.Errorf("%v: %s", tt.args, text)
		}
	}
}

func TestTell(t *testing.T) {
	var out bytes.Buffer
	Settings{Format: Text}.Tell(&out, "hub", nil, errors.New("no disk"))
	Settings{}.Tell(&out, "hub", []string{"check"}, errors.New("a server says \x1b[2J"))
	if got := out.String(); got != "hub: no disk\nhub: a server says \\x1b[2J\n" {
		t.Errorf("a person reads %q", got)
	}
	out.Reset()
	Settings{Format: JSON}.Tell(&out, "hub", nil, errors.New("no disk\nat all"))
	if all := logstest.Entries(t, out.String()); len(all) != 1 || all[0]["err"] != "no disk\nat all" {
		t.Errorf("a program reads %q", out.String())
	}
}
