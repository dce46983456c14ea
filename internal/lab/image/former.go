package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"k8s.io/utils/clock"

	"yurtcoordinator/internal/lab/build/artifact"
	"yurtcoordinator/internal/oci"
)

// formerName is the file of the archive of a former release's programs in its set.
const formerName = "former.tar"

// FormerConfig says what the images of a former release's programs are made from, and where the archive is kept.
type FormerConfig struct {
	// CacheDir, Waiting and Clock are as in Config.
	CacheDir string
	Waiting  func(holder string)
	Clock    clock.WithTicker

	// Coordinator is its yurt-coordinator, a static program. The image gets this tag.
	Coordinator, Tag string
}

// EnsureFormer returns the archive of the images of a former release's programs, and makes it first if there is none.
func EnsureFormer(ctx context.Context, config FormerConfig) (Archive, error) {
	name := SystemRegistry + "/yurt-coordinator:" + config.Tag
	content, err := os.ReadFile(config.Coordinator)
	if err != nil {
		return Archive{}, fmt.Errorf("image %s: %w", name, err)
	}
	store := artifact.Store{Dir: config.CacheDir, Clock: config.Clock, Waiting: config.Waiting}
	e, err := store.Get(ctx, artifact.Spec{
		Name: "formerimages", Key: artifact.Key(recipe, runtime.GOARCH, name, string(content)), Files: []string{formerName},
		Build: func(_ context.Context, dir, _ string) error {
			program := oci.Program{
				Name: "yurt-coordinator", Content: content, Platform: platform(), Version: config.Tag, Uncompressed: true,
			}
			whole, err := program.Image()
			if err != nil {
				return err
			}
			return oci.WriteArchive(filepath.Join(dir, formerName), oci.Named{Name: name, Image: whole})
		},
	})
	if err != nil {
		return Archive{}, fmt.Errorf("image %s: %w", name, err)
	}
	if err := e.Close(); err != nil {
		return Archive{}, fmt.Errorf("image %s: %w", name, err)
	}
	return Archive{Path: e.Path(formerName), Images: []string{name}}, nil
}
