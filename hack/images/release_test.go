package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRefusedFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--platforms": {"--platforms", "linux"},

		"--created": {"--created", "yesterday"},
		"--version": {"--version", "latest", "--out", filepath.Join(t.TempDir(), "images")},

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

// TestTags: coordinators' images say which Kubernetes is in them, too, and the chart is packed if it has all that it runs.
func TestTags(t *testing.T) {
	r := release{root: "../..", registry: "registry.example.org/edge", version: "v0.2.0", kubernetes: "v1.36.3"}
	for name, want := range map[string]string{
		"yurthub":   "registry.example.org/edge/yurthub:v0.2.0",
		controller:  "registry.example.org/edge/coordinator-controller:v0.2.0",
		coordinator: "registry.example.org/edge/yurt-coordinator:v0.2.0-k1.36.3",
	} {
		if got := r.called(name); got != want {
			t.Errorf("%s is called %s, want %s", name, got, want)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "yurt-coordinator-0.2.0.tgz")
	for _, test := range []struct {
		digests map[string]string
		want    bool
	}{
		{map[string]string{controller: "sha256:" + strings.Repeat("0a", 32)}, false},
		{map[string]string{
			controller: "sha256:" + strings.Repeat("0a", 32), coordinator: "sha256:" + strings.Repeat("0b", 32),
		}, true},
	} {
		r.digests = test.digests
		if err := r.chart(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); (err == nil) != test.want {
			t.Errorf("with %d digests: %v", len(test.digests), err)
		}
	}
}
