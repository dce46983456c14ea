package yurtlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/build"
	"yurtcoordinator/internal/lab/image"
)

// prepared is what a lab is started with.
type prepared struct {
	bins    build.Binaries
	images  []string
	kubelet lab.Kubelet
	// chart is the directory of ours, for an installed lab.
	chart string
}

// wanted is what is to be prepared.
type wanted struct {
	// kubelet is empty for real where containers can run, else hollow, said aloud.
	kubelet lab.Kubelet
	coreDNS bool
	helm    bool
	// kubectlOlder wants the kubectl of the minor version before ours.
	kubectlOlder bool
	race         bool
	// installed wants what an installed lab needs: Helm, and images of our own programs.
	installed bool
}

// prepare builds what is missing.
func prepare(ctx context.Context, out io.Writer, w wanted) (prepared, error) {
	p := prepared{kubelet: w.kubelet}
	if p.kubelet == "" {
		p.kubelet = lab.Real
		if why := lab.NoContainers(); why != "" {
			p.kubelet = lab.Hollow
			fmt.Fprintf(out, "containers can't run here (%s): using hollow kubelets, which only pretend to run Pods\n",
				why)
		}
	}
	root, cache, err := places()
	if err != nil {
		return p, err
	}
	containers := p.kubelet == lab.Real
	progress := newProgress(out)
	err = build.EnsurePackages(ctx, build.PackagesConfig{
		Real: containers, Unprivileged: os.Geteuid() != 0, Log: filepath.Join(cache, "packages.log"),
		Progress: progress.show,
	})
	if err != nil {
		return p, err
	}
	p.bins, err = build.Ensure(ctx, build.Config{
		ModuleRoot: root, CacheDir: cache, Real: containers, CoreDNS: w.coreDNS, Helm: w.helm || w.installed,
		KubectlOlder: w.kubectlOlder, Race: w.race, Progress: progress.show,
	})
	if err != nil {
		return p, err
	}
	if containers {
		archive, err := image.Ensure(ctx, image.Config{CacheDir: cache, Pause: p.bins.Pause, Busybox: build.Busybox()})
		if err != nil {
			return p, err
		}
		p.images = []string{archive.Path}
	}
	if !w.installed {
		return p, nil
	}
	p.chart = filepath.Join(root, "deploy", "charts", "yurt-coordinator")
	system, err := systemImages(ctx, root, cache, p.bins, w.race, progress.show)
	p.images = append(p.images, system.Path)
	return p, err
}

// systemImages makes the images of our own programs. The race detector needs libraries, of which the images have none, and
// more memory than their Pods may have: what runs in Pods is built without.
func systemImages(ctx context.Context, root, cache string, bins build.Binaries, race bool,
	progress func(build.Event),
) (image.Archive, error) {
	if race {
		var err error
		if bins, err = build.Ensure(ctx, build.Config{
			ModuleRoot: root, CacheDir: cache, Only: build.SetPrograms, Progress: progress,
		}); err != nil {
			return image.Archive{}, err
		}
	}
	return image.EnsureSystem(ctx, image.SystemConfig{
		CacheDir: cache, Programs: []string{bins.YurtCoordinator, bins.CoordinatorController, bins.YurtHub},
	})
}

// places are the directory of our go.mod and that of what was built, which is made if it is missing.
func places() (root, cache string, err error) {
	if root, err = moduleRoot(); err != nil {
		return "", "", err
	}
	if cache, err = build.DefaultCacheDir(); err != nil {
		return "", "", err
	}
	return root, cache, os.MkdirAll(cache, 0o755)
}

// moduleRoot is the directory of our go.mod, at or above the current one: what a lab runs is built from there.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(content), "module yurtcoordinator\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("run yurtlab inside a clone of its repository: it builds what it runs from there")
		}
		dir = parent
	}
}

// progress shows the build's events: on each change of stage or text a line, and counts now and then.
type progress struct {
	out   io.Writer
	last  string
	shown int
}

func newProgress(out io.Writer) *progress { return &progress{out: out} }

func (p *progress) show(e build.Event) {
	if e.Total > 0 {
		percent := 100 * e.Done / e.Total
		if string(e.Stage) == p.last && percent < p.shown+10 && e.Done < e.Total {
			return
		}
		p.last, p.shown = string(e.Stage), percent
		fmt.Fprintf(p.out, "  building %s: %d of %d packages\n", e.Stage, e.Done, e.Total)
		return
	}
	if text := strings.TrimSpace(e.Text); text != "" && text != p.last {
		p.last, p.shown = text, 0
		fmt.Fprintln(p.out, " ", text)
	}
}
