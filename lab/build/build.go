// Package build builds every program that a lab runs. It builds our own from the product's go.mod; Kubernetes and etcd from the
// lab's go.mod, which has the same versions; containerd, runc, the CNI plugins, CoreDNS, Helm, OpenYurt, flannel, Caddy,
// Prometheus, and a registry with cosign and krew from their own modules, at the versions pinned in plan.go; an older kubectl
// and other versions of Kubernetes from nested modules of ours; and the release before the present one from the repository's
// history. It builds them once and keeps them under a key of all their inputs, so that the next lab finds them in a fraction of
// a second.
//
// Sets are cached separately because they change separately: "kubernetes" with the lab's go.mod, "containers", "coredns",
// "helm", "openyurt", "caddy", "prometheus" and "supply" with the pins, "kubectl-older" and sets such as "kubernetes1.34" with
// their modules, "former" with the commit that is pinned, "programs" with our source. A new build of a set starts from the
// binaries of the last one, so that the Go tool links only what changed.
//
// One alternative was to use programs found in PATH: then the lab's findings would depend on what the machine has. Another was
// to download releases: they do not exist for every architecture, and can change without a trace in go.sum.
package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab/build/artifact"
)

// Stage is a part of the work.
type Stage string

// The stages, in their order.
const (
	StagePackages   Stage = "packages"
	StagePlan       Stage = "plan"
	StageWait       Stage = "wait"
	StageKubernetes Stage = "kubernetes"
	StageEtcd       Stage = "etcd"
	StageContainerd Stage = "containerd"
	StageRunc       Stage = "runc"
	StageCNI        Stage = "cni"
	StageCoreDNS    Stage = "coredns"
	StageHelm       Stage = "helm"
	StageOlder      Stage = "older kubectl"
	StageOpenYurt   Stage = "OpenYurt"
	StageFlannel    Stage = "flannel"
	StageCaddy      Stage = "Caddy"
	StagePrometheus Stage = "Prometheus"
	StageFormer     Stage = "another commit"
	StageSupply     Stage = "supply"
	StagePrograms   Stage = "programs"
)

// Names of the sets that programs are built and cached in.
const (
	SetKubernetes = "kubernetes"
	SetContainers = "containers"
	SetCoreDNS    = "coredns"
	SetHelm       = "helm"
	SetOlder      = "kubectl-older"
	SetOpenYurt   = "openyurt"
	SetFlannel    = "flannel"
	SetCaddy      = "caddy"
	SetPrometheus = "prometheus"
	SetSupply     = "supply"
	SetPrograms   = "programs"
	SetReleases   = "releases"
	SetFormer     = "former"
)

// Sets returns the names of all sets.
func Sets() []string {
	return []string{
		SetKubernetes, SetContainers, SetCoreDNS, SetHelm, SetOlder, SetOpenYurt, SetFlannel, SetCaddy, SetPrometheus, SetSupply,
		SetFormer, SetReleases, SetPrograms,
	}
}

// Event reports progress. If Total is zero, nothing is counted; otherwise Done of Total packages are compiled.
type Event struct {
	Stage       Stage
	Done, Total int
	Text        string
}

// Config says what to build and where to keep it.
type Config struct {
	// ModuleRoot is the directory of the product's go.mod.
	ModuleRoot string

	// CacheDir holds what was built; empty means yurtlab in the user's cache directory.
	CacheDir string

	// Real also builds what real containers need: containerd, runc and the CNI plugins.
	Real bool

	// CoreDNS also builds CoreDNS.
	CoreDNS bool

	// Helm also builds Helm.
	Helm bool

	// KubectlOlder also builds the kubectl of the minor version before ours.
	KubectlOlder bool

	// OpenYurt also builds OpenYurt's yurt-manager.
	OpenYurt bool

	// Kubernetes is the minor version of the cloud's Kubernetes, such as 1.34; empty means ours. KubeletVersion is that of the
	// nodes' kubelet and kube-proxy; empty means the cloud's.
	Kubernetes, KubeletVersion string

	// Flannel also builds flannel.
	Flannel bool

	// Caddy also builds Caddy.
	Caddy bool

	// Prometheus also builds Prometheus and promtool.
	Prometheus bool

	// Supply also builds what a release goes through on its way: a registry, cosign and krew.
	Supply bool

	// Releases also builds the next releases of yurthub.
	Releases bool

	// Former is the full hash of a commit of the repository, whose hub, coordinator and controller are built as well. Empty
	// means none.
	Former string

	// Only names the one set to build, whatever else is set; empty means all wanted sets.
	Only string

	// Race builds yurthub, yurt-coordinator and coordinator-controller with the race detector. It leaves out the hollow
	// kubelet, which is Kubernetes' code and would take ten times as much memory.
	Race bool

	// Progress, if set, is called with each step, by one goroutine at a time.
	Progress func(Event)

	// Clock is the clock; nil means the real one.
	Clock clock.WithTicker
}

