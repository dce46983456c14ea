package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/internal/version"
	"yurtcoordinator/lab/e2e/kit"
)

// The commands for a release on people's own machines: people make a release, verify it, and krew installs the plugin. Or they
// build images without a release, and push them.
var (
	makeRelease = kit.Reading{
		Page: "docs/releases.md", Only: []string{"RELEASE_KEY="},
		Notes: []kit.Note{{Within: time.Hour, Prints: "charts/yurt-coordinator"}},
	}
	verifyRelease = kit.Reading{
		Page: "docs/releases.md", Only: []string{"base64", "openssl", "sha256sum", "cosign"},
		Notes: []kit.Note{
			{Begins: "openssl", Prints: "^Verified OK\n$"},
			{Begins: "sha256sum", Prints: `(?m)^yurthub-v.*\.deb: OK$`, Within: 5 * time.Minute},
			{Begins: "cosign verify-blob", Prints: "Verified OK", Within: 5 * time.Minute},
			{Begins: "cosign verify ", Prints: "verified against the specified public key", Within: 5 * time.Minute},
		},
	}
	krewInstalls = kit.Reading{
		Page: "docs/releases.md", Only: []string{"kubectl krew"}, Notes: []kit.Note{{Within: 5 * time.Minute}},
	}
	imagesOwn = kit.Reading{Page: "docs/install.md", Only: []string{"make "}, Notes: []kit.Note{{Within: time.Hour}}}
	pushOwn   = kit.Reading{Page: "README.md", Only: []string{"make push"}, Notes: []kit.Note{{Within: time.Hour}}}
)

// supply is what people do with a release before any of it runs. All of that happens on the machine that hosts the lab, and
// does not use the lab's network.
type supply struct {
	*kit.T
	source   string // a clone of our repository, at the release's tag
	dir      string // the files of the releases' page
	version  string
	host     string // HOST:PORT of the registry
	page     string // URL of the releases' page
	programs string // directory with the programs that people have
	krew     string // krew's own directory
	store    string // the registry's directory
}

// Paths in the registry: of the release, and of what somebody else has built from the same source.
const (
	released = "/edge"
	own      = "/own"
)

// newSupply starts a registry and a page of releases, and clones our repository.
func newSupply(t *kit.T, dir string) *supply {
	source := filepath.Join(dir, "source")
	s := &supply{
		T: t, source: source, dir: filepath.Join(source, "dist", "release"), version: version.Next,
		programs: filepath.Join(dir, "bin"), krew: filepath.Join(dir, "krew"), store: filepath.Join(dir, "registry"),
	}
	bins, err := t.Lab.Programs()
	t.Must(err)
	for _, d := range []string{s.programs, s.store} {
		t.Must(os.MkdirAll(d, 0o755))
	}
	for name, path := range map[string]string{
		"cosign": bins.Cosign, "kubectl": bins.Kubectl, "kubectl-krew": bins.Krew, "helm": bins.Helm,
	} {
		t.Must(os.Symlink(path, filepath.Join(s.programs, name)))
	}
	s.host = s.serveImages(exec.CommandContext(t.Ctx, bins.Registry), "127.0.0.1:0")
	s.page = s.servePage()
	s.in(dir, t.CloneTo(source, s.version))
	return s
}

// reader returns a reader with a shell in a directory of the lab's machine. registry replaces the page's registry.
func (s *supply) reader(dir, registry string) *kit.Reader {
	return &kit.Reader{
		T: s.T, Dir: dir, Tools: s.programs,
		Enter: kit.OnHost,
		Words: []string{
			"registry.example/edge", registry, "cat key.pem", "openssl ecparam -genkey -name prime256v1 -noout",
			"https://example.org/releases", s.page,
		},
		Environ: map[string]string{
			"PATH": s.programs + ":" + s.krew + "/bin:" + os.Getenv("PATH"), "KREW_ROOT": s.krew, "KREW_NO_UPGRADE_CHECK": "1",
			"REGISTRY": s.host + released, "VERSION": s.version,
			"VULN": "skip", "ARCHITECTURES": goruntime.GOARCH,
			"MAKEFLAGS": "", "MAKELEVEL": "", // this is no part of another make
		},
	}
}

// in runs a script in a directory, and returns what it prints.
func (s *supply) in(dir, script string) string { return s.reader(dir, s.host+released).Run(script) }

var listensOn = regexp.MustCompile(`listening on ([0-9.]+:[0-9]+)`)

