package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is an entry of a layer. Its mode says whether it is a directory, a link or a regular file.
type File struct {
	Path string
	// Content is a file's content, or a link's target.
	Content []byte
	Mode    fs.FileMode
}

// Dir returns a directory.
func Dir(path string, mode fs.FileMode) File { return File{Path: path, Mode: fs.ModeDir | mode} }

// Text returns a file that all may read.
func Text(path, content string) File { return File{Path: path, Content: []byte(content), Mode: 0o644} }

// Executable returns a file that all may run.
func Executable(path string, content []byte) File {
	return File{Path: path, Content: content, Mode: 0o755}
}

// Link returns a symbolic link.
func Link(path, to string) File {
	return File{Path: path, Content: []byte(to), Mode: fs.ModeSymlink | 0o777}
}

// Layer packs files and the directories that they need. It is not compressed, which suits a copy within one machine.
func Layer(files ...File) (v1.Layer, error) {
	packed, err := packLayer(files)
	if err != nil {
		return nil, err
	}
	return static.NewLayer(packed, types.OCIUncompressedLayer), nil
}

// CompressedLayer is Layer, compressed for registries.
func CompressedLayer(files ...File) (v1.Layer, error) {
	packed, err := packLayer(files)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
}

// Image puts layers together for a platform.
func Image(platform v1.Platform, config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		return nil, err
	}
	described, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	described = described.DeepCopy()
	described.OS, described.Architecture, described.Config = platform.OS, platform.Architecture, config
	return mutate.ConfigFile(image, described)
}

// packLayer packs files, in their order, and the directories that they need. It holds no times and no owners.
func packLayer(files []File) ([]byte, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	made := map[string]bool{".": true}
	for _, f := range files {
		name := strings.TrimPrefix(f.Path, "/")
		if !filepath.IsLocal(name) || made[name] {
			return nil, fmt.Errorf("layer: path %q is invalid or occurs twice", f.Path)
		}
		if err := parents(w, name, made); err != nil {
			return nil, fmt.Errorf("layer: %w", err)
		}
		made[name] = true
		if err := entry(w, name, f); err != nil {
			return nil, fmt.Errorf("layer: %s: %w", f.Path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	return packed.Bytes(), nil
}

func parents(w *tar.Writer, name string, made map[string]bool) error {
	dir := filepath.Dir(name)
	if made[dir] {
		return nil
	}
	if err := parents(w, dir, made); err != nil {
		return err
	}
	made[dir] = true
	return entry(w, dir, Dir(dir, 0o755))
}

func entry(w *tar.Writer, name string, f File) error {
	h := &tar.Header{Name: name, Mode: int64(f.Mode.Perm()), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	switch {
	case f.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if f.Mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
	case f.Mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(f.Content)
	default:
		h.Typeflag, h.Size = tar.TypeReg, int64(len(f.Content))
	}
	if err := w.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	_, err := w.Write(f.Content)
	return err
}