// Binaries are absolute paths of programs. Those for containers are empty unless Config.Real was set.
type Binaries struct {
	Etcd, KubeAPIServer, KubeControllerManager, KubeScheduler, KubeProxy, Kubelet, Kubectl, Kubeadm string

	// KubernetesVersion is the version of the cloud's programs, as v1.34.4; KubeletVersion is that of Kubelet and KubeProxy.
	KubernetesVersion, KubeletVersion string

	// OwnKubernetes is the version of the Kubernetes that our own programs are made from.
	OwnKubernetes string

	HollowKubelet, YurtHub, YurtCoordinator, CoordinatorController, KubectlYurt, Pause string

	Containerd, ContainerdShimRuncV2, Ctr, Runc string

	// CoreDNS is empty unless Config.CoreDNS was set.
	CoreDNS string

	// Helm is empty unless Config.Helm was set.
	Helm string

	// KubectlOlder is empty unless Config.KubectlOlder was set.
	KubectlOlder string

	// YurtManager is empty unless Config.OpenYurt was set.
	YurtManager string

	// Flanneld is empty unless Config.Flannel was set.
	Flanneld string

	// Caddy is empty unless Config.Caddy was set.
	Caddy string

	// Prometheus and Promtool are empty unless Config.Prometheus was set.
	Prometheus, Promtool string

	// Registry, Cosign and Krew are empty unless Config.Supply was set.
	Registry, Cosign, Krew string

	// YurtHubWell and YurtHubFaulty are of ReleaseWell and ReleaseFaulty; empty unless Config.Releases was set.
	YurtHubWell, YurtHubFaulty string

	// Former are programs of Config.Former; empty unless that was set.
	Former struct{ YurtHub, YurtCoordinator, CoordinatorController string }

	// ReleaseKey is the file with the public key that verifies the signatures of these releases, once there are images of them.
	ReleaseKey string

	// CNIDir is the directory of the plugins bridge, host-local, loopback and portmap.
	CNIDir string

	// Dirs are the cache directories that hold the files.
	Dirs []string
}

// Hold protects the files from pruning, which may happen when newer ones are built. The protection lasts until release is
// called or the process ends. So the process that runs the programs must call Hold: a lab holds what it may have to start
// again.
func (b Binaries) Hold() (release func() error, err error) {
	var held []*artifact.Entry
	release = func() error {
		var failed []error
		for _, e := range held {
			failed = append(failed, e.Close())
		}
		return errors.Join(failed...)
	}
	for _, dir := range b.Dirs {
		e, err := artifact.Hold(dir)
		if err != nil {
			return nil, errors.Join(err, release())
		}
		held = append(held, e)
	}
	return release, nil
}

// DefaultCacheDir is the default directory for binaries and images.
func DefaultCacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for built programs: set XDG_CACHE_HOME or HOME: %w", err)
	}
	return filepath.Join(dir, "yurtlab"), nil
}

// Ensure builds whatever is missing and returns the programs. It needs the go command, and the network for modules that
// are not in Go's cache. A failed build leaves nothing behind, and can be repeated.
func Ensure(ctx context.Context, config Config) (Binaries, error) {
	b, err := newBuilder(ctx, config)
	if err != nil {
		return Binaries{}, err
	}
	if err := b.announce(ctx); err != nil {
		return Binaries{}, err
	}
	result := Binaries{KubernetesVersion: b.versions.cloud, KubeletVersion: b.versions.node, OwnKubernetes: b.versions.kubernetes}
	for _, s := range b.sets {
		e, err := b.store.Get(ctx, b.spec(s))
		if err != nil {
			return Binaries{}, err
		}
		result.fill(e, s.given())
		// It was used just now, so pruning would take it last.
		if err := e.Close(); err != nil {
			return Binaries{}, fmt.Errorf("cache: %w", err)
		}
	}
	return result, nil
}

// Waiting returns a function that reports that another process writes to the cache. holder is that process's name for itself.
func Waiting(progress func(Event)) func(holder string) {
	return func(holder string) {
		progress(Event{Stage: StageWait, Text: "another lab is building (" + holder + "): waiting for it"})
	}
}