// serveImages runs the registry until the scenario ends: program is its command without arguments. It returns where it listens.
func (s *supply) serveImages(program *exec.Cmd, listen string) string {
	config := filepath.Join(s.programs, "registry-"+strings.ReplaceAll(listen, ":", "-")+".yaml")
	s.Must(os.WriteFile(config, fmt.Appendf(nil, `version: 0.1
log: {level: info}
storage: {filesystem: {rootdirectory: %q}, maintenance: {uploadpurging: {enabled: false}}}
http: {addr: %q}
`, s.store, listen), 0o600))
	log, err := os.Create(config + ".log")
	s.Must(err)
	program.Args = append(program.Args, "serve", config)
	program.Env = append(program.Environ(), "OTEL_TRACES_EXPORTER=none")
	program.Stdout, program.Stderr = log, log
	s.Must(program.Start())
	s.Background.Go(func() { _ = errors.Join(program.Wait(), log.Close()) }) // the scenario's end kills it
	at := ""
	s.Eventually(30*time.Second, "the registry serves", func() error {
		said, err := os.ReadFile(log.Name())
		found := listensOn.FindSubmatch(said)
		if err != nil || found == nil {
			return fmt.Errorf("it says %s (%w)", said, err)
		}
		at = string(found[1])
		return nil
	})
	return at
}

// servePage serves the releases' page.
func (s *supply) servePage() string {
	listener, err := (&net.ListenConfig{}).Listen(s.Ctx, "tcp", "127.0.0.1:0")
	s.Must(err)
	server := &http.Server{
		Handler:           http.StripPrefix("/"+s.version, http.FileServer(http.Dir(s.dir))),
		ReadHeaderTimeout: time.Minute,
	}
	s.Background.Go(func() {
		context.AfterFunc(s.Ctx, func() { _ = server.Close() })
		_ = server.Serve(listener) // ends with the scenario
	})
	return "http://" + listener.Addr().String()
}

// make makes the release as a maintainer does, for this machine alone, and pushes it.
func (s *supply) make() {
	start := time.Now()
	s.reader(s.source, s.host+released).Read(makeRelease)
	s.Figure("release_make_s", time.Since(start).Seconds())
}

// verify runs what the page says about verifying a release.
func (s *supply) verify() { s.reader(s.dir, s.host+released).Read(verifyRelease) }

// digests are what the release's list has.
func (s *supply) digests() map[string]string {
	content, err := os.ReadFile(filepath.Join(s.dir, "SHA256SUMS"))
	s.Must(err)
	all := map[string]string{}
	for line := range strings.Lines(string(content)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		all[name] = sum
	}
	return all
}

// refuses expects that a command fails, and says why.
func (s *supply) refuses(what, script, want string) {
	// A shell that ends well says how the command has ended.
	said := s.in(s.dir, "{ "+script+"\n} 2>&1 && echo 'exit status 0' || echo exit status $?")
	if strings.Contains(said, "exit status 0") || !strings.Contains(said, want) {
		s.Fail("%s: %s: %s; want %q", what, script, said, want)
	}
	for line := range strings.Lines(said) {
		if strings.Contains(line, want) {
			s.Say("%s is refused: %.300s", what, strings.TrimSpace(line))
			break
		}
	}
}

// forged expects that nothing verifies that the key has not signed.
func (s *supply) forged() {
	s.in(s.dir, "openssl ecparam -genkey -name prime256v1 -noout | openssl ec -pubout -out ../other.pub")
	s.in(s.dir, `{ cat SHA256SUMS; echo "$(head -c 64 SHA256SUMS)  more"; } >../changed`)
	const withOpenssl = "openssl dgst -sha256 -verify %s -signature SHA256SUMS.bin %s"
	for form, want := range map[string]string{
		"cosign verify-blob --insecure-ignore-tlog --bundle SHA256SUMS.sigstore.json --key %s %s": "invalid signature",
		"cosign verify-blob --insecure-ignore-tlog --signature SHA256SUMS.sig --key %s %s":        "invalid signature",
		withOpenssl: "Verification failure",
	} {
		s.in(s.dir, fmt.Sprintf(form, "release.pub", "SHA256SUMS"))
		s.refuses("a changed list", fmt.Sprintf(form, "release.pub", "../changed"), want)
		s.refuses("a list by another key", fmt.Sprintf(form, "../other.pub", "SHA256SUMS"), want)
	}
	s.in(s.dir, "mkdir ../damaged; for f in yurthub-*.deb; do { cat $f; echo; } >../damaged/$f; done")
	s.refuses("a damaged file", "cd ../damaged; sha256sum --check --ignore-missing ../release/SHA256SUMS", "deb: FAILED")

	for _, of := range []struct{ name, tag string }{
		{"yurthub", s.version}, {"charts/yurt-coordinator", strings.TrimPrefix(s.version, "v")},
	} {
		const verify = `cosign verify --insecure-ignore-tlog --key %s %s "$REGISTRY/%s:%s"`
		s.refuses(of.name+" by another key", fmt.Sprintf(verify, "../other.pub", "", of.name, of.tag), "invalid signature")
		s.refuses(of.name+" of another tag", fmt.Sprintf(verify, "release.pub", "--annotations tag=v0.0.1", of.name, of.tag),
			"annotation")
		changed := fmt.Sprintf(verify, "release.pub", "", of.name, "changed")
		genuine := s.manifest(of.name, of.tag)
		content := s.changed(genuine)
		s.putManifest(of.name, "changed", content)
		s.refuses(of.name+", unsigned", changed, "no signatures found")
		s.putManifest(of.name, signatureTag(content), s.manifest(of.name, signatureTag(genuine)))
		s.refuses(of.name+", changed, with the genuine one's signature", changed, "digest")
	}
}

