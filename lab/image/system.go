package image

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"k8s.io/utils/clock"

	"yurtcoordinator/internal/oci"
	"yurtcoordinator/internal/version"
	"yurtcoordinator/lab/build/artifact"
)

// Names of our own programs' images in an installed lab, which are REGISTRY/PROGRAM:TAG. A coordinator's tag also has the
// version of the Kubernetes that it is made from, as in a release.
const (
	SystemRegistry = "registry.local"
	SystemTag      = "v0.0.0-lab"
)

// systemName is the file of the archive of our own programs in its set.
const systemName = "system.tar"

// SystemConfig says what the images of our own programs are made from, and where the archive is kept.
type SystemConfig struct {
	// CacheDir, Waiting and Clock are as in Config.
	CacheDir string
	Waiting  func(holder string)
	Clock    clock.WithTicker

	// Programs are static programs. An image has the name of its program's file.
	Programs []string
	// Kubernetes is the version that the programs are made from.
	Kubernetes string
	// Tag is the tag of the images; empty means SystemTag.
	Tag string
}

// EnsureSystem returns the archive of our own programs' images, and makes it first if none has these yet.
func EnsureSystem(ctx context.Context, config SystemConfig) (Archive, error) {
	var names []string
	contents := map[string][]byte{}
	config.Tag = cmp.Or(config.Tag, SystemTag)
	key := []string{recipe, runtime.GOARCH, config.Tag, config.Kubernetes}
	for _, path := range config.Programs {
		content, err := os.ReadFile(path)
		if err != nil {
			return Archive{}, fmt.Errorf("system image: %w", err)
		}
		name := filepath.Base(path)
		names, contents[name] = append(names, name), content
		key = append(key, name, string(content))
	}
	store := artifact.Store{Dir: config.CacheDir, Clock: config.Clock, Waiting: config.Waiting}
	e, err := store.Get(ctx, artifact.Spec{
		Name: "system", Key: artifact.Key(key...), Files: []string{systemName},
		Build: func(_ context.Context, dir, _ string) error {
			images, err := composeSystem(names, contents, config.Tag, config.Kubernetes)
			if err != nil {
				return err
			}
			return oci.WriteArchive(filepath.Join(dir, systemName), images...)
		},
	})
	if err != nil {
		return Archive{}, fmt.Errorf("system images: %w", err)
	}
	if err := e.Close(); err != nil {
		return Archive{}, fmt.Errorf("system images: %w", err)
	}
	a := Archive{Path: e.Path(systemName)}
	for _, name := range names {
		a.Images = append(a.Images, systemImage(name, config.Tag, config.Kubernetes))
	}
	return a, nil
}

func systemImage(program, tag, kubernetes string) string {
	if program == "yurt-coordinator" {
		tag = version.CoordinatorTag(tag, kubernetes)
	}
	return SystemRegistry + "/" + program + ":" + tag
}

// composeSystem makes an image of each program, as a release does.
func composeSystem(names []string, contents map[string][]byte, tag, kubernetes string) ([]oci.Named, error) {
	var images []oci.Named
	for _, name := range names {
		program := oci.Program{
			Name: name, Content: contents[name], Platform: platform(), Version: tag, Uncompressed: true,
		}
		image, err := program.Image()
		if err != nil {
			return nil, err
		}
		images = append(images, oci.Named{Name: systemImage(name, tag, kubernetes), Content: image})
	}
	return images, nil
}
