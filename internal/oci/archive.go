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
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Named is an image of one platform, or an index of several, with its name: REPOSITORY:TAG.
type Named struct {
	Name string
	// One of Image and Index is set; the other is nil.
	Image v1.Image
	Index v1.ImageIndex
}

// Index joins the images of several platforms.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range images {
		config, err := i.ConfigFile()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: i, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: config.OS, Architecture: config.Architecture}},
		})
	}
	return index, nil
}

// WriteLayout writes images as an OCI layout, in a directory that must not exist.
func WriteLayout(dir string, images ...Named) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	for _, i := range images {
		if err := add(l, i); err != nil {
			return fmt.Errorf("layout: %s: %w", i.Name, err)
		}
	}
	return nil
}

func add(l layout.Path, n Named) error {
	colon := strings.LastIndex(n.Name, ":")
	annotations := layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          n.Name,
		"org.opencontainers.image.ref.name": n.Name[colon+1:],
	})
	if n.Index != nil {
		digest, err := n.Index.Digest()
		if err != nil {
			return err
		}
		return l.ReplaceIndex(n.Index, match.Digests(digest), annotations)
	}
	config, err := n.Image.ConfigFile()
	if err != nil {
		return err
	}
	if config.OS == "" { // it is no image that runs
		return l.AppendImage(n.Image, annotations)
	}
	return l.AppendImage(n.Image, annotations,
		layout.WithPlatform(v1.Platform{OS: config.OS, Architecture: config.Architecture}))
}

// WriteArchive writes images as an OCI layout in a tar file that must not exist.
func WriteArchive(path string, images ...Named) (err error) {
	temporary, err := os.MkdirTemp(filepath.Dir(path), "layout-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	dir := filepath.Join(temporary, "layout")
	if err := WriteLayout(dir, images...); err != nil {
		return err
	}
	return PackLayout(path, dir)
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
