package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yurtcoordinator/internal/oci"
)

func script(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeadm")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNamesOfAddons are kubeadm's, for its own version: another would be asked for on the internet.
func TestNamesOfAddons(t *testing.T) {
	const kubeadm = `case "$*" in
"version -o short") echo v1.36.3 ;;
"config images list --kubernetes-version v1.36.3")
	printf 'registry.k8s.io/kube-proxy:v1.36.3\nregistry.k8s.io/coredns/coredns:v1.14.2\nregistry.k8s.io/pause:3.10\n' ;;
*) exit 1 ;;
esac
`
	names, err := namesOf(t.Context(), script(t, kubeadm), "kube-proxy", "coredns")
	if err != nil || names["kube-proxy"] != "registry.k8s.io/kube-proxy:v1.36.3" ||
		names["coredns"] != "registry.k8s.io/coredns/coredns:v1.14.2" {
		t.Errorf("%v, %v", names, err)
	}
	for _, broken := range []string{"exit 1\n", "echo v1\n", strings.Replace(kubeadm, "coredns:", "another:", 1)} {
		if names, err := namesOf(t.Context(), script(t, broken), "kube-proxy", "coredns"); err == nil {
			t.Errorf("%q: %v", broken, names)
		}
	}
}

// TestAddonsAreWhereTheirManifestsWantThem, with the tools that some of them need below.
func TestAddonsAreWhereTheirManifestsWantThem(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("content"), 0o755); err != nil {
		t.Fatal(err)
	}
	images, err := composeComponents([]component{
		{"a:1", "/usr/local/bin/kube-proxy", program, nil, true},
		{"b:1", "/coredns", program, []string{"/coredns"}, false},
	}, []oci.File{oci.Text("/sbin/iptables", "tool")})
	if err != nil || len(images) != 2 || images[0].Name != "a:1" || images[1].Name != "b:1" {
		t.Fatalf("%v, %v", images, err)
	}
	for i, want := range []int{2, 1} {
		layers, err := images[i].Content.(v1.Image).Layers()
		if err != nil || len(layers) != want {
			t.Errorf("%s has %d layers, want %d: %v", images[i].Name, len(layers), want, err)
		}
	}
	config, err := images[1].Content.(v1.Image).ConfigFile()
	if err != nil || len(config.Config.Entrypoint) != 1 || config.Config.Entrypoint[0] != "/coredns" {
		t.Errorf("%+v, %v", config, err)
	}
	if _, err := composeComponents([]component{{"a:1", "/a", program + "-gone", nil, false}}, nil); err == nil {
		t.Error("an image is made of no program")
	}
}

// TestControlPlane has the images that kubeadm init looks for, under its names, with the program that their manifests call.
func TestControlPlane(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("content"), 0o755); err != nil {
		t.Fatal(err)
	}
	config := ControlPlaneConfig{
		CacheDir: t.TempDir(), KubeAPIServer: program, KubeControllerManager: program, KubeScheduler: program, Etcd: program,
		Pause: program,
		Kubeadm: script(t, `[ "$1" = version ] && echo v1.36.3 && exit
printf 'r/%s\n' kube-apiserver:v1 kube-controller-manager:v1 kube-scheduler:v1 kube-proxy:v1 coredns/coredns:v2 pause:3 etcd:3.6-0
`),
	}
	a, err := EnsureControlPlane(t.Context(), config)
	want := []string{"r/kube-apiserver:v1", "r/kube-controller-manager:v1", "r/kube-scheduler:v1", "r/etcd:3.6-0", "r/pause:3"}
	if err != nil || !slices.Equal(a.Images, want) {
		t.Fatalf("%v, %v; want %v", a.Images, err, want)
	}
	if info, err := os.Stat(a.Path); err != nil || info.Size() == 0 {
		t.Errorf("%s: %v, %v", a.Path, info, err)
	}
	config.Kubeadm = script(t, "[ \"$1\" = version ] && echo v1.36.3 && exit\necho r/kube-apiserver:v1\n")
	if a, err := EnsureControlPlane(t.Context(), config); err == nil {
		t.Errorf("made %v though kubeadm names no etcd", a.Images)
	}
}
