package release

import (
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"yurtcoordinator/internal/version"
)

// Names of programs.
const (
	hub         = "yurthub"
	plugin      = "kubectl-yurt"
	coordinator = "yurt-coordinator"
	controller  = "coordinator-controller"
)

// Nowhere is the registry in images' names while nobody has said where they go.
const Nowhere = "registry.example.org"

// layoutsDir is a subdirectory of a release, with everything to push to a registry. NamesFile is a file in layoutsDir with a line
// for each thing to push: its directory in layoutsDir, and its name in the registry. The lines are in the order of the pushes.
// Signatures come first, so that nothing is ever in the registry without its signature.
const (
	layoutsDir = "layouts"
	NamesFile  = "names"
)

// Release says what to make. All but Files, Revision, Created, Builder, Source and Key is required.
type Release struct {
	// Chart is the directory of the chart's source.
	Chart string
	// Programs is the directory that has the programs, as OS/ARCHITECTURE/NAME, and for each the list of its modules, as
	// NAME.cdx.json. All platforms in it are released.
	Programs string
	// Files are further files for the release's page.
	Files []string
	// Out is made, or replaced.
	Out string
	// Registry is where the images go: REGISTRY/PROGRAM:TAG.
	Registry string
	// Version is the release's version. Kubernetes is the version of Kubernetes that coordinators are made from. Revision is the
	// release's commit, and Created that commit's time.
	Version, Kubernetes, Revision string
	Created                       time.Time
	// Builder is what has built the programs, and Source where that got the commit; both are URIs. A signed release says them.
	Builder, Source string
	// Key signs. Without it there are only images, of those programs that there are, and the chart that runs them.
	Key *ecdsa.PrivateKey

	platforms []v1.Platform
	digests   map[string]string // of what a registry gets, by repository
	// sums and signature are the list of the bare programs, and its signature; empty where nobody signs.
	sums, signature []byte
}

// prepare checks what is asked for, and finds out the rest.
func (r *Release) prepare() error {
	if _, err := utilversion.ParseSemantic(r.Version); err != nil || !strings.HasPrefix(r.Version, "v") {
		return fmt.Errorf("version %q: want one such as %s", r.Version, version.Next)
	}
	r.digests, r.platforms = map[string]string{}, nil
	dirs, err := filepath.Glob(filepath.Join(r.Programs, "*", "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		r.platforms = append(r.platforms, v1.Platform{OS: filepath.Base(filepath.Dir(dir)), Architecture: filepath.Base(dir)})
	}
	if len(dirs) == 0 {
		return fmt.Errorf("%s has no programs", r.Programs)
	}
	return nil
}

// program is the path of a program for a platform.
func (r *Release) program(name string, platform v1.Platform) string {
	return filepath.Join(r.Programs, platform.OS, platform.Architecture, name)
}

// Make makes the release in a directory beside Out, and puts it in Out's place when all of it is there.
func (r *Release) Make(out io.Writer) (err error) {
	if err := r.prepare(); err != nil {
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
	if err := errors.Join(os.Chmod(work, 0o755), os.Mkdir(filepath.Join(work, layoutsDir), 0o755)); err != nil {
		return err
	}
	steps := []func(out io.Writer, work string) error{r.images, r.chart}
	if r.Key != nil {
		steps = []func(out io.Writer, work string) error{r.files, r.images, r.chart, r.signImages, r.sign}
	}
	for _, step := range steps {
		if err := step(out, work); err != nil {
			return err
		}
	}
	if err := r.writeNames(work); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(r.Out), os.Rename(work, r.Out))
}

func copyTo(to, from string, mode os.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, mode)
}
