package image

import (
	"slices"
	"testing"
)

// TestFormer: a former release's coordinator has the name that a pool pins it by.
func TestFormer(t *testing.T) {
	program := elfProgram(t, t.TempDir(), "yurt-coordinator", false)
	config := FormerConfig{CacheDir: t.TempDir(), Coordinator: program, Tag: "v0.1.0-k1.36.3"}
	a, err := EnsureFormer(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"registry.local/yurt-coordinator:v0.1.0-k1.36.3"}; !slices.Equal(a.Images, want) {
		t.Errorf("images %v, want %v", a.Images, want)
	}
	if again, err := EnsureFormer(t.Context(), config); err != nil || again.Path != a.Path {
		t.Errorf("made again: %s, want %s: %v", again.Path, a.Path, err)
	}
	config.Coordinator = "no such program"
	if _, err := EnsureFormer(t.Context(), config); err == nil {
		t.Error("there is an image of a program that is not there")
	}
}
