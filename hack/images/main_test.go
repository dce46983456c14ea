package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestRefusedFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--platforms": {"--platforms", "linux"},

		"--created": {"--created", "yesterday"},
		"version":   {"--version", "latest", "--out", filepath.Join(t.TempDir(), "images")},

		"no program": {"--programs", "yurthub,yurtlab", "--out", filepath.Join(t.TempDir(), "images")},
	} {
		if err := start(t.Context(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
