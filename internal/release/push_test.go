package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// smallModule is one with our dependencies and version of Kubernetes, in which programs are quickly built.
func smallModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	copied := []string{"go.mod", "go.sum", "LICENSE", "CHANGELOG.md", "deploy/plugin/kubectl_complete-yurt"}
	for _, name := range copied {
		copyFile(t, filepath.Join("../..", name), filepath.Join(dir, name))
	}
	err := filepath.WalkDir("../../deploy/charts/yurt-coordinator", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			copyFile(t, path, filepath.Join(dir, strings.TrimPrefix(path, "../../")))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{hub, plugin, coordinator, controller} {
		main := filepath.Join(dir, "cmd", name, "main.go")
		const program = "package main\n\nfunc main() {}\n"
		if err := errors.Join(os.MkdirAll(filepath.Dir(main), 0o700), os.WriteFile(main, []byte(program), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, content, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func platforms(t *testing.T, list string) []v1.Platform {
	t.Helper()
	all, err := ParsePlatforms(list)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// puller reads from a registry as a node does, and checks what it gets.
type puller struct {
	*testing.T
	repository string // URL
}

func (p puller) get(kind, reference string) []byte {
	p.Helper()
	request, err := http.NewRequestWithContext(p.Context(), http.MethodGet, p.repository+"/"+kind+"/"+reference, nil)
	if err != nil {
		p.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		p.Fatalf("%s %s: %s, %v", kind, reference, response.Status, err)
	}
	if has := digestOf(p.T, content); strings.HasPrefix(reference, "sha256:") && has != reference {
		p.Errorf("%s %s has the digest %s", kind, reference, has)
	}
	return content
}

func digestOf(t *testing.T, content []byte) string {
	t.Helper()
	hash, _, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return hash.String()
}

func decoded[T any](t *testing.T, content []byte) T {
	t.Helper()
	var out T
	if err := json.Unmarshal(content, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// sbom is the list of what is in an image, from its layer.
func (p puller) sbom(layer []byte) []byte {
	p.Helper()
	unpacked, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		p.Fatal(err)
	}
	for r := tar.NewReader(unpacked); ; {
		h, err := r.Next()
		if err != nil {
			p.Fatalf("no SBOM: %v", err)
		}
		if h.Name != "usr/share/sbom/yurthub.cdx.json" {
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			p.Fatal(err)
		}
		return content
	}
}

// What is pushed is what was built: pulled, all has the digests that were told, for both platforms, with the SBOM.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	r := Release{
		Root: smallModule(t), Out: filepath.Join(t.TempDir(), "images"), Registry: host + "/edge", Push: true,
		Version: "v1.2.3", Only: []string{"yurthub"}, Platforms: platforms(t, "linux/amd64,linux/arm64"),
	}
	var said bytes.Buffer
	if err := r.Images(t.Context(), &said); err != nil {
		t.Fatal(err)
	}
	built, err := layout.ImageIndexFromPath(filepath.Join(r.Out, "yurthub"))
	if err != nil {
		t.Fatal(err)
	}
	inLayout, err := built.IndexManifest()
	if err != nil || len(inLayout.Manifests) != 1 {
		t.Fatalf("the layout has %v, %v", inLayout, err)
	}
	p := puller{t, server.URL + "/v2/edge/yurthub"}
	index := p.get("manifests", "v1.2.3")
	digest := digestOf(t, index)
	if want := inLayout.Manifests[0].Digest.String(); digest != want {
		t.Errorf("pushed was %s, built %s", digest, want)
	}
	if want := fmt.Sprintf("%s/edge/yurthub:v1.2.3@%s\n", host, digest); !strings.Contains(said.String(), want) {
		t.Errorf("it does not say %q:\n%s", want, said.String())
	}
	var has []string
	for _, m := range decoded[v1.IndexManifest](t, index).Manifests {
		has = append(has, m.Platform.String())
		manifest := decoded[v1.Manifest](t, p.get("manifests", m.Digest.String()))
		config := decoded[v1.ConfigFile](t, p.get("blobs", manifest.Config.Digest.String()))
		if config.Platform().String() != m.Platform.String() || len(manifest.Layers) != 1 {
			t.Fatalf("the image for %s is for %s, and has %d layers", m.Platform, config.Platform(), len(manifest.Layers))
		}
		beside, err := os.ReadFile(filepath.Join(r.Out, "yurthub-linux-"+m.Platform.Architecture+".cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		if within := p.sbom(p.get("blobs", manifest.Layers[0].Digest.String())); !bytes.Equal(within, beside) {
			t.Errorf("%s: the SBOM in the image is not the one beside it", m.Platform)
		}
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(has, want) {
		t.Errorf("pushed for %v, want %v", has, want)
	}

	server.Close()
	err = push(t.Context(), io.Discard, []pushed{{filepath.Join(r.Out, "yurthub"), r.called("yurthub")}})
	if err == nil || !strings.Contains(err.Error(), host+"/edge/yurthub:v1.2.3") {
		t.Errorf("to a registry that is gone: %v", err)
	}
}
