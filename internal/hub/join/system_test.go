package join

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program puts a shell script into a directory.
func program(t *testing.T, dir, name, script string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMachine(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	var m Machine
	if m.Available() {
		t.Error("a machine without systemctl has a systemd")
	}
	program(t, dir, "systemctl", `if [ "$1" = start ]; then echo "no such unit" >&2; exit 5; fi`)
	if !m.Available() {
		t.Error("systemctl is not seen")
	}
	if err := m.Control(t.Context(), "daemon-reload"); err != nil {
		t.Error(err)
	}
	if err := m.Control(t.Context(), "start", "x"); err == nil || !strings.Contains(err.Error(), "no such unit") {
		t.Errorf("Control = %v", err)
	}
	hub := program(t, dir, "yurthub", `read -r line; echo "$* $line" >&2; if [ "$line" = bad ]; then exit 1; fi`)
	if said, err := m.Check(t.Context(), hub, "good", "--joined"); err != nil || said != "check --joined good\n" {
		t.Errorf("Check = %q, %v", said, err)
	}
	if said, err := m.Check(t.Context(), hub, "bad"); !errors.Is(err, ErrNotWell) || said != "check bad\n" {
		t.Errorf("Check = %q, %v", said, err)
	}
	if _, err := m.Check(t.Context(), dir, ""); err == nil || errors.Is(err, ErrNotWell) {
		t.Errorf("Check with a program that cannot be run = %v", err)
	}
}

// TestOutput: what a check has found is no failure of the check's, and what systemd does not say is zero.
func TestOutput(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	var m Machine
	hub := program(t, dir, "yurthub", `echo "$*"; echo noise >&2; if [ "$2" = bad ]; then exit 1; fi`)
	for args, want := range map[string]string{"check good": "", "check bad": "", "--version bad": "exit status 1: noise"} {
		said, err := m.Output(t.Context(), hub, strings.Fields(args)...)
		if said != args+"\n" || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %q", args, said, err, want)
		}
	}
	if _, err := m.Output(t.Context(), dir, "check"); err == nil {
		t.Error("a directory can be run")
	}
	if n := m.Restarts(t.Context()); n != 0 {
		t.Errorf("without systemd: %d", n)
	}
	program(t, dir, "systemctl", `if [ "$*" = "show --property=NRestarts --value yurthub.service" ]; then echo 3; fi`)
	if n := m.Restarts(t.Context()); n != 3 {
		t.Errorf("systemd says 3, and we %d", n)
	}
	program(t, dir, "systemctl", `if [ "$*" = "show --property=InvocationID --value yurthub.service" ]; then echo a7; fi`)
	if run := m.Begun(t.Context()); run != "a7" {
		t.Errorf("systemd says a7, and we %q", run)
	}
}
