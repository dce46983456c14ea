package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/build"
	"yurtcoordinator/internal/lab/image"
)

// prepared is what a lab is started with.
type prepared struct {
	bins    build.Binaries
	images  []string
	kubelet lab.Kubelet
}

// wanted is what is to be prepared.
type wanted struct {
	// kubelet is empty for real where containers can run, else hollow, said aloud.
	kubelet lab.Kubelet
	coreDNS bool
	race    bool
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
	root, err := moduleRoot()
	if err != nil {
		return p, err
	}
	cache, err := build.DefaultCacheDir()
	if err != nil {
		return p, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
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
		ModuleRoot: root, CacheDir: cache, Real: containers, CoreDNS: w.coreDNS, Race: w.race,
		Progress: progress.show,
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
	return p, nil
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

func buildCommand() *cobra.Command {
	kubelet, w := "", wanted{}
	cmd := &cobra.Command{
		Use: "build", Short: "Build all that a lab needs, without starting one", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w.kubelet = lab.Kubelet(kubelet)
			_, err := prepare(cmd.Context(), cmd.OutOrStdout(), w)
			return err
		},
	}
	cmd.Flags().StringVar(&kubelet, "kubelet", kubelet, "real or hollow; default: real where containers can run")
	cmd.Flags().BoolVar(&w.race, "race", false, "build our own programs with Go's race detector")
	cmd.Flags().BoolVar(&w.coreDNS, "coredns", false, "build CoreDNS too")
	return cmd
}