// builder is one call of Ensure.
type builder struct {
	progress func(Event)
	tool     *goTool
	store    *artifact.Store
	sets     []set
	versions versions
	keys     map[string]string // of sets, by name
}

func newBuilder(ctx context.Context, config Config) (*builder, error) {
	root, err := filepath.Abs(config.ModuleRoot)
	if err != nil {
		return nil, fmt.Errorf("module root: %w", err)
	}
	cache := config.CacheDir
	if cache == "" {
		if cache, err = DefaultCacheDir(); err != nil {
			return nil, err
		}
	}
	if cache, err = filepath.Abs(cache); err != nil {
		return nil, fmt.Errorf("cache directory: %w", err)
	}
	b := &builder{progress: config.Progress, keys: map[string]string{}}
	if b.progress == nil {
		b.progress = func(Event) {}
	}
	b.store = &artifact.Store{Dir: cache, Clock: config.Clock, Waiting: Waiting(b.progress)}
	if config.Only != "" && !slices.Contains(Sets(), config.Only) {
		return nil, fmt.Errorf("no set is called %q: the sets are %s", config.Only, strings.Join(Sets(), ", "))
	}
	if b.tool, err = newGoTool(root); err != nil {
		return nil, err
	}
	b.tool.apart = filepath.Join(cache, apartDir)
	in, err := b.inputs(ctx, root, config)
	if err != nil {
		return nil, err
	}
	b.sets, b.versions = plan(in), in.versions
	env, err := b.tool.env(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range b.sets {
		if b.keys[s.name], err = s.key(env); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (b *builder) inputs(ctx context.Context, root string, config Config) (inputs, error) {
	lab := filepath.Join(root, labDir)
	goMod, err := os.ReadFile(filepath.Join(lab, "go.mod"))
	if err != nil {
		return inputs{}, fmt.Errorf("the lab builds from our source: %w", err)
	}
	path, _, err := b.tool.module(ctx, root)
	if err != nil {
		return inputs{}, err
	}
	_, required, err := b.tool.module(ctx, lab)
	if err != nil {
		return inputs{}, err
	}
	in := inputs{module: path, goMod: string(goMod), real: config.Real, race: config.Race,
		coredns: config.CoreDNS, helm: config.Helm, kubectlOlder: config.KubectlOlder, openYurt: config.OpenYurt,
		flannel: config.Flannel, caddy: config.Caddy, prometheus: config.Prometheus, releases: config.Releases,
		supply: config.Supply, former: config.Former, only: config.Only}
	wanted := map[string]*string{kubernetesModule: &in.versions.kubernetes, etcdModule: &in.versions.etcd}
	for module, version := range wanted {
		if *version = required[module]; *version == "" {
			return inputs{}, fmt.Errorf("%s: %w in %s", module, errNotRequired, lab)
		}
	}
	if err := b.others(ctx, root, config, &in); err != nil {
		return inputs{}, err
	}
	if in.kubectlOlder || in.only == SetOlder {
		if err := b.older(ctx, root, &in); err != nil {
			return inputs{}, err
		}
	}
	in.tree, err = fingerprints(root, filepath.Join(root, apisDir), lab)
	return in, err
}

// older reads the nested module of the older kubectl.
func (b *builder) older(ctx context.Context, root string, in *inputs) error {
	dir := filepath.Join(root, olderDir)
	_, required, err := b.tool.module(ctx, dir)
	if err != nil {
		return err
	}
	// Module v0.35.1 belongs to Kubernetes v1.35.1.
	version, ok := strings.CutPrefix(required[kubectlModule], "v0.")
	if !ok {
		return fmt.Errorf("%s: %w in %s", kubectlModule, errNotRequired, dir)
	}
	in.versions.older = "v1." + version
	in.olderTree, err = fingerprint(dir)
	return err
}

func (b *builder) spec(s set) artifact.Spec {
	return artifact.Spec{Name: s.name, Key: b.keys[s.name], Files: s.files(), Seed: true,
		Build: func(ctx context.Context, dir, reason string) error { return b.build(ctx, s, dir, reason) }}
}

// announce says how long the missing builds will take.
func (b *builder) announce(ctx context.Context) error {
	var stale, programs int
	for _, s := range b.sets {
		if e, _ := b.store.Lookup(b.spec(s)); e != nil {
			if err := e.Close(); err != nil {
				return err
			}
			continue
		}
		for _, st := range s.stages {
			_, packages, err := b.prepare(ctx, st)
			if err != nil {
				return err
			}
			stale += len(packages)
			programs += len(st.Packages)
		}
	}
	if programs > 0 {
		b.progress(Event{Stage: StagePlan, Text: fmt.Sprintf(
			"building %s, once: %s to compile on %s, %s",
			edge.Count(programs, "program", "programs"), edge.Count(stale, "package", "packages"),
			edge.Count(cores(), "core", "cores"), about(estimate(stale, programs, cores())))})
	}
	return nil
}

// prepare downloads what a stage needs and lists the packages that it must compile.
func (b *builder) prepare(ctx context.Context, s stage) (dir string, stale []string, err error) {
	none := newTally(nil)
	line := func(l string) {
		if text, ok := none.line(l); ok {
			b.progress(Event{Stage: s.Name, Text: text})
		}
	}
	if dir, err = b.tool.download(ctx, s, line); err == nil {
		stale, err = b.tool.stale(ctx, s, dir, line)
	}
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", s.Title, err)
	}
	return dir, stale, nil
}

// build makes the files of a set below work.
func (b *builder) build(ctx context.Context, s set, work, reason string) error {
	b.progress(Event{Stage: s.stages[0].Name, Text: "building " + s.name + ": " + reason})
	defer b.tool.trim()
	for _, st := range s.stages {
		dir, stale, err := b.prepare(ctx, st)
		if err != nil {
			return err
		}
		count := newTally(stale)
		report := func(text string) {
			b.progress(Event{Stage: st.Name, Done: count.done(), Total: count.total, Text: text})
		}
		report(st.Title)
		err = b.tool.build(ctx, st, dir, work, func(l string) {
			if text, ok := count.line(l); ok {
				report(text)
			}
		})
		if err != nil {
			return fmt.Errorf("%s: %w", st.Title, err)
		}
		b.progress(Event{Stage: st.Name, Done: count.total, Total: count.total, Text: st.Title + ": done"})
	}
	return nil
}

// fill stores the paths of a set's files.
func (b *Binaries) fill(e *artifact.Entry, files []string) {
	b.Dirs = append(b.Dirs, e.Dir)
	named := map[string]*string{
		"bin/etcd":                      &b.Etcd,
		"bin/kube-apiserver":            &b.KubeAPIServer,
		"bin/kube-controller-manager":   &b.KubeControllerManager,
		"bin/kube-scheduler":            &b.KubeScheduler,
		"bin/kube-proxy":                &b.KubeProxy,
		"bin/kubelet":                   &b.Kubelet,
		"bin/kubectl":                   &b.Kubectl,
		"bin/kubeadm":                   &b.Kubeadm,
		"bin/hollow":                    &b.HollowKubelet,
		"bin/pause":                     &b.Pause,
		"bin/yurthub":                   &b.YurtHub,
		"bin/yurthub-well":              &b.YurtHubWell,
		"bin/yurthub-faulty":            &b.YurtHubFaulty,
		"bin/yurt-coordinator":          &b.YurtCoordinator,
		"bin/coordinator-controller":    &b.CoordinatorController,
		"bin/kubectl-yurt":              &b.KubectlYurt,
		"bin/containerd":                &b.Containerd,
		"bin/containerd-shim-runc-v2":   &b.ContainerdShimRuncV2,
		"bin/ctr":                       &b.Ctr,
		"bin/runc":                      &b.Runc,
		"bin/coredns":                   &b.CoreDNS,
		"bin/helm":                      &b.Helm,
		"bin/kubectl-older":             &b.KubectlOlder,
		"bin/yurt-manager":              &b.YurtManager,
		"bin/flanneld":                  &b.Flanneld,
		"bin/caddy":                     &b.Caddy,
		"bin/prometheus":                &b.Prometheus,
		"bin/promtool":                  &b.Promtool,
		"former/yurthub":                &b.Former.YurtHub,
		"former/yurt-coordinator":       &b.Former.YurtCoordinator,
		"former/coordinator-controller": &b.Former.CoordinatorController,
		"bin/registry":                  &b.Registry,
		"bin/cosign":                    &b.Cosign,
		"bin/krew":                      &b.Krew,
	}
	for _, file := range files {
		if at, ok := named[file]; ok {
			*at = e.Path(file)
		}
		if dir, _ := filepath.Split(file); dir == "cni/" {
			b.CNIDir = e.Path("cni")
		}
	}
}
