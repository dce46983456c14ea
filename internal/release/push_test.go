package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

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

// push pushes as the Makefile does.
func push(t *testing.T, r Release) error {
	t.Helper()
	names, err := os.ReadFile(filepath.Join(r.Out, layoutsDir, NamesFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(names)) {
		dir, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		cmd := exec.CommandContext(t.Context(), "go", "run", "github.com/google/go-containerregistry/cmd/crane@v0.22.1", "push",
			filepath.Join(r.Out, layoutsDir, dir), name)
		cmd.Dir = t.TempDir() // not our module
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("push %s: %w: %s", name, err, out)
		}
	}
	return nil
}

// What is pushed is what was built: pulled, all has the digests that were told, for both platforms, with the SBOM. Without a key,
// and of one program alone.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	r := Release{
		Chart: chartDir, Programs: programs(t, hub), Out: filepath.Join(t.TempDir(), "images"), Registry: host + "/edge",
		Version: "v1.2.3", Kubernetes: "v1.36.3",
	}
	var said bytes.Buffer
	if err := r.Make(&said); err != nil {
		t.Fatal(err)
	}
	if err := push(t, r); err != nil {
		t.Fatal(err)
	}
	built, err := layout.ImageIndexFromPath(filepath.Join(r.Out, layoutsDir, hub))
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
	if err := push(t, r); err == nil || !strings.Contains(err.Error(), host+"/edge/yurthub:v1.2.3") {
		t.Errorf("to a registry that is gone: %v", err)
	}
}
