package main

import (
	"context"
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
	made "yurtcoordinator/internal/release"
	"yurtcoordinator/internal/version"
)

// tags are those of every build of ours.
const tags = "grpcnotrace"

// Names of programs.
const (
	coordinator = "yurt-coordinator"
	controller  = "coordinator-controller"
)

// nowhere is the registry in images' names while nobody has said where they go.
const nowhere = "registry.example.org"

// module is the path of ours.
const module = "yurtcoordinator"

// programs are those that are released as images.
var programs = []struct{ name, title string }{
	{"yurthub", "The API endpoint of a node's own programs"},
	{coordinator, "A pool's meeting place: kube-apiserver and etcd in one process, in memory"},
	{controller, "The cloud side of node pools"},
}

type release struct {
	// root is the directory of our module.
	root, out, registry, version, revision string
	// kubernetes is the version in the module's go.mod, which make finds.
	kubernetes string

	// push the images to registry.
	push bool

	// digests are those of the images that are made, by program.
	digests map[string]string

	created   time.Time
	platforms []v1.Platform
	// only are the names of programs; none: all.
	only []string
}

func (r *release) parsePlatforms(list string) error {
	for text := range strings.SplitSeq(list, ",") {
		p, err := v1.ParsePlatform(text)
		if err != nil {
			return err
		}
		if p.OS == "" || p.Architecture == "" {
			return fmt.Errorf("%q: want OS/ARCHITECTURE", text)
		}
		r.platforms = append(r.platforms, *p)
	}
	return nil
}

// make builds everything beside out, and puts it in its place when all of it is there.
func (r *release) make(ctx context.Context, out io.Writer) (err error) {
	for _, name := range r.only {
		if !slices.ContainsFunc(programs, func(p struct{ name, title string }) bool { return p.name == name }) {
			return fmt.Errorf("no program %q", name)
		}
	}
	if r.kubernetes, err = r.requiredKubernetes(ctx); err != nil {
		return err
	}
	if r.version == "" {
		r.version = version.Development(r.revision, false)
	}
	if _, err := utilversion.ParseSemantic(r.version); err != nil || !strings.HasPrefix(r.version, "v") {
		return fmt.Errorf("--version %q: want one such as %s", r.version, version.Next)
	}
	if err := os.MkdirAll(filepath.Dir(r.out), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(r.out), ".images-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	for _, p := range programs {
		if !r.wanted(p.name) {
			continue
		}
		if err := r.program(ctx, out, work, p.name, p.title, slices.Concat(build.VersionFlags(r.kubernetes),
			build.ReleaseFlags(module, r.version, r.revision))); err != nil {
			return err
		}
	}
	if err := r.chart(work); err != nil {
		return err
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.Rename(work, r.out); err != nil || !r.push {
		return err
	}
	return r.pushAll(ctx, out)
}

// wanted says whether a program is to be made.
func (r *release) wanted(name string) bool { return len(r.only) == 0 || slices.Contains(r.only, name) }

// crane pushes layouts. As a program of its own, since what it brings to read Docker's credentials is more than all that
// our programs need otherwise.
const crane = "github.com/google/go-containerregistry/cmd/crane@v0.22.1"

func (r *release) pushAll(ctx context.Context, out io.Writer) error {
	dir, err := filepath.Abs(r.out)
	if err != nil {
		return err
	}
	for _, p := range programs {
		if !r.wanted(p.name) {
			continue
		}
		cmd := exec.CommandContext(ctx, "go", "run", crane, "push", filepath.Join(dir, p.name), r.called(p.name))
		cmd.Dir = string(filepath.Separator) // not our module
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("push %s: %w", r.called(p.name), err)
		}
	}
	return nil
}

// called is the name of a program's image.
func (r *release) called(name string) string { return r.registry + "/" + name + ":" + r.tag(name) }

// tag is that of a program's image.
func (r *release) tag(name string) string {
	if name == coordinator {
		return version.CoordinatorTag(r.version, r.kubernetes)
	}
	return r.version
}

// chart packs the chart that runs these images, by their digests, if there are all that it runs.
func (r *release) chart(work string) error {
	if r.digests[controller] == "" || r.digests[coordinator] == "" {
		return nil
	}
	registry := r.registry
	if registry == nowhere {
		registry = "" // who installs it says it
	}
	packed, err := made.Chart{
		Dir: filepath.Join(r.root, "deploy", "charts", "yurt-coordinator"), Version: r.version, Registry: registry,
		Digests: map[string]string{
			controller + ":" + r.tag(controller):   r.digests[controller],
			coordinator + ":" + r.tag(coordinator): r.digests[coordinator],
		},
	}.Pack()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(work, made.ChartFile(r.version)), packed, 0o644)
}

// program makes the images of one program, and writes them below work.
func (r *release) program(ctx context.Context, out io.Writer, work, name, title string, ldflags []string) error {
	source := oci.Source{Dir: r.root, Package: "./cmd/" + name, Tags: tags, LDFlags: ldflags}
	var images []v1.Image
	for _, platform := range r.platforms {
		start := time.Now()
		content, err := source.Compile(ctx, platform)
		if err != nil {
			return err
		}
		sbom, err := oci.SBOM(name, r.version, content)
		if err != nil {
			return err
		}
		file := fmt.Sprintf("%s-%s-%s.cdx.json", name, platform.OS, platform.Architecture)
		if err := os.WriteFile(filepath.Join(work, file), sbom, 0o644); err != nil {
			return err
		}
		image, err := oci.Program{
			Name: name, Title: title, Content: content, SBOM: sbom, Platform: platform,
			Version: r.version, Revision: r.revision, Created: r.created,
		}.Image()
		if err != nil {
			return err
		}
		images = append(images, image)
		if err := describe(out, name, platform, image, len(content), time.Since(start)); err != nil {
			return err
		}
	}
	index, err := oci.Index(images...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	dir := filepath.Join(work, name)
	if err := oci.WriteLayout(dir, oci.Named{Name: r.called(name), Index: index}); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if r.digests == nil {
		r.digests = map[string]string{}
	}
	r.digests[name] = digest.String()
	fmt.Fprintf(out, "%s@%s\n", r.called(name), digest)
	return oci.PackLayout(dir+".tar", dir)
}

func describe(out io.Writer, name string, platform v1.Platform, image v1.Image, program int, took time.Duration) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	var size int64
	for _, l := range layers {
		n, err := l.Size()
		if err != nil {
			return err
		}
		size += n
	}
	const mb = 1e6
	_, err = fmt.Fprintf(out, "%s %s/%s: program %.1f MB, image %.1f MB, made in %s\n", name, platform.OS,
		platform.Architecture, float64(program)/mb, float64(size)/mb, took.Round(time.Second))
	return err
}

// requiredKubernetes is the version in go.mod.
func (r *release) requiredKubernetes(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	cmd.Dir = r.root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("the version of Kubernetes in go.mod: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
