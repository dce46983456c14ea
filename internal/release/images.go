package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yurtcoordinator/internal/oci"
	"yurtcoordinator/internal/signed"
	"yurtcoordinator/internal/version"
)

// imagePrograms are those that are released as images.
var imagePrograms = []struct{ name, title string }{
	{hub, "The API endpoint of a node's own programs"},
	{coordinator, "A pool's meeting place: kube-apiserver and etcd in one process, in memory"},
	{controller, "The cloud side of node pools"},
}

// layoutsDir is where a release has what a registry gets.
const layoutsDir = "layouts"

// inImage is where the hub's image has the signed list of programs, by which a node decides whether it takes them.
const inImage = "/usr/share/release/"

// Images makes the images alone, and the chart that runs them: each image as a directory and as a file, in Out.
func (r *Release) Images(ctx context.Context, out io.Writer) error {
	for _, name := range r.Only {
		if !slices.ContainsFunc(imagePrograms, func(p struct{ name, title string }) bool { return p.name == name }) {
			return fmt.Errorf("no program %q", name)
		}
	}
	return r.inPlace(ctx, func(work string) error {
		for _, p := range imagePrograms {
			if !r.wanted(p.name) {
				continue
			}
			if err := r.image(ctx, out, filepath.Join(work, p.name), p.name, p.title); err != nil {
				return err
			}
			if err := r.sboms(work, p.name); err != nil {
				return err
			}
			if err := oci.PackLayout(filepath.Join(work, p.name+".tar"), filepath.Join(work, p.name)); err != nil {
				return err
			}
		}
		if r.digests[controller] == "" || r.digests[coordinator] == "" {
			return nil // the chart runs both
		}
		packed, err := r.chart().Pack()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(work, ChartFile(r.Version)), packed, 0o644)
	}, func() error {
		var all []pushed
		for _, p := range imagePrograms {
			if r.wanted(p.name) {
				all = append(all, pushed{filepath.Join(r.Out, p.name), r.called(p.name)})
			}
		}
		return push(ctx, out, all)
	})
}

// wanted says whether a program's image is to be made.
func (r *Release) wanted(name string) bool { return len(r.Only) == 0 || slices.Contains(r.Only, name) }

// images makes those of a release.
func (r *Release) images(ctx context.Context, out io.Writer, work string) error {
	if err := os.Mkdir(filepath.Join(work, layoutsDir), 0o755); err != nil {
		return err
	}
	for _, p := range imagePrograms {
		dir := filepath.Join(work, layoutsDir, p.name)
		if err := r.image(ctx, out, dir, p.name, p.title); err != nil {
			return err
		}
		if p.name != hub { // whose lists are beside the bare program
			if err := r.sboms(work, p.name); err != nil {
				return err
			}
		}
		if err := oci.PackLayout(filepath.Join(work, p.name+"-"+r.tag(p.name)+".oci.tar"), dir); err != nil {
			return err
		}
	}
	return nil
}

// sboms writes what is in a program, for each platform.
func (r *Release) sboms(work, name string) error {
	for _, platform := range r.Platforms {
		p := r.built[name+" "+platform.String()]
		file := fmt.Sprintf("%s-%s-%s.cdx.json", name, platform.OS, platform.Architecture)
		if err := os.WriteFile(filepath.Join(work, file), p.sbom, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// called is the name of a program's image, or of the chart.
func (r *Release) called(name string) string { return r.Registry + "/" + name + ":" + r.tag(name) }

// tag is that of a program's image, or of the chart.
func (r *Release) tag(name string) string {
	switch name {
	case coordinator:
		return version.CoordinatorTag(r.Version, r.kubernetes)
	case chartRepository:
		return strings.TrimPrefix(r.Version, "v")
	}
	return r.Version
}

// image makes the images of one program, as a layout in dir.
func (r *Release) image(ctx context.Context, out io.Writer, dir, name, title string) error {
	var images []v1.Image
	for _, platform := range r.Platforms {
		p, err := r.program(ctx, name, platform)
		if err != nil {
			return err
		}
		image := oci.Program{
			Name: name, Title: title, Content: p.content, SBOM: p.sbom, Platform: platform,
			Version: r.Version, Revision: r.Revision, Created: r.Created,
		}
		if name == hub && len(r.signature) > 0 {
			image.Beside = []oci.File{
				oci.Text(inImage+signed.SumsFile, string(r.sums)), oci.Text(inImage+signed.SignatureFile, string(r.signature)),
			}
		}
		made, err := image.Image()
		if err != nil {
			return err
		}
		images = append(images, made)
		if err := describe(out, name, platform, made, len(p.content)); err != nil {
			return err
		}
	}
	index, err := oci.Index(images...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	digest, err := index.Digest()
	if err := errors.Join(err, oci.WriteLayout(dir, oci.Named{Name: r.called(name), Index: index})); err != nil {
		return err
	}
	r.digests[name] = digest.String()
	fmt.Fprintf(out, "%s@%s\n", r.called(name), digest)
	return nil
}

func describe(out io.Writer, name string, platform v1.Platform, image v1.Image, program int) error {
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
	_, err = fmt.Fprintf(out, "%s %s/%s: program %.1f MB, image %.1f MB\n", name, platform.OS, platform.Architecture,
		float64(program)/mb, float64(size)/mb)
	return err
}

// chart says what the chart of these images is packed of.
func (r *Release) chart() Chart {
	registry := r.Registry
	if registry == Nowhere {
		registry = "" // who installs it says it
	}
	return Chart{
		Dir: filepath.Join(r.Root, "deploy", "charts", "yurt-coordinator"), Version: r.Version, Registry: registry,
		Digests: map[string]string{
			controller + ":" + r.tag(controller):   r.digests[controller],
			coordinator + ":" + r.tag(coordinator): r.digests[coordinator],
		},
	}
}
