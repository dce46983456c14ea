package release

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"yurtcoordinator/internal/lab/build"
	"yurtcoordinator/internal/oci"
	"yurtcoordinator/internal/signed"
	"yurtcoordinator/internal/version"
)

// tags are those of every build of ours.
const tags = "grpcnotrace"

// author is who makes releases.
const author = "The maintainers of yurt-coordinator"

// module is the path of ours.
const module = "yurtcoordinator"

// Names of programs.
const (
	hub         = "yurthub"
	plugin      = "kubectl-yurt"
	coordinator = "yurt-coordinator"
	controller  = "coordinator-controller"
)

// Nowhere is the registry in images' names while nobody has said where they go.
const Nowhere = "registry.example.org"

// Release says what to make. Root, Out, Registry and Platforms are required.
type Release struct {
	// Root is the directory of our module. Out is made, or replaced.
	Root, Out string
	// Registry is where the images go: REGISTRY/PROGRAM:TAG. Push has them pushed there.
	Registry string
	Push     bool
	// Version is the release's; empty means the one that the source becomes. Revision is its commit, and Created the time of
	// that.
	Version, Revision string
	Created           time.Time
	Platforms         []v1.Platform
	// Only are the names of programs whose images are made; empty means all.
	Only []string
	// Key signs. Images by themselves may do without.
	Key *ecdsa.PrivateKey
	// Downloads is the URL below which people find the release's files.
	Downloads string
	// Packager is the program nfpm. Scanner is govulncheck; empty means that nobody looks for known vulnerabilities.
	// Vulnerabilities is the database that it asks, as vulns.Scan has it.
	Packager, Scanner, Vulnerabilities string

	kubernetes string // the version in the module's go.mod
	built      map[string]program
	digests    map[string]string // of images that are made, by program
	// sums and signature are the list of the bare programs, and its signature; empty where nobody signs.
	sums, signature []byte
}

// program is a program of ours for a platform.
type program struct{ content, sbom []byte }

// ParsePlatforms reads a list such as linux/amd64,linux/arm64.
func ParsePlatforms(list string) ([]v1.Platform, error) {
	var all []v1.Platform
	for text := range strings.SplitSeq(list, ",") {
		p, err := v1.ParsePlatform(text)
		if err != nil {
			return nil, err
		}
		if p.OS == "" || p.Architecture == "" {
			return nil, fmt.Errorf("%q: want OS/ARCHITECTURE", text)
		}
		all = append(all, *p)
	}
	return all, nil
}

// prepare checks what is asked for, and finds out the rest.
func (r *Release) prepare(ctx context.Context) (err error) {
	r.built, r.digests = map[string]program{}, map[string]string{}
	if r.kubernetes, err = r.requiredKubernetes(ctx); err != nil {
		return err
	}
	if r.Version == "" {
		r.Version = version.Development(r.Revision, false)
	}
	if _, err := utilversion.ParseSemantic(r.Version); err != nil || !strings.HasPrefix(r.Version, "v") {
		return fmt.Errorf("version %q: want one such as %s", r.Version, version.Next)
	}
	return nil
}

