package release

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"yurtcoordinator/internal/oci"
)

// blob is a content, and how a manifest describes it.
type blob struct {
	content    []byte
	descriptor v1.Descriptor
}

func newBlob(kind types.MediaType, content []byte) blob {
	hash := v1.Hash{Algorithm: "sha256", Hex: sumOf(content)}
	return blob{content, v1.Descriptor{MediaType: kind, Size: int64(len(content)), Digest: hash}}
}

// writeArtifact writes what a registry gets that is no image, as a layout, and returns its digest.
func writeArtifact(dir, name string, config, content blob) (digest string, err error) {
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config.descriptor,
		Layers: []v1.Descriptor{content.descriptor},
	})
	if err != nil {
		return "", err
	}
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	all := newBlob(types.OCIManifestSchema1, manifest)
	for _, b := range []blob{config, content, all} {
		if err := l.WriteBlob(b.descriptor.Digest, io.NopCloser(bytes.NewReader(b.content))); err != nil {
			return "", err
		}
	}
	all.descriptor.Annotations = oci.NameAnnotations(name)
	return all.descriptor.Digest.String(), l.AppendDescriptor(all.descriptor)
}

// repositories are those below the registry that something was made for.
func (r *Release) repositories() []string { return slices.Sorted(maps.Keys(r.digests)) }

// layoutDir is the directory of what a repository gets.
func (r *Release) layoutDir(root, name string) string {
	return filepath.Join(root, layoutsDir, layoutName(name))
}

func layoutName(name string) string { return strings.ReplaceAll(name, "/", "-") }

// writeNames writes NamesFile.
func (r *Release) writeNames(work string) error {
	var signatures, all string
	for _, name := range r.repositories() {
		if r.Key != nil {
			signatures += layoutName(name) + signatureSuffix + " " + r.signatureName(name) + "\n"
		}
		all += layoutName(name) + " " + r.called(name) + "\n"
	}
	return os.WriteFile(filepath.Join(work, layoutsDir, NamesFile), []byte(signatures+all), 0o644)
}
