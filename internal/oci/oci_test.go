package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var amd64, arm64 = v1.Platform{OS: "linux", Architecture: "amd64"}, v1.Platform{OS: "linux", Architecture: "arm64"}

// compile builds a small program, in a directory of its own.
func compile(t *testing.T, platform v1.Platform, says string) []byte {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a", "module")
	for name, content := range map[string]string{
		"go.mod":            "module example.org/ours\n\ngo 1.26.0\n",
		"cmd/hello/main.go": fmt.Sprintf("package main\n\nfunc main() { println(%q) }\n", says),
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "hello")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", out,
		"./cmd/hello")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	program, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func program(t *testing.T, platform v1.Platform, says string) Program {
	t.Helper()
	content := compile(t, platform, says)
	sbom, err := SBOM("hello", "v1.2.3", content)
	if err != nil {
		t.Fatal(err)
	}
	return Program{
		Name: "hello", Title: "says it", Content: content, SBOM: sbom, Platform: platform, Version: "v1.2.3",
		Revision: "abc", Created: time.Unix(1, 0),
	}
}

func image(t *testing.T, p Program) v1.Image {
	t.Helper()
	i, err := p.Image()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func index(t *testing.T, says string) v1.ImageIndex {
	t.Helper()
	x, err := Index(image(t, program(t, amd64, says)), image(t, program(t, arm64, says)))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func digest(t *testing.T, of interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	d, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// Built twice from the same source, in two places, everything is the same, down to the archive.
func TestReproducible(t *testing.T) {
	one, two := index(t, "hello"), index(t, "hello")
	if digest(t, one) != digest(t, two) {
		t.Errorf("two builds of the same source: %s and %s", digest(t, one), digest(t, two))
	}
	if digest(t, one) == digest(t, index(t, "goodbye")) {
		t.Error("another program has the same digest")
	}
	var archives [][]byte
	for _, x := range []v1.ImageIndex{one, two} {
		path := filepath.Join(t.TempDir(), "hello.tar")
		if err := WriteArchive(path, Named{Name: "registry.example.org/hello:v1.2.3", Content: x}); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, content)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the archives differ")
	}
}

// What is written is a valid OCI layout of one index, whose images are as their platforms run them.
func TestLayout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "layout")
	const name = "registry.example.org:5000/edge/hello:v1.2.3"
	if err := WriteLayout(dir, Named{Name: name, Content: index(t, "hello")}); err != nil {
		t.Fatal(err)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(top); err != nil {
		t.Errorf("not a valid layout: %v", err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%v, %v: want one index", manifest, err)
	}
	d := manifest.Manifests[0]
	if d.MediaType != types.OCIImageIndex || d.Annotations["org.opencontainers.image.ref.name"] != "v1.2.3" ||
		d.Annotations["io.containerd.image.name"] != name {
		t.Errorf("the index is %s, called %v", d.MediaType, d.Annotations)
	}
	inner, err := top.ImageIndex(d.Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range images.Manifests {
		platforms = append(platforms, m.Platform.String())
		i, err := inner.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := i.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Platform().String() != m.Platform.String() {
			t.Errorf("an image for %s says %s", m.Platform, config.Platform())
		}
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms %v, want %v", platforms, want)
	}
}

func TestProgramImage(t *testing.T) {
	p := program(t, amd64, "hello")
	i := image(t, p)
	config, err := i.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/hello"}) ||
		!slices.Equal(c.Env, []string{"PATH=/usr/local/bin"}) {
		t.Errorf("it runs %v as %s in %v", c.Entrypoint, c.User, c.Env)
	}
	for label, want := range map[string]string{
		"title": "hello", "description": "says it", "version": "v1.2.3", "revision": "abc",
		"created": "1970-01-01T00:00:01Z", "licenses": "Apache-2.0",
	} {
		if got := c.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	found := files(t, i)
	for path, want := range map[string]string{
		"tmp":                           "dtrwxrwxrwx 0",
		"usr/local/bin/hello":           fmt.Sprintf("-rwxr-xr-x %d", len(p.Content)),
		"usr/share/sbom/hello.cdx.json": fmt.Sprintf("-rw-r--r-- %d", len(p.SBOM)),
	} {
		if found[path] != want {
			t.Errorf("%s is %q, want %q", path, found[path], want)
		}
	}
	if !strings.HasPrefix(found["etc/passwd"], "-rw-r--r--") || len(found) != 11 {
		t.Errorf("files %v: want these, etc/passwd, etc/group, and directories", found)
	}
	p.Uncompressed = true
	big := image(t, p)
	if a, b := size(t, big), size(t, i); a <= b {
		t.Errorf("uncompressed it has %d bytes, compressed %d", a, b)
	}
	if got := files(t, big); len(got) != len(found) {
		t.Errorf("uncompressed it has %v", got)
	}
}

func size(t *testing.T, i v1.Image) int64 {
	t.Helper()
	layers, err := i.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	n, err := layers[0].Size()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// files lists what a container sees: mode and size.
func files(t *testing.T, i v1.Image) map[string]string {
	t.Helper()
	flat := mutate.Extract(i)
	defer flat.Close()
	found := map[string]string{}
	for r := tar.NewReader(flat); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 {
			t.Errorf("%s: owner %d:%d, time %s", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		found[h.Name] = fmt.Sprintf("%s %d", h.FileInfo().Mode(), h.Size)
	}
}

func TestSBOM(t *testing.T) {
	made, err := describe(&debug.BuildInfo{
		GoVersion: "go1.26.8", Path: "example.org/ours/cmd/hello",
		Main: debug.Module{Path: "example.org/ours", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:a"},
			{Path: "example.org/b", Version: "v2.0.0", Replace: &debug.Module{Path: "example.org/fork", Version: "v2.0.1"}},
		},
	}, "hello", "v1.2.3", sha256.Sum256(nil))
	if err != nil {
		t.Fatal(err)
	}
	var bom cyclonedx.BOM
	if err := json.Unmarshal(made, &bom); err != nil {
		t.Fatal(err)
	}
	main := bom.Metadata.Component
	if main.Name != "hello" || main.PackageURL != "pkg:golang/example.org/ours@v1.2.3#cmd/hello" ||
		bom.SpecVersion != cyclonedx.SpecVersion1_6 {
		t.Errorf("it is about %s, %s, in %s", main.Name, main.PackageURL, bom.SpecVersion)
	}
	var urls []string
	for _, c := range *bom.Components {
		urls = append(urls, c.PackageURL)
	}
	want := []string{
		"pkg:golang/std@1.26.8", "pkg:golang/example.org/a@v1.0.0", "pkg:golang/example.org/fork@v2.0.1",
	}
	if !slices.Equal(urls, want) {
		t.Errorf("components %v, want %v", urls, want)
	}
	if on := (*bom.Dependencies)[0]; on.Ref != main.BOMRef || !slices.Equal(*on.Dependencies, want) {
		t.Errorf("%s depends on %v", on.Ref, *on.Dependencies)
	}
	const form = `^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`
	if !regexp.MustCompile(form).MatchString(bom.SerialNumber) {
		t.Errorf("serial number %q", bom.SerialNumber)
	}
	if _, err := SBOM("x", "v1", []byte("#!/bin/sh\n")); err == nil {
		t.Error("a script has an SBOM")
	}
}

func TestRefusedPaths(t *testing.T) {
	for _, files := range [][]File{
		{Text("../etc/shadow", "")}, {Text("/a", ""), Text("a", "")}, {Dir("/a", 0o755), Text("/a", "")}, {Text("/", "")},
	} {
		if _, err := Layer(files...); err == nil {
			t.Errorf("%v: accepted", files)
		}
		if _, err := CompressedLayer(files...); err == nil {
			t.Errorf("%v: accepted", files)
		}
	}
}
