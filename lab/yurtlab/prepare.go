package yurtlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/version"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/build"
	"yurtcoordinator/lab/image"
)

// prepared is what a lab needs to start.
type prepared struct {
	bins    build.Binaries
	images  lab.Images
	kubelet lab.Kubelet
	// chart is the directory of our chart.
	chart string
}

// wanted is what to prepare.
type wanted struct {
	// kubelet is the kind of kubelet. Empty means real where containers can run; otherwise hollow, with a message.
	kubelet lab.Kubelet
	coreDNS bool
	helm    bool
	// kubectlOlder adds the kubectl of the minor version before ours.
	kubectlOlder bool
	// openYurt adds OpenYurt's manager.
	openYurt bool
	// prometheus adds Prometheus.
	prometheus bool
	// releases adds images of the next releases of yurthub.
	releases bool
	// former is another commit of ours; empty means none.
	former string
	// supply adds a registry, cosign and krew.
	supply bool
	// bare adds images of what kubeadm looks for, and of flannel.
	bare bool
	// kubernetes and kubeletVersion are minor versions of Kubernetes; empty means ours, and the cloud's.
	kubernetes, kubeletVersion string
	race                       bool
	// installed adds what an installed lab needs: Helm, and images of our own programs.
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
	p.chart = filepath.Join(root, "deploy", "charts", "yurt-coordinator")
	containers := p.kubelet == lab.Real
	progress := newProgress(out)
	waiting := build.Waiting(progress.show)
	err = build.EnsurePackages(ctx, build.PackagesConfig{
		Real: containers, Unprivileged: os.Geteuid() != 0, Supply: w.supply, Log: filepath.Join(cache, "packages.log"),
		Progress: progress.show,
	})
	if err != nil {
		return p, err
	}
	p.bins, err = build.Ensure(ctx, build.Config{
		ModuleRoot: root, CacheDir: cache, Real: containers, CoreDNS: w.coreDNS || w.bare, Helm: w.helm || w.installed,
		KubectlOlder: w.kubectlOlder, OpenYurt: w.openYurt, Kubernetes: w.kubernetes, KubeletVersion: w.kubeletVersion,
		Flannel: w.bare, Race: w.race, Releases: w.releases, Former: w.former, Prometheus: w.prometheus,
		Supply:   w.supply,
		Progress: progress.show,
	})
	if err != nil {
		return p, err
	}
	if containers {
		archive, err := image.Ensure(ctx, image.Config{
			CacheDir: cache, Pause: p.bins.Pause, Busybox: build.Busybox(), Waiting: waiting,
		})
		if err != nil {
			return p, err
		}
		p.images.All = []string{archive.Path}
	}
	if containers && w.bare {
		if err := p.addKubeadmImages(ctx, cache, waiting); err != nil {
			return p, err
		}
	}
	if !w.installed {
		return p, nil
	}
	system, err := systemImages(ctx, root, cache, p.bins, w.race, progress.show)
	p.images.All = append(p.images.All, system.Path)
	if err == nil && w.former != "" {
		err = p.addFormerImages(ctx, cache, w.former, waiting)
	}
	if err != nil || !w.releases {
		return p, err
	}
	programs := map[string]string{build.ReleaseWell: p.bins.YurtHubWell, build.ReleaseFaulty: p.bins.YurtHubFaulty}
	releases, err := image.EnsureReleases(ctx, image.ReleasesConfig{CacheDir: cache, Waiting: waiting, Programs: programs})
	p.images.All, p.bins.ReleaseKey = append(p.images.All, releases.Path), releases.Key
	return p, err
}

// addFormerImages adds what another commit runs in Pods.
func (p *prepared) addFormerImages(ctx context.Context, cache, commit string, waiting func(holder string)) error {
	former, err := image.EnsureSystem(ctx, image.SystemConfig{
		CacheDir: cache, Programs: []string{p.bins.Former.YurtCoordinator, p.bins.Former.CoordinatorController},
		Kubernetes: p.bins.OwnKubernetes, Tag: version.Development(commit, false), Waiting: waiting,
	})
	p.images.All = append(p.images.All, former.Path)
	return err
}

// addKubeadmImages adds the images of a bare lab.
func (p *prepared) addKubeadmImages(ctx context.Context, cache string, waiting func(holder string)) error {
	addons, err := image.EnsureAddons(ctx, image.AddonsConfig{
		CacheDir: cache, Kubeadm: p.bins.Kubeadm, KubeProxy: p.bins.KubeProxy, CoreDNS: p.bins.CoreDNS,
		Flanneld: p.bins.Flanneld, Waiting: waiting,
	})
	if err != nil {
		return err
	}
	controlPlane, err := image.EnsureControlPlane(ctx, image.ControlPlaneConfig{
		CacheDir: cache, Kubeadm: p.bins.Kubeadm, KubeAPIServer: p.bins.KubeAPIServer, KubeScheduler: p.bins.KubeScheduler,
		KubeControllerManager: p.bins.KubeControllerManager, Etcd: p.bins.Etcd, Pause: p.bins.Pause,
		Waiting: waiting,
	})
	p.images.All = append(p.images.All, addons.Path)
	p.images.Cloud = append(p.images.Cloud, controlPlane.Path)
	return err
}

// systemImages makes the images of our own programs. Programs in Pods are built without the race detector: it needs
// libraries, which the images lack, and more memory than the Pods may have.
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
		CacheDir: cache, Programs: []string{bins.YurtCoordinator, bins.CoordinatorController},
		Kubernetes: bins.OwnKubernetes, Waiting: build.Waiting(progress),
	})
}

// versionFlags declares the flags that say which Kubernetes is wanted.
func versionFlags(flags *pflag.FlagSet, kubernetes, kubelet *string) {
	flags.StringVar(kubernetes, "kubernetes", "",
		"minor version of the cloud, as 1.34; default: ours. The first time, this builds it")
	flags.StringVar(kubelet, "kubelet-version", "",
		"minor version of the nodes' kubelet and kube-proxy, at most three older; default: the cloud's")
}

// familyFlag declares the flag that says of which IP families a lab's addresses are.
func familyFlag(flags *pflag.FlagSet, family *lab.IPFamily) {
	flags.StringVar((*string)(family), "ip-family", "",
		"IP families of nodes, Pods and Services: ipv4, ipv6 or dual (both, IPv4 first); default: ipv4, or a scenario's own")
}

// places returns the directory of the product's go.mod and the directory of built programs, which it makes if it is missing.
func places() (root, cache string, err error) {
	if root, err = moduleRoot(); err != nil {
		return "", "", err
	}
	if cache, err = build.DefaultCacheDir(); err != nil {
		return "", "", err
	}
	return root, cache, os.MkdirAll(cache, 0o755)
}

// moduleRoot returns the directory of the product's go.mod, at or above the current one. A lab's programs are built from there.
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

// progress prints the build's events: a line for each change of stage or text, and counts now and then.
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
		fmt.Fprintf(p.out, "  building %s: %d of %s\n", e.Stage, e.Done, edge.Count(e.Total, "package", "packages"))
		return
	}
	if text := strings.TrimSpace(e.Text); text != "" && text != p.last {
		p.last, p.shown = text, 0
		fmt.Fprintln(p.out, " ", text)
	}
}
