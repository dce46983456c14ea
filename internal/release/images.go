package release

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

// inImage is where the hub's image has the signed list of programs, by which a node decides whether it takes them.
const inImage = "/usr/share/release/"

// images makes the images: each as a layout and as a file, with the lists of what is in them.
func (r *Release) images(out io.Writer, work string) error {
	for _, p := range imagePrograms {
		_, err := os.Stat(r.program(p.name, r.platforms[0]))
		if errors.Is(err, fs.ErrNotExist) && r.Key == nil {
			continue // a release has all
		}
		dir := r.layoutDir(work, p.name)
		if err := r.image(out, work, dir, p.name, p.title); err != nil {
			return fmt.Errorf("image of %s: %w", p.name, err)
		}
		if err := oci.PackLayout(filepath.Join(work, p.name+"-"+r.tag(p.name)+".oci.tar"), dir); err != nil {
			return err
		}
	}
	return nil
}

// image makes the images of one program for all platforms, as a layout in dir.
func (r *Release) image(out io.Writer, work, dir, name, title string) error {
	var images []v1.Image
	for _, platform := range r.platforms {
		content, err := os.ReadFile(r.program(name, platform))
		if err != nil {
			return err
		}
		sbom, err := os.ReadFile(r.program(name, platform) + ".cdx.json")
		if err != nil {
			return err
		}
		if name != hub || r.Key == nil { // a release has the hub's beside the bare program
			list := fmt.Sprintf("%s-%s-%s.cdx.json", name, platform.OS, platform.Architecture)
			if err := os.WriteFile(filepath.Join(work, list), sbom, 0o644); err != nil {
				return err
			}
		}
		program := oci.Program{
			Name: name, Title: title, Content: content, SBOM: sbom, Platform: platform,
			Version: r.Version, Revision: r.Revision, Created: r.Created,
		}
		if name == hub && r.Key != nil {
			program.Beside = []oci.File{
				oci.Text(inImage+signed.SumsFile, string(r.sums)), oci.Text(inImage+signed.SignatureFile, string(r.signature)),
			}
		}
		image, err := program.Image()
		if err != nil {
			return err
		}
		images = append(images, image)
	}
	index, err := oci.Index(images...)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	r.digests[name] = digest.String()
	fmt.Fprintf(out, "%s@%s\n", r.called(name), digest)
	return oci.WriteLayout(dir, oci.Named{Name: r.called(name), Content: index})
}

// called is the name of a program's image, or of the chart.
func (r *Release) called(name string) string { return r.Registry + "/" + name + ":" + r.tag(name) }

// tag is that of a program's image, or of the chart.
func (r *Release) tag(name string) string {
	switch name {
	case coordinator:
		return version.CoordinatorTag(r.Version, r.Kubernetes)
	case chartRepository:
		return strings.TrimPrefix(r.Version, "v")
	}
	return r.Version
}
