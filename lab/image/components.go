package image

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/oci"
	"yurtcoordinator/lab/build/artifact"
)

// Flannel is the image of flannel's daemon, as flannel's own manifest names it.
const Flannel = "ghcr.io/flannel-io/flannel:v0.28.10"

// AddonsConfig says what the images of kubeadm's addons and of flannel are made from, and where the archive is kept.
type AddonsConfig struct {
	// CacheDir, Waiting and Clock are as in Config.
	CacheDir string
	Waiting  func(holder string)
	Clock    clock.WithTicker

	// Kubeadm names the images. The others are static programs.
	Kubeadm, KubeProxy, CoreDNS, Flanneld string
}

// EnsureAddons returns the archive of the images of kubeadm's addons and of flannel, under the names that kubeadm and flannel's
// manifest have for them. The original images have the iptables of a distribution; these have the host's.
func EnsureAddons(ctx context.Context, config AddonsConfig) (Archive, error) {
	names, err := namesOf(ctx, config.Kubeadm, "kube-proxy", "coredns")
	if err != nil {
		return Archive{}, fmt.Errorf("images of addons: %w", err)
	}
	tools, err := tools()
	if err != nil {
		return Archive{}, fmt.Errorf("images of addons: %w", err)
	}
	store := artifact.Store{Dir: config.CacheDir, Clock: config.Clock, Waiting: config.Waiting}
	a, err := archiveOf(ctx, store, "addons", tools, []component{
		{names["kube-proxy"], "/usr/local/bin/kube-proxy", config.KubeProxy, nil, true},
		{names["coredns"], "/coredns", config.CoreDNS, []string{"/coredns"}, false},
		{Flannel, "/opt/bin/flanneld", config.Flanneld, []string{"/opt/bin/flanneld"}, true},
	})
	if err != nil {
		return Archive{}, fmt.Errorf("images of addons: %w", err)
	}
	return a, nil
}

// ControlPlaneConfig says what the images of kubeadm's static Pods are made from, and where the archive is kept.
type ControlPlaneConfig struct {
	// CacheDir, Waiting and Clock are as in Config.
	CacheDir string
	Waiting  func(holder string)
	Clock    clock.WithTicker

	// Kubeadm names the images. The others are static programs.
	Kubeadm, KubeAPIServer, KubeControllerManager, KubeScheduler, Etcd, Pause string
}

// EnsureControlPlane returns the archive of the images that kubeadm init looks for besides those of its addons.
func EnsureControlPlane(ctx context.Context, config ControlPlaneConfig) (Archive, error) {
	programs := []struct{ name, at, path string }{
		{"kube-apiserver", "/usr/local/bin/kube-apiserver", config.KubeAPIServer},
		{"kube-controller-manager", "/usr/local/bin/kube-controller-manager", config.KubeControllerManager},
		{"kube-scheduler", "/usr/local/bin/kube-scheduler", config.KubeScheduler},
		{"etcd", "/usr/local/bin/etcd", config.Etcd},
		{"pause", "/pause", config.Pause},
	}
	must, components := make([]string, len(programs)), make([]component, len(programs))
	for i, p := range programs {
		must[i] = p.name
	}
	names, err := namesOf(ctx, config.Kubeadm, must...)
	if err != nil {
		return Archive{}, fmt.Errorf("images of the control plane: %w", err)
	}
	for i, p := range programs {
		components[i] = component{names[p.name], p.at, p.path, []string{p.at}, false}
	}
	store := artifact.Store{Dir: config.CacheDir, Clock: config.Clock, Waiting: config.Waiting}
	a, err := archiveOf(ctx, store, "control-plane", nil, components)
	if err != nil {
		return Archive{}, fmt.Errorf("images of the control plane: %w", err)
	}
	return a, nil
}

// archiveOf returns the archive NAME.tar of these components' images, and makes it first if the store has none.
func archiveOf(
	ctx context.Context, store artifact.Store, name string, tools []oci.File, components []component,
) (Archive, error) {
	key := []string{recipe, runtime.GOARCH}
	for _, c := range components {
		content, err := os.ReadFile(c.path)
		if err != nil {
			return Archive{}, err
		}
		key = append(key, c.image, string(content))
	}
	for _, t := range tools {
		key = append(key, t.Path, string(t.Content))
	}
	file := name + ".tar"
	e, err := store.Get(ctx, artifact.Spec{
		Name: name, Key: artifact.Key(key...), Files: []string{file},
		Build: func(_ context.Context, dir, _ string) error {
			images, err := composeComponents(components, tools)
			if err != nil {
				return err
			}
			return oci.WriteArchive(filepath.Join(dir, file), images...)
		},
	})
	if err != nil {
		return Archive{}, err
	}
	if err := e.Close(); err != nil {
		return Archive{}, err
	}
	a := Archive{Path: e.Path(file)}
	for _, c := range components {
		a.Images = append(a.Images, c.image)
	}
	return a, nil
}