// changed returns a manifest in which something has been changed.
func (s *supply) changed(manifest []byte) []byte {
	var fields map[string]any
	s.Must(json.Unmarshal(manifest, &fields))
	fields["annotations"] = map[string]string{"changed": "by somebody"}
	content, err := json.Marshal(fields)
	s.Must(err)
	return content
}

func sum(content []byte) string {
	of := sha256.Sum256(content)
	return hex.EncodeToString(of[:])
}

// signatureTag is where cosign looks for the signature of a manifest.
func signatureTag(manifest []byte) string { return "sha256-" + sum(manifest) + ".sig" }

// manifest gets a manifest of the release from the registry.
func (s *supply) manifest(name, reference string) []byte {
	return s.registry(http.MethodGet, released+"/"+name, reference, nil)
}

// putManifest puts one there, beside the release's.
func (s *supply) putManifest(name, reference string, content []byte) {
	s.registry(http.MethodPut, released+"/"+name, reference, content)
}

// registry gets a manifest from the registry, or puts one there.
func (s *supply) registry(method, repository, reference string, content []byte) []byte {
	url := "http://" + s.host + "/v2" + repository + "/manifests/" + reference
	request, err := http.NewRequestWithContext(s.Ctx, method, url, strings.NewReader(string(content)))
	s.Must(err)
	if content != nil {
		var about struct{ MediaType string }
		s.Must(json.Unmarshal(content, &about))
		request.Header.Set("Content-Type", about.MediaType)
	}
	request.Header["Accept"] = []string{
		"application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json",
	}
	response, err := http.DefaultClient.Do(request)
	s.Must(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode/100 != 2 {
		s.Fail("%s %s: %s: %s (%w)", method, url, response.Status, body, err)
	}
	return body
}

// krewInstalls installs the plugin with krew as the page says, and expects krew to refuse an archive that differs from the
// manifest.
func (s *supply) krewInstalls() {
	s.reader(s.dir, s.host+released).Read(krewInstalls)
	if said := s.in(s.dir, "kubectl yurt --version"); !strings.Contains(said, s.version+" ") {
		s.Fail("krew has installed %s, want %s", said, s.version)
	}
	s.in(s.dir, `sed '/sha256:/s/[0-9a-f]\{64\}/`+strings.Repeat("f", 64)+`/' krew-yurt.yaml >../changed.yaml`)
	s.refuses("an archive that is not as the manifest says", // elsewhere, where it is not installed
		"KREW_ROOT=$KREW_ROOT-changed kubectl krew install --manifest=../changed.yaml", "checksum does not match")
}

var (
	controllerImage   = regexp.MustCompile(`image: "?([^" ]*/coordinator-controller:[^@]*)@sha256:([0-9a-f]{64})`)
	coordinatorDigest = regexp.MustCompile(`--coordinator-image-digests=(v[^=]*)=sha256:([0-9a-f]{64})`)
)

// pushOwn builds and pushes images without a release, as docs/install.md and the README say. It expects that the packed chart
// names the images in the registry.
func (s *supply) pushOwn() {
	start := time.Now()
	reader := s.reader(s.source, s.host+own)
	reader.Read(imagesOwn)
	reader.Read(pushOwn)
	rendered := reader.Run("helm template yurt-coordinator dist/images/yurt-coordinator-*.tgz --namespace kube-system")
	controller, digest := controllerImage.FindStringSubmatch(rendered), coordinatorDigest.FindStringSubmatch(rendered)
	if controller == nil || digest == nil || controller[1] != s.host+own+"/coordinator-controller:"+s.version {
		s.Fail("the chart has the images %q and %q", controller, digest)
	}
	for name, want := range map[string]string{
		"coordinator-controller:" + s.version: controller[2], "yurt-coordinator:" + digest[1]: digest[2],
	} {
		name, tag, _ := strings.Cut(name, ":")
		if has := sum(s.registry(http.MethodGet, own+"/"+name, tag, nil)); has != want {
			s.Fail("the chart has %s:%s with the digest %s, the registry %s", name, tag, want, has)
		}
	}
	s.Figure("release_push_own_s", time.Since(start).Seconds())
	if theirs := sum(s.registry(http.MethodGet, own+"/yurthub", s.version, nil)); theirs == s.digests()["yurthub:"+s.version] {
		s.Fail("the hub's image without a signed list is the release's: %v", slices.Sorted(maps.Keys(s.digests())))
	}
}
