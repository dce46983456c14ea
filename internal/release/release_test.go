package release

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/hex"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yurtcoordinator/internal/signed"
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := signed.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// filesBelow are the contents of files by their names below a directory.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir+"/")] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func differing(a, b map[string]string) (names []string) {
	for name := range a {
		if a[name] != b[name] {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, there := a[name]; !there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestMake: two clones at different paths make the same bytes, all that a release page has, and what a registry gets; with
// another key, all but what that signs.
func TestMake(t *testing.T) {
	key := newKey(t)
	server := httptest.NewServer(registry.New(registry.Logger(quiet())))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	made := func(of Release) (Release, map[string]string) {
		t.Helper()
		page := t.TempDir()
		for _, name := range []string{"yurthub-v0.2.0-linux-arm64.deb", "LICENSE"} {
			of.Files = append(of.Files, filepath.Join(page, name))
			if err := os.WriteFile(filepath.Join(page, name), []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		of.Programs, of.Out = programs(t, hub, plugin, coordinator, controller), filepath.Join(t.TempDir(), "release")
		of.Chart, of.Registry = chartDir, host+"/edge"
		of.Version, of.Kubernetes, of.Revision = "v0.2.0", "v1.36.3", "c0ffee"
		of.Builder, of.Source = "https://ci.example.org/release", "git+https://example.org/source@refs/tags/v0.2.0"
		of.Created = time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)
		if err := of.Make(io.Discard); err != nil {
			t.Fatal(err)
		}
		return of, filesBelow(t, of.Out)
	}
	r, files := made(Release{Key: key})
	if err := push(t, r); err != nil {
		t.Fatal(err)
	}
	_, again := made(Release{Key: key})
	if names := differing(files, again); len(names) > 0 {
		t.Errorf("made again from elsewhere, these differ: %v", names)
	}
	_, others := made(Release{Key: newKey(t)})
	for _, name := range differing(files, others) {
		// What has the hub's image in it has a signature in it; the chart has the digests of two others.
		signs := name == layoutsDir+"/"+NamesFile ||
			strings.HasPrefix(name, layoutsDir+"/yurthub") || strings.Contains(name, "-signature/") ||
			slices.Contains([]string{
				"yurthub-v0.2.0.oci.tar", signed.SumsFile, signed.SignatureFile, BundleFile, KeyFile, ProvenanceFile,
			}, name)
		if !signs {
			t.Errorf("%s depends on the key", name)
		}
	}

	t.Run("files", func(t *testing.T) { hasAll(t, files) })
	t.Run("signatures", func(t *testing.T) { isSigned(t, r, files) })
	t.Run("provenance", func(t *testing.T) { isAttested(t, r, files) })
	t.Run("registry", func(t *testing.T) { isPushed(t, r, server.URL) })
}

func hasAll(t *testing.T, files map[string]string) {
	want := []string{
		"LICENSE", signed.SumsFile, signed.SignatureFile, BundleFile, KeyFile, ProvenanceFile, "yurthub-v0.2.0-linux-arm64.deb",
		"yurt-coordinator-0.2.0.tgz", "yurthub-v0.2.0.oci.tar", "coordinator-controller-v0.2.0.oci.tar",
		"yurt-coordinator-v0.2.0-k1.36.3.oci.tar",
	}
	for _, platform := range []string{"linux-amd64", "linux-arm64"} {
		for _, of := range []string{"yurthub-v0.2.0-", "kubectl-yurt-v0.2.0-"} {
			want = append(want, of+platform, of+platform+".cdx.json")
		}
		want = append(want, "yurt-coordinator-"+platform+".cdx.json", "coordinator-controller-"+platform+".cdx.json")
	}
	var has []string
	for name := range files {
		if !strings.Contains(name, "/") {
			has = append(has, name)
		}
	}
	slices.Sort(want)
	slices.Sort(has)
	if !slices.Equal(has, want) {
		t.Errorf("it has %v, want %v", has, want)
	}
}

// isSigned: the list has each file, and the hub's image the programs alone, so that a node can verify what it is to run.
func isSigned(t *testing.T, r Release, files map[string]string) {
	keys, err := signed.ParseKeys([]byte(files[KeyFile]))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := keys.Open([]byte(files[signed.SumsFile]), []byte(files[signed.SignatureFile]))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		notListed := []string{signed.SumsFile, signed.SignatureFile, BundleFile, KeyFile}
		if strings.Contains(name, "/") || slices.Contains(notListed, name) {
			continue
		}
		if sums[name] != sumOf([]byte(content)) {
			t.Errorf("%s is not in the list as it is", name)
		}
		delete(sums, name)
	}
	for _, p := range imagePrograms {
		name := signed.ImageName(p.name, r.tag(p.name))
		if "sha256:"+sums[name] != r.digests[p.name] {
			t.Errorf("the list has %q of %s, want %s", sums[name], name, r.digests[p.name])
		}
		delete(sums, name)
	}
	if len(sums) > 0 {
		t.Errorf("the list has %v, which are not there", sums)
	}
	bundle := decoded[struct {
		MessageSignature struct {
			MessageDigest struct{ Digest []byte }
			Signature     string
		}
	}](t, []byte(files[BundleFile])).MessageSignature
	text := []byte(files[signed.SumsFile])
	err = keys.Verify(text, []byte(bundle.Signature))
	if err != nil || hex.EncodeToString(bundle.MessageDigest.Digest) != sumOf(text) {
		t.Errorf("the bundle has %+v: %v", bundle, err)
	}
	within := files["yurthub-v0.2.0.oci.tar"]
	if within == "" {
		t.Fatal("no image of yurthub")
	}
	program := []byte(files["yurthub-v0.2.0-linux-arm64"])
	of, err := keys.Open(r.sums, r.signature)
	if err != nil {
		t.Fatal(err)
	}
	name, err := of.Name(bytes.NewReader(program), func(name string) bool {
		_, ok := signed.ProgramVersion(name, hub, "linux/arm64")
		return ok
	})
	if err != nil || name != "yurthub-v0.2.0-linux-arm64" || len(of) != 4 {
		t.Errorf("in the image: %v; the program is %q, %v", of, name, err)
	}
}

// isAttested: the provenance is of all that the list has but itself, and says which commit was built by what.
func isAttested(t *testing.T, r Release, files map[string]string) {
	has := decoded[struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct {
			Name   string
			Digest struct{ SHA256 string }
		}
		Predicate struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   struct{ Version string }
				ResolvedDependencies []struct {
					URI    string
					Digest struct{ GitCommit string }
				}
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}](t, []byte(files[ProvenanceFile]))
	subjects := signed.Sums{ProvenanceFile: sumOf([]byte(files[ProvenanceFile]))}
	for _, s := range has.Subject {
		subjects[s.Name] = s.Digest.SHA256
	}
	if subjects.String() != files[signed.SumsFile] {
		t.Errorf("it is about\n%s, and the list has\n%s", subjects, files[signed.SumsFile])
	}
	of := has.Predicate.BuildDefinition
	if len(of.ResolvedDependencies) != 1 || of.ResolvedDependencies[0].URI != r.Source ||
		of.ResolvedDependencies[0].Digest.GitCommit != "c0ffee" || of.ExternalParameters.Version != "v0.2.0" ||
		of.BuildType != r.Builder || has.Predicate.RunDetails.Builder.ID != r.Builder {
		t.Errorf("%+v", has.Predicate)
	}
	if has.Type != "https://in-toto.io/Statement/v1" || has.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("it is a %s with a %s", has.Type, has.PredicateType)
	}
}