// requiredKubernetes is the version in go.mod.
func (r *Release) requiredKubernetes(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	cmd.Dir = r.Root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("the version of Kubernetes in go.mod: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// program builds one program for one platform, once.
func (r *Release) program(ctx context.Context, name string, platform v1.Platform) (program, error) {
	key := name + " " + platform.String()
	if p, there := r.built[key]; there {
		return p, nil
	}
	content, err := oci.Source{
		Dir: r.Root, Package: "./cmd/" + name, Tags: tags,
		LDFlags: slices.Concat(build.VersionFlags(r.kubernetes), build.ReleaseFlags(module, r.Version, r.Revision)),
	}.Compile(ctx, platform)
	if err != nil {
		return program{}, err
	}
	sbom, err := oci.SBOM(name, r.Version, content)
	if err != nil {
		return program{}, err
	}
	p := program{content, sbom}
	r.built[key] = p
	return p, nil
}

// Make makes a whole release: everything that its page has in Out, and below layouts what a registry gets.
func (r *Release) Make(ctx context.Context, out io.Writer) error {
	if r.Key == nil {
		return errors.New("a release is signed: it needs a key")
	}
	return r.inPlace(ctx, func(work string) error {
		for _, step := range []func(context.Context, io.Writer, string) error{
			r.programs, r.images, r.archives, r.packages, r.charts, r.imageSignatures, r.documents, r.vulnerabilities,
		} {
			if err := step(ctx, out, work); err != nil {
				return err
			}
		}
		return r.sign(work)
	}, func() error { return r.pushRelease(ctx, out) })
}

// inPlace makes something in a directory beside Out, puts it in Out's place when all of it is there, and pushes it if that is
// asked for.
func (r *Release) inPlace(ctx context.Context, fill func(work string) error, push func() error) (err error) {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.Out), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(r.Out), ".release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := fill(work); err != nil {
		return err
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(r.Out); err != nil {
		return err
	}
	if err := os.Rename(work, r.Out); err != nil || !r.Push {
		return err
	}
	return push()
}

// programs writes the bare programs that people and nodes run outside of images, and signs the list of them, which goes into the
// hub's image.
func (r *Release) programs(ctx context.Context, out io.Writer, work string) error {
	sums := signed.Sums{}
	for _, name := range []string{hub, plugin} {
		for _, platform := range r.Platforms {
			p, err := r.program(ctx, name, platform)
			if err != nil {
				return err
			}
			file := signed.ProgramName(name, r.Version, platform.OS+"/"+platform.Architecture)
			if err := os.WriteFile(filepath.Join(work, file), p.content, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(work, file+".cdx.json"), p.sbom, 0o644); err != nil {
				return err
			}
			sums[file] = sumOf(p.content)
			fmt.Fprintf(out, "%s: %.1f MB\n", file, float64(len(p.content))/mb)
		}
	}
	var err error
	r.sums = []byte(sums.String())
	r.signature, err = signed.Sign(r.Key, r.sums)
	return err
}

const mb = 1e6

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// documents are the files of the source that a release has as they are.
func (r *Release) documents(_ context.Context, _ io.Writer, work string) error {
	for _, name := range []string{"LICENSE", "CHANGELOG.md"} {
		content, err := os.ReadFile(filepath.Join(r.Root, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sign writes the list of all files and images, its signature, and the key by which that is verified.
func (r *Release) sign(work string) error {
	sums := signed.Sums{}
	entries, err := os.ReadDir(work)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() { // what a registry gets has signatures of its own
			continue
		}
		content, err := os.ReadFile(filepath.Join(work, e.Name()))
		if err != nil {
			return err
		}
		sums[e.Name()] = sumOf(content)
	}
	for _, p := range imagePrograms { // by which a node knows the image that it is to run
		sums[signed.ImageName(p.name, r.tag(p.name))] = strings.TrimPrefix(r.digests[p.name], "sha256:")
	}
	text := []byte(sums.String())
	signature, err := signed.Sign(r.Key, text)
	if err != nil {
		return err
	}
	public, err := signed.EncodeKey(&r.Key.PublicKey)
	if err != nil {
		return err
	}
	bundle, err := bundled(text, signature, public)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		signed.SumsFile: text, signed.SignatureFile: signature, BundleFile: bundle, KeyFile: public,
	} {
		if err := os.WriteFile(filepath.Join(work, name), content, 0o644); err != nil {
			return err
		}
	}
	keys, err := signed.ParseKeys(public)
	if err != nil {
		return err
	}
	back, err := keys.Open(text, signature)
	if err == nil && !bytes.Equal([]byte(back.String()), text) {
		err = errors.New("the list is not read as it was written")
	}
	return err
}

// KeyFile is the name of a release's public key.
const KeyFile = "release.pub"