// component is an image of one program, at a path of the image, and whether it also needs tools.
type component struct {
	image, at, path string
	entrypoint      []string
	tools           bool
}

// namesOf asks kubeadm for the images of its own version, and returns them by the program's name. It fails if one of must is
// missing.
func namesOf(ctx context.Context, kubeadm string, must ...string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, appletsTimeout)
	defer cancel()
	version, err := exec.CommandContext(ctx, kubeadm, "version", "-o", "short").Output()
	if err != nil {
		return nil, fmt.Errorf("kubeadm version: %w", err)
	}
	listed, err := exec.CommandContext(ctx, kubeadm, "config", "images", "list",
		"--kubernetes-version", strings.TrimSpace(string(version))).Output()
	if err != nil {
		return nil, fmt.Errorf("kubeadm config images list: %w", err)
	}
	names := map[string]string{}
	for _, image := range strings.Fields(string(listed)) {
		name, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
		names[name] = image
	}
	for _, name := range must {
		if names[name] == "" {
			return nil, fmt.Errorf("kubeadm names no image of %s among %q", name, listed)
		}
	}
	return names, nil
}

func composeComponents(components []component, tools []oci.File) ([]oci.Named, error) {
	common, err := oci.Layer(tools...)
	if err != nil {
		return nil, err
	}
	var images []oci.Named
	for _, p := range components {
		content, err := os.ReadFile(p.path)
		if err != nil {
			return nil, err
		}
		own, err := oci.Layer(oci.Executable(p.at, content))
		if err != nil {
			return nil, err
		}
		layers := []v1.Layer{own}
		if p.tools {
			layers = []v1.Layer{common, own}
		}
		image, err := oci.Image(platform(), v1.Config{
			Entrypoint: p.entrypoint, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		}, layers...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.image, err)
		}
		images = append(images, oci.Named{Name: p.image, Content: image})
	}
	return images, nil
}

// libraries are where the dynamic linker looks.
var libraries = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64",
	"/usr/lib64", "/lib", "/usr/lib",
}

// tools returns the host's iptables under all its names, with the libraries and modules that it needs.
func tools() ([]oci.File, error) {
	found, err := exec.LookPath("iptables")
	if err != nil {
		return nil, err
	}
	program, err := filepath.EvalSymlinks(found)
	if err != nil {
		return nil, err
	}
	modules, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return nil, err
	}
	if len(modules) == 0 {
		return nil, errors.New("iptables has no modules in /usr/lib/*/xtables")
	}
	files, seen := []oci.File{oci.Dir("/tmp", fs.ModeSticky|0o777), oci.Dir("/run", 0o755)}, map[string]bool{}
	var add func(path string) error
	add = func(path string) error {
		if seen[path] {
			return nil
		}
		seen[path] = true
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files = append(files, oci.Executable(path, content))
		needed, linker, err := linked(path)
		if err != nil {
			return err
		}
		if linker != "" {
			needed = append(needed, linker)
		}
		for _, name := range needed {
			at, err := library(name)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := add(at); err != nil {
				return err
			}
		}
		return nil
	}
	for _, path := range append([]string{program}, modules...) {
		if err := add(path); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{
		"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore",
	} {
		files = append(files, oci.Link("/sbin/"+name, program))
	}
	return files, nil
}

// linked returns the libraries that a program names, and its dynamic linker.
func linked(path string) (needed []string, linker string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	if needed, err = f.ImportedLibraries(); err != nil {
		return nil, "", err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, p.Filesz)
			if _, err := p.ReadAt(name, 0); err != nil {
				return nil, "", err
			}
			linker = strings.TrimRight(string(name), "\x00")
		}
	}
	return needed, linker, nil
}

// library returns the path of a library. A name with a path is its own result.
func library(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	for _, dir := range libraries {
		if path := filepath.Join(dir, name); exists(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("library %s is in none of %v", name, slices.Clone(libraries))
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }
