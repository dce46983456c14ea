package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// programs writes a pause and a busybox that only lists its commands, and returns a Config of them.
func programs(t *testing.T, applets ...string) Config {
	t.Helper()
	dir := t.TempDir()
	c := Config{
		CacheDir: filepath.Join(dir, "cache"), Pause: filepath.Join(dir, "pause"),
		Busybox: filepath.Join(dir, "busybox"),
	}
	script := "#!/bin/sh\n[ \"$1\" = --list-full ] && printf '%s\\n' " + strings.Join(applets, " ") + "\n"
	for path, content := range map[string]string{c.Pause: "pause", c.Busybox: script} {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func ensure(t *testing.T, c Config) Archive {
	t.Helper()
	a, err := Ensure(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// unpack returns the images in an archive, by name.
func unpack(t *testing.T, path string) map[string]v1.Image {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index, validate.Fast); err != nil { // in full, it takes every layer for a compressed one
		t.Errorf("not a valid index: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]v1.Image{}
	for _, d := range manifest.Manifests {
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		images[d.Annotations["io.containerd.image.name"]] = image
	}
	return images
}

// files lists what a container of an image sees: path, kind and mode.
func files(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	flat := mutate.Extract(image)
	defer flat.Close()
	found := map[string]string{}
	for r := tar.NewReader(flat); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 {
			t.Errorf("%s: owner %d:%d, time %s", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		modeAndLink := fmt.Sprintf("%s %s", h.FileInfo().Mode(), h.Linkname)
		found[strings.TrimSuffix(h.Name, "/")] = strings.TrimSpace(modeAndLink)
	}
}

func TestImages(t *testing.T) {
	a := ensure(t, programs(t, "bin/busybox", "bin/sh", "usr/sbin/httpd"))
	images := unpack(t, a.Path)
	if want := []string{Pause, Shell, Web}; !slices.Equal(a.Images, want) || len(images) != len(want) {
		t.Fatalf("images %v, in the archive %v; want %v", a.Images, images, want)
	}
	for name, want := range map[string]map[string]string{
		Pause: {"pause": "-rwxr-xr-x"},
		Shell: {"bin": "drwxr-xr-x", "bin/busybox": "-rwxr-xr-x", "bin/sh": "Lrwxrwxrwx /bin/busybox",
			"usr/sbin/httpd": "Lrwxrwxrwx /bin/busybox", "tmp": "dtrwxrwxrwx", "etc/passwd": "-rw-r--r--",
			"var/run": "Lrwxrwxrwx /run"},
		Web: {"bin/sh": "Lrwxrwxrwx /bin/busybox", "usr/local/bin/web": "-rwxr-xr-x"},
	} {
		have := files(t, images[name])
		for path, kind := range want {
			if have[path] != kind {
				t.Errorf("%s: %s is %q, want %q", name, path, have[path], kind)
			}
		}
	}
	config, err := images[Web].ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(config.Config.Cmd, []string{"/usr/local/bin/web"}) || config.OS != "linux" {
		t.Errorf("web image runs %v on %s", config.Config.Cmd, config.OS)
	}
}

func TestSameBytesFromTheSamePrograms(t *testing.T) {
	first := programs(t, "bin/sh")
	second := first
	second.CacheDir = t.TempDir()
	read := func(c Config) []byte {
		b, err := os.ReadFile(ensure(t, c).Path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one := read(first)
	if !bytes.Equal(one, read(second)) {
		t.Error("two archives of the same programs differ")
	}
	if err := os.WriteFile(first.Pause, []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(one, read(first)) {
		t.Error("the archive is the same with another pause program")
	}
}

func TestMadeOnce(t *testing.T) {
	c := programs(t, "bin/sh")
	a := ensure(t, c)
	before, err := os.Stat(a.Path)
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(ensure(t, c).Path)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("the archive was made again")
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"applet outside":        programs(t, "../../etc/shadow"),
		"applet over a file":    programs(t, "etc/passwd"),
		"applet twice":          programs(t, "bin/sh", "bin/sh"),
		"pause is missing":      {CacheDir: t.TempDir(), Pause: "/does/not/exist"},
		"busybox is no program": {CacheDir: t.TempDir(), Pause: "/dev/null", Busybox: "/dev/null"},
	} {
		if _, err := Ensure(t.Context(), c); err == nil {
			t.Errorf("%s: accepted", name)
		}
		left, err := filepath.Glob(filepath.Join(c.CacheDir, "*-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%s: left behind %v, %v", name, left, err)
		}
	}
}
