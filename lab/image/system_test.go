package image

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// elfProgram is a program of some form: an ELF header without any segment needs no other file.
func elfProgram(t *testing.T, dir, name string, interpreter bool) string {
	t.Helper()
	segments := byte(0)
	if interpreter {
		segments = 1
	}
	header := make([]byte, 64+56)
	copy(header, "\x7fELF\x02\x01\x01")           // 64 bits, little endian
	header[16], header[18], header[20] = 2, 62, 1 // executable, amd64
	header[32] = 64                               // segments follow at once
	header[52], header[54], header[56] = 64, 56, segments
	header[64] = 3 // PT_INTERP
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, header, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSystemImages(t *testing.T) {
	dir := t.TempDir()
	programs := []string{elfProgram(t, dir, "yurt-coordinator", false), elfProgram(t, dir, "coordinator-controller", false)}
	config := SystemConfig{CacheDir: t.TempDir(), Programs: programs, Kubernetes: "v1.36.3"}
	a, err := EnsureSystem(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"registry.local/yurt-coordinator:v0.0.0-lab-k1.36.3", "registry.local/coordinator-controller:v0.0.0-lab"}
	if !slices.Equal(a.Images, want) {
		t.Errorf("images %v, want %v", a.Images, want)
	}
	first, err := os.ReadFile(a.Path)
	if err != nil {
		t.Fatal(err)
	}
	config.CacheDir = t.TempDir()
	again, err := EnsureSystem(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(again.Path); err != nil || !bytes.Equal(first, second) {
		t.Errorf("made twice, the archives differ: %v", err)
	}
}

func TestSystemImageHasNoRoot(t *testing.T) {
	program := elfProgram(t, t.TempDir(), "yurt-coordinator", false)
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string][]byte{"yurt-coordinator": content}
	images, err := composeSystem([]string{"yurt-coordinator"}, programs, SystemTag, "v1.36.3")
	if err != nil || len(images) != 1 {
		t.Fatalf("%d images, %v", len(images), err)
	}
	described, err := images[0].Content.(v1.Image).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := described.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/yurt-coordinator"}) {
		t.Errorf("it runs %v as %q", c.Entrypoint, c.User)
	}
}

// In an image there are no libraries: a program that needs them would fail in a Pod, with a message that says little.
func TestDynamicProgramIsRefused(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{
		"dynamically":       elfProgram(t, dir, "dynamic", true),
		"bad magic number":  filepath.Join(dir, "script"),
		"no such file or d": filepath.Join(dir, "none"),
	} {
		if name == "bad magic number" {
			if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 0 # "+strings.Repeat("x", 100)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		_, err := EnsureSystem(t.Context(), SystemConfig{CacheDir: t.TempDir(), Programs: []string{path}})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %q", path, err, name)
		}
	}
}
