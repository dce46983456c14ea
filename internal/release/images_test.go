package release

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// A build that fails leaves what was there as it was.
func TestFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	r := Release{Root: "../..", Out: filepath.Join(dir, "images"), Only: []string{"yurthub"}}
	r.Platforms = platforms(t, "linux/none")
	if err := r.Images(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "linux/none") {
		t.Errorf("a platform that Go does not know: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".release-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestTags: coordinators' images say which Kubernetes is in them, too.
func TestTags(t *testing.T) {
	r := Release{Root: "../..", Registry: "registry.example.org/edge", Version: "v0.2.0", kubernetes: "v1.36.3"}
	for name, want := range map[string]string{
		"yurthub":   "registry.example.org/edge/yurthub:v0.2.0",
		controller:  "registry.example.org/edge/coordinator-controller:v0.2.0",
		coordinator: "registry.example.org/edge/yurt-coordinator:v0.2.0-k1.36.3",
	} {
		if got := r.called(name); got != want {
			t.Errorf("%s is called %s, want %s", name, got, want)
		}
	}
}
