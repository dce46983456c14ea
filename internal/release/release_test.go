package release

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"maps"
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
	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/signed"
	"yurtcoordinator/internal/vulns"
)

// nfpm builds the program that makes packages, as the Makefile does: from the module that pins it.
func nfpm(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "tool")
	cmd.Dir = "../../hack/packages"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nfpm: %v: %s", err, out)
	}
	return filepath.Join(dir, "nfpm")
}

// scanner is a govulncheck that has found something, and says so with another time each time; in another order if that is wanted.
// With it comes its database.
func scanner(t *testing.T, reversed bool) (tool, database string) {
	t.Helper()
	found := []string{
		`{"vulnerability": {"@id": "https://pkg.go.dev/vuln/GO-2099-0001", "name": "GO-2099-0001"}, "status": "affected",
"products": [{"@id": "Unknown Product", "subcomponents": [{"@id": "pkg:golang/x@v1"}, {"@id": "pkg:golang/stdlib@v1.26.0"}]}]}`,
		`{"vulnerability": {"@id": "https://pkg.go.dev/vuln/GO-2099-0002", "name": "GO-2099-0002"}, "status": "not_affected",
"products": [{"@id": "Unknown Product", "subcomponents": [{"@id": "pkg:golang/x@v1"}]}]}`,
	}
	if reversed {
		slices.Reverse(found)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\n" + `[ "$*" = "-db=file://` + dir + ` -tags grpcnotrace -format openvex ` +
		`./cmd/yurthub ./cmd/kubectl-yurt ./cmd/yurt-coordinator ./cmd/coordinator-controller" ] || { echo "$*" >&2; exit 1; }
date +'{"@context": "https://openvex.dev/ns/v0.2.0", "timestamp": "%s.%N", "statements": [` + strings.Join(found, ", ") + "]}'\n"
	tool = filepath.Join(dir, "govulncheck")
	if err := errors.Join(os.WriteFile(tool, []byte(script), 0o755),
		os.WriteFile(filepath.Join(dir, "GO-2099-0001.json"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return tool, "file://" + dir
}

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
	packager, key := nfpm(t), newKey(t)
	server := httptest.NewServer(registry.New(registry.Logger(quiet())))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	made := func(of Release) (Release, map[string]string) {
		t.Helper()
		of.Root, of.Out, of.Registry = smallModule(t), filepath.Join(t.TempDir(), "release"), host+"/edge"
		of.Version, of.Revision, of.Created = "v0.2.0", "c0ffee", time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)
		of.Downloads, of.Packager = "https://example.org/releases/", packager
		of.Scanner, of.Vulnerabilities = scanner(t, of.Push)
		of.Platforms = platforms(t, "linux/amd64,linux/arm64")
		if err := of.Make(t.Context(), io.Discard); err != nil {
			t.Fatal(err)
		}
		return of, filesBelow(t, of.Out)
	}
	r, files := made(Release{Key: key, Push: true})
	_, again := made(Release{Key: key})
	if names := differing(files, again); len(names) > 0 {
		t.Errorf("made again from elsewhere, these differ: %v", names)
	}
	_, others := made(Release{Key: newKey(t)})
	for _, name := range differing(files, others) {
		// What has the hub's image in it has a signature in it; the chart has the digests of two others.
		signs := strings.HasPrefix(name, layoutsDir+"/yurthub") || strings.Contains(name, "-signature/") ||
			slices.Contains([]string{"yurthub-v0.2.0.oci.tar", signed.SumsFile, signed.SignatureFile, BundleFile, KeyFile}, name)
		if !signs {
			t.Errorf("%s depends on the key", name)
		}
	}

	t.Run("files", func(t *testing.T) { hasAll(t, files) })
	t.Run("signatures", func(t *testing.T) { isSigned(t, r, files) })
	t.Run("archives", func(t *testing.T) { areArchives(t, files) })
	t.Run("packages", func(t *testing.T) { arePackages(t, r.Out) })
	t.Run("registry", func(t *testing.T) { isPushed(t, r, server.URL) })
}

func hasAll(t *testing.T, files map[string]string) {
	want := []string{
		"CHANGELOG.md", "LICENSE", signed.SumsFile, signed.SignatureFile, BundleFile, KeyFile, VEXFile, "krew-yurt.yaml",
		"yurt-coordinator-0.2.0.tgz", "yurthub-v0.2.0.oci.tar", "coordinator-controller-v0.2.0.oci.tar",
	}
	for _, platform := range []string{"linux-amd64", "linux-arm64"} {
		for _, of := range []string{"yurthub-v0.2.0-", "kubectl-yurt-v0.2.0-"} {
			want = append(want, of+platform, of+platform+".cdx.json", of+platform+".tar.gz")
		}
		want = append(want, "yurthub-v0.2.0-"+platform+".deb", "yurthub-v0.2.0-"+platform+".rpm",
			"yurt-coordinator-"+platform+".cdx.json", "coordinator-controller-"+platform+".cdx.json")
	}
	var has []string
	for name := range files {
		if !strings.Contains(name, "/") && !strings.HasPrefix(name, "yurt-coordinator-v0.2.0-k") {
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

func areArchives(t *testing.T, files map[string]string) {
	const dir = "yurthub-v0.2.0-linux-arm64"
	of, _ := unpacked(t, []byte(files[dir+".tar.gz"]))
	names := slices.Sorted(maps.Keys(of))
	want := []string{dir + "/INSTALL.md", dir + "/LICENSE", dir + "/yurthub", dir + "/yurthub.cdx.json"}
	if !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	if of[dir+"/yurthub"] != files[dir] {
		t.Error("the program in the archive is not the bare one")
	}
	var m krewManifest
	if err := yaml.UnmarshalStrict([]byte(files["krew-yurt.yaml"]), &m); err != nil {
		t.Fatal(err)
	}
	if m.Metadata.Name != "yurt" || m.Spec.Version != "v0.2.0" || len(m.Spec.Platforms) != 2 {
		t.Errorf("%+v", m)
	}
	for _, p := range m.Spec.Platforms {
		name := "kubectl-yurt-v0.2.0-linux-" + p.Selector.MatchLabels["arch"]
		archive := files[name+".tar.gz"]
		content, _ := unpacked(t, []byte(archive))
		if p.URI != "https://example.org/releases/v0.2.0/"+name+".tar.gz" || p.SHA256 != sumOf([]byte(archive)) {
			t.Errorf("krew gets %s, %s", p.URI, p.SHA256)
		}
		for _, f := range p.Files {
			if content[f.From] == "" {
				t.Errorf("krew takes %s, which is not in it", f.From)
			}
		}
	}
	var said vex
	if err := json.Unmarshal([]byte(files[VEXFile]), &said); err != nil {
		t.Fatal(err)
	}
	if said.ID != "urn:yurtcoordinator:vex:v0.2.0" || said.Timestamp != "2026-11-26T03:00:00Z" || len(said.Statements) != 2 {
		t.Errorf("it says %+v", said)
	}
	// A scanner finds the statements by the name that a program has in its SBOM.
	for _, name := range []string{hub, plugin} {
		id := "pkg:golang/yurtcoordinator@v0.2.0#cmd/" + name
		if !strings.Contains(files[name+"-v0.2.0-linux-amd64.cdx.json"], `"purl": "`+id+`"`) {
			t.Errorf("the SBOM of %s calls it otherwise than %s", name, id)
		}
		if strings.Contains(files[VEXFile], "stdlib") || !strings.Contains(files[VEXFile], `"pkg:golang/std@1.26.0"`) {
			t.Errorf("Go's library is not called as in the SBOM: %s", files[VEXFile])
		}
		for _, s := range said.Statements {
			if !slices.ContainsFunc(s.Products, func(p vulns.Product) bool { return p.ID == id }) {
				t.Errorf("%s is not said of %s: %+v", s.Vulnerability.Name, id, s.Products)
			}
		}
	}
}

// arePackages: dpkg knows what is in the deb, and what it asks before it is removed.
func arePackages(t *testing.T, dir string) {
	deb := filepath.Join(dir, "yurthub-v0.2.0-linux-arm64.deb")
	for args, want := range map[string]string{
		"--field":    "Architecture: arm64",
		"--contents": "./usr/bin/yurthub",
		"--info":     "Version: 0.2.0",
	} {
		out, err := exec.CommandContext(t.Context(), "dpkg-deb", args, deb).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("dpkg-deb %s: %v: %s; want %q", args, err, out, want)
		}
	}
	rpm, err := os.ReadFile(filepath.Join(dir, "yurthub-v0.2.0-linux-amd64.rpm"))
	if err != nil || !bytes.HasPrefix(rpm, []byte("\xed\xab\xee\xdb")) || !bytes.Contains(rpm, []byte("x86_64")) {
		t.Errorf("the rpm is none: %v", err)
	}
}

// TestScriptsOfPackages: a node that goes through the hub keeps it; an upgrade and any other node do not ask.
func TestScriptsOfPackages(t *testing.T) {
	dir := t.TempDir()
	joined := filepath.Join(dir, "joined")
	script := strings.ReplaceAll(beforeRemoval, "/etc/yurthub/install/joined", joined)
	run := func(arg string) error {
		return exec.CommandContext(t.Context(), "sh", "-c", script, "prerm", arg).Run()
	}
	for _, arg := range []string{"remove", "0", "upgrade", "1"} {
		if err := run(arg); err != nil {
			t.Errorf("%s where nobody has joined: %v", arg, err)
		}
	}
	if err := os.WriteFile(joined, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]bool{"remove": false, "0": false, "upgrade": true, "1": true} {
		if err := run(arg); (err == nil) != want {
			t.Errorf("%s of a hub that kubelet uses: %v", arg, err)
		}
	}

	// A removal that is refused ends in the same script, with abort-remove: the hub was not touched, and runs on.
	unit, told := filepath.Join(dir, "yurthub.service"), filepath.Join(dir, "told")
	script = strings.NewReplacer("/run/systemd/system", dir, "/etc/systemd/system/yurthub.service", unit).
		Replace(afterInstallation)
	script = "systemctl() { echo \"$@\" >" + told + "; }\n" + script
	for _, test := range []struct {
		arg, program string
		want         bool
	}{
		{"configure", "/usr/bin/yurthub", true}, {"1", "/usr/bin/yurthub", true}, {"2", "/usr/bin/yurthub", true},
		{"configure", "/usr/local/bin/yurthub", false},
		{"abort-remove", "/usr/bin/yurthub", false}, {"abort-upgrade", "/usr/bin/yurthub", false},
	} {
		if err := os.WriteFile(unit, []byte("[Service]\nExecStart="+test.program+" --config=x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(told)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "postinst", test.arg).CombinedOutput()
		said, _ := os.ReadFile(told)
		if want := "try-restart yurthub.service\n"; err != nil || (string(said) == want) != test.want {
			t.Errorf("%s of a package beside %s: %v: %s; systemctl is told %q", test.arg, test.program, err, out, said)
		}
	}
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

// TestRefused: without a key nothing is released, and what a build lacks is said before anything is in Out.
func TestRefused(t *testing.T) {
	out := filepath.Join(t.TempDir(), "release")
	r := Release{Root: smallModule(t), Out: out, Version: "v0.2.0", Platforms: platforms(t, "linux/amd64")}
	if err := r.Make(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "needs a key") {
		t.Errorf("without a key: %v", err)
	}
	r.Key, r.Packager = newKey(t), filepath.Join(t.TempDir(), "none")
	if err := r.Make(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "nfpm") {
		t.Errorf("without nfpm: %v", err)
	}
	r.Version = "latest"
	if err := r.Make(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "latest") {
		t.Errorf("of no version: %v", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}
