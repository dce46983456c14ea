package lab

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/lab/build"
)

// TestBareMachinesAreEmpty but for containerd's settings: nothing on them knows of a cluster.
func TestBareMachinesAreEmpty(t *testing.T) {
	images := Images{All: []string{"a"}, Cloud: []string{"b"}}
	l := newLab(Config{Name: "x", Pools: 1, Kubelet: Real}.AsBare(), t.TempDir(), build.Binaries{}, images)
	if err := l.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.pki()); err == nil {
		t.Error("there are keys")
	}
	if nodes := l.watch().list(); len(nodes) > 0 {
		t.Errorf("nodes before there is a cloud: %v", nodes)
	}
	for _, p := range []place{inCloud, {1, 2}} {
		n := l.node(p)
		if err := os.MkdirAll(n.disk, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := n.writeFiles(); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(n.disk)
		if err != nil || len(entries) != 1 || entries[0].Name() != "containerd.toml" {
			t.Errorf("%s has %v, %v", p.name(), entries, err)
		}
		settings, err := os.ReadFile(n.file("containerd.toml"))
		if err != nil || !strings.Contains(string(settings), "conf_dir = '/etc/cni/net.d'") {
			t.Errorf("%s: containerd has %s, %v", p.name(), settings, err)
		}
	}
	if cloud, node := l.node(inCloud).images, l.node(place{1, 1}).images; !slices.Equal(cloud, []string{"a", "b"}) ||
		!slices.Equal(node, []string{"a"}) {
		t.Errorf("images: the cloud has %v, a node %v", cloud, node)
	}
	if got := l.cfg.chartValues(); slices.ContainsFunc(got, func(v string) bool { return !strings.Contains(v, "image.") }) {
		t.Errorf("the chart has values besides images: %v", got)
	}
}

// TestFollow takes a bare lab's cloud by the kubeconfig that somebody has made, and never another lab's.
func TestFollow(t *testing.T) {
	c := newClient(t.TempDir())
	l := &Lab{cfg: Config{}, dir: c.dir}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /cluster", func(w http.ResponseWriter, r *http.Request) {
		if err := l.follow(t.Context(), r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	c.http = clientOf(t, mux)
	const own = "made its cloud itself"
	if err := c.Follow(t.Context(), []byte("not a kubeconfig")); err == nil || !strings.Contains(err.Error(), own) {
		t.Errorf("a lab with a cloud of its own: %v", err)
	}
	l.cfg.Bare = true
	if err := c.Follow(t.Context(), []byte("not a kubeconfig")); err == nil || strings.Contains(err.Error(), "itself") {
		t.Errorf("no kubeconfig: %v", err)
	}
	kept, err := os.ReadFile(filepath.Join(c.dir, "pki", "admin.kubeconfig"))
	if err != nil || string(kept) != "not a kubeconfig" {
		t.Errorf("the lab keeps %q, %v", kept, err)
	}
}
