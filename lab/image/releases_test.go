package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/internal/signed"
)

// TestReleases: an image has the list of its release's programs, signed with the key that is beside.
func TestReleases(t *testing.T) {
	program := elfProgram(t, t.TempDir(), "yurthub", false)
	config := ReleasesConfig{CacheDir: t.TempDir(), Programs: map[string]string{"v2.0.0": program, "v1.0.0": program}}
	r, err := EnsureReleases(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"registry.local/yurthub:v1.0.0", "registry.local/yurthub:v2.0.0"}; !slices.Equal(r.Images, want) {
		t.Errorf("images %v, want %v", r.Images, want)
	}
	public, err := os.ReadFile(r.Key)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := signed.ParseKeys(public)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	var found []string
	sums, signatures := signedFiles(t, r.Path)
	for i := range sums {
		list, err := keys.Open(sums[i], signatures[i])
		if err != nil {
			t.Fatal(err)
		}
		for name, is := range list {
			if is != hex.EncodeToString(sum[:]) {
				t.Errorf("%s has the sum %s", name, is)
			}
			found = append(found, name)
		}
	}
	slices.Sort(found)
	platform := "linux-" + runtime.GOARCH
	if want := []string{"yurthub-v1.0.0-" + platform, "yurthub-v2.0.0-" + platform}; !slices.Equal(found, want) {
		t.Errorf("the images are signed for %v, want %v", found, want)
	}
	if again, err := EnsureReleases(t.Context(), config); err != nil || again.Key != r.Key {
		t.Errorf("made again: %v, with the key %s, want %s", err, again.Key, r.Key)
	}
	config.Programs = map[string]string{"v1.0.0": "no such program"}
	if _, err := EnsureReleases(t.Context(), config); err == nil {
		t.Error("there are images of a program that is not there")
	}
}

// signedFiles returns the lists and their signatures in an archive of images.
func signedFiles(t *testing.T, path string) (sums, signatures [][]byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for outer := tar.NewReader(f); ; {
		if _, err := outer.Next(); errors.Is(err, io.EOF) {
			return sums, signatures
		} else if err != nil {
			t.Fatal(err)
		}
		blob, err := io.ReadAll(outer)
		if err != nil {
			t.Fatal(err)
		}
		for inner := tar.NewReader(bytes.NewReader(blob)); ; {
			h, err := inner.Next()
			if err != nil { // the end, or no layer
				break
			}
			content, err := io.ReadAll(inner)
			switch {
			case err != nil:
				t.Fatal(err)
			case strings.HasSuffix(h.Name, signed.SignatureFile):
				signatures = append(signatures, content)
			case strings.HasSuffix(h.Name, signed.SumsFile):
				sums = append(sums, content)
			}
		}
	}
}
