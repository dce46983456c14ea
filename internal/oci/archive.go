package oci

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Named is an image of one platform, or an index of several, with its name: REPOSITORY:TAG.
type Named struct {
	Name string
	// Content is a v1.Image or a v1.ImageIndex.
	Content mutate.Appendable
}

// Index joins the images of several platforms.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range images {
		platform, err := platformOf(i)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: i, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return index, nil
}

func platformOf(image v1.Image) (*v1.Platform, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	return &v1.Platform{OS: config.OS, Architecture: config.Architecture}, nil
}

// NameAnnotations are those by which a layout's index says what something in it is called.
func NameAnnotations(name string) map[string]string {
	return map[string]string{
		"io.containerd.image.name":          name,
		"org.opencontainers.image.ref.name": name[strings.LastIndex(name, ":")+1:],
	}
}

// WriteLayout writes images as an OCI layout, in a directory that is new.
func WriteLayout(dir string, images ...Named) error {
	all := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, n := range images {
		descriptor := v1.Descriptor{Annotations: NameAnnotations(n.Name)}
		if image, ok := n.Content.(v1.Image); ok {
			var err error
			if descriptor.Platform, err = platformOf(image); err != nil {
				return fmt.Errorf("layout: %s: %w", n.Name, err)
			}
		}
		all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: n.Content, Descriptor: descriptor})
	}
	if _, err := layout.Write(dir, all); err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	return nil
}

// WriteArchive writes images as an OCI layout in a tar file that must not exist.
func WriteArchive(path string, images ...Named) (err error) {
	temporary, err := os.MkdirTemp(filepath.Dir(path), "layout-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	if err := WriteLayout(temporary, images...); err != nil {
		return err
	}
	return PackLayout(path, temporary)
}

// PackLayout packs a layout's directory into a tar file that must not exist.
func PackLayout(path, dir string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(packDir(f, dir), f.Close())
}

// packDir writes the files below dir, sorted by name.
func packDir(to io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	w := tar.NewWriter(to)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		return entry(w, name, File{Content: content, Mode: 0o644})
	})
	return errors.Join(err, w.Close())
}