// payload is what cosign signs of an image.
type payload struct {
	Critical struct {
		Identity struct {
			Reference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional struct {
		Tag string `json:"tag"`
	} `json:"optional"`
}

// isPushed: the registry has the images and the chart, and a signature of each where cosign looks for it.
func isPushed(t *testing.T, r Release, url string) {
	keys := signed.Keys{&r.Key.PublicKey}
	for _, name := range r.repositories() {
		p := puller{t, url + "/v2/edge/" + name}
		tag := r.tag(name)
		digest := digestOf(t, p.get("manifests", tag))
		if digest != r.digests[name] {
			t.Errorf("%s has %s, want %s", name, digest, r.digests[name])
		}
		manifest := decoded[v1.Manifest](t, p.get("manifests", strings.Replace(digest, ":", "-", 1)+".sig"))
		if len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != cosignPayload {
			t.Fatalf("%+v", manifest)
		}
		content := p.get("blobs", manifest.Layers[0].Digest.String())
		if err := keys.Verify(content, []byte(manifest.Layers[0].Annotations[cosignKey])); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		says := decoded[payload](t, content)
		is := says.Critical
		if is.Image.Digest != digest || is.Identity.Reference != r.Registry+"/"+name || says.Optional.Tag != tag {
			t.Errorf("%s is signed as %+v", name, says)
		}
	}
	p := puller{t, url + "/v2/edge/yurthub"}
	index := decoded[v1.IndexManifest](t, p.get("manifests", "v0.2.0"))
	manifest := decoded[v1.Manifest](t, p.get("manifests", index.Manifests[0].Digest.String()))
	if len(manifest.Layers) != 2 {
		t.Fatalf("the hub's image has %d layers", len(manifest.Layers))
	}
	list, _ := unpacked(t, p.get("blobs", manifest.Layers[1].Digest.String()))
	if list["usr/share/release/SHA256SUMS"] != string(r.sums) || list["usr/share/release/SHA256SUMS.sig"] != string(r.signature) {
		t.Errorf("in the hub's image: %v", list)
	}
	helmInstalls(t, r, strings.TrimPrefix(url, "http://"))
}

// helmInstalls has Helm take the chart from the registry.
func helmInstalls(t *testing.T, r Release, host string) {
	helm := os.Getenv("HELM")
	if helm == "" {
		t.Fatal("HELM is not set: run `make unit`, or export HELM=$(bin/yurtlab build --print helm)/helm")
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), helm, "template", "yurt-coordinator", "oci://"+host+"/edge/"+chartRepository,
		"--version=0.2.0", "--plain-http", "--namespace=kube-system", "--kube-version=v1.36.0")
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)
	out, err := cmd.CombinedOutput()
	want := "image: " + r.Registry + "/coordinator-controller:v0.2.0@" + r.digests[controller]
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: no %q in\n%.2000s", err, want, out)
	}
}

// TestTags: coordinators' images say which Kubernetes is in them, too.
func TestTags(t *testing.T) {
	r := Release{Registry: "registry.example.org/edge", Version: "v0.2.0", Kubernetes: "v1.36.3"}
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

// TestRefused: a failure is said, and leaves what was there as it was.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	good := Release{
		Chart: chartDir, Programs: programs(t, hub), Out: filepath.Join(dir, "release"), Version: "v0.2.0", Kubernetes: "v1.36.3",
	}
	for want, change := range map[string]func(*Release){
		"latest":       func(r *Release) { r.Version = "latest" },
		"no programs":  func(r *Release) { r.Programs = t.TempDir() },
		"kubectl-yurt": func(r *Release) { r.Key = newKey(t) }, // a release has all programs
		"yurthub.cdx.json: no such file": func(r *Release) {
			r.Programs = programs(t, hub)
			if err := os.Remove(filepath.Join(r.Programs, "linux", "arm64", "yurthub.cdx.json")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		r := good
		change(&r)
		if err := r.Make(io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, pattern := range []string{"*", ".release-*"} {
		if left, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}
