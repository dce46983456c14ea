package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

func TestRefusedFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--platforms": {"--platforms", "linux"},

		"--created":  {"--created", "yesterday"},
		"no program": {"--programs", "yurthub,yurtlab", "--out", filepath.Join(t.TempDir(), "images")},
	} {
		if err := start(t.Context(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// A build that fails leaves what was there as it was.
func TestFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	r := release{root: "../..", out: filepath.Join(dir, "images"), only: []string{"yurthub"}}
	if err := r.parsePlatforms("linux/none"); err != nil {
		t.Fatal(err)
	}
	if err := r.make(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "linux/none") {
		t.Errorf("a platform that Go does not know: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".images-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
