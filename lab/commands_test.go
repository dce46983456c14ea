package lab

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"yurtcoordinator/lab/build"
	"yurtcoordinator/lab/machine"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// programs are binaries named after their fields, so that a golden file shows which one is started.
func programs() build.Binaries {
	var b build.Binaries
	v := reflect.ValueOf(&b).Elem()
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.String {
			v.Field(i).SetString("/bin/" + v.Type().Field(i).Name)
		}
	}
	return b
}

func show(b *strings.Builder, c machine.Command) {
	fmt.Fprintf(b, "%s > %s\n", c.Name, c.Log)
	for _, e := range c.Env {
		fmt.Fprintf(b, "  %s\n", e)
	}
	for i, arg := range c.Argv {
		indent := "    "
		if i == 0 {
			indent = "  "
		}
		fmt.Fprintf(b, "%s%s\n", indent, arg)
	}
}

// What is started, with which flags, is the lab's whole meaning: a change of it is to be seen in a review.
func TestCommands(t *testing.T) {
	t.Setenv("PATH", "/usr/bin")
	var b strings.Builder
	core, rest := controlPlane(programs(), "/disk", Config{Timing: Quick})
	fmt.Fprintln(&b, "== cloud")
	for _, c := range core {
		show(&b, c)
	}
	fmt.Fprintln(&b, "== cloud, when that serves")
	for _, c := range rest {
		show(&b, c)
	}
	core, _ = controlPlane(programs(), "/disk", Config{Timing: Quick, IPFamily: DualStack})
	fmt.Fprintln(&b, "== cloud, with both IP families")
	show(&b, core[1])
	core, _ = controlPlane(programs(), "/disk", Config{Timing: Quick, EventsApart: true})
	fmt.Fprintln(&b, "== cloud, with Events apart")
	show(&b, core[1])
	show(&b, core[2])
	for _, tt := range []struct {
		what  string
		place place
		cfg   Config
	}{
		{"real, with a coordinator", place{1, 1}, Config{Kubelet: Real, Timing: Quick}},
		{"hollow, without", place{2, 3}, Config{Kubelet: Hollow, Timing: Stock}},
		{"hubs alone, with a standby", place{1, 2}, Config{NoKubelet: true, Coordinators: 2}},
		{"hubs alone, no coordinator in the pool", place{1, 1}, Config{NoKubelet: true, NoCoordinator: true}},
		{"a hub that joins", place{1, 2}, Config{NoKubelet: true, Bootstrap: true}},
		{"a hub and its CoreDNS", place{1, 2}, Config{NoKubelet: true, CoreDNS: true}},
		{"with IPv6 alone", place{1, 1}, Config{Kubelet: Real, Timing: Quick, IPFamily: IPv6, Bootstrap: true}},
		{"with both IP families, hollow", place{2, 3}, Config{Kubelet: Hollow, Timing: Quick, IPFamily: DualStack}},
		{"real, in an installed lab", place{1, 1}, Config{Kubelet: Real, Timing: Quick, Installed: true}},
		{"the cloud, as a node of an installed lab", inCloud, Config{Kubelet: Real, Timing: Quick, Installed: true}},
	} {
		n := node{place: tt.place, cfg: tt.cfg, bins: programs(), disk: "/disk", snapshotter: "overlayfs", authority: "sha256:0"}
		fmt.Fprintf(&b, "== %s: %s\n", n.name(), tt.what)
		for _, c := range n.components() {
			show(&b, n.command(c))
		}
	}
	golden(t, "commands.txt", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Fatalf("%s:%d differs: run with -update and look at the change\n%s", path, i+1,
				strings.Join(g[min(i, len(g)):min(i+3, len(g))], "\n"))
		}
	}
}

func TestComponents(t *testing.T) {
	first, second := place{1, 1}, place{1, 2}
	for _, tt := range []struct {
		name  string
		place place
		cfg   Config
		want  []Component
	}{
		{"real", first, Config{Kubelet: Real}, []Component{Coordinator, Hub, Containerd, KubeletC, KubeProxy}},
		{"real, second node", second, Config{Kubelet: Real}, []Component{Hub, Containerd, KubeletC, KubeProxy}},
		{"a standby", second, Config{Kubelet: Hollow, Coordinators: 2}, []Component{Coordinator, Hub, KubeletC, KubeProxy}},
		{"not a standby", place{1, 3}, Config{Kubelet: Hollow, Coordinators: 2}, []Component{Hub, KubeletC, KubeProxy}},
		{"hollow", first, Config{Kubelet: Hollow}, []Component{Coordinator, Hub, KubeletC, KubeProxy}},
		{"no coordinator", first, Config{Kubelet: Hollow, NoCoordinator: true}, []Component{Hub, KubeletC, KubeProxy}},
		{"no kube-proxy", second, Config{Kubelet: Hollow, NoProxy: true}, []Component{Hub, KubeletC}},
		{"no kubelet", first, Config{Kubelet: Real, NoKubelet: true}, []Component{Coordinator, Hub}},
		{"CoreDNS", second, Config{Kubelet: Hollow, CoreDNS: true}, []Component{Hub, CoreDNS, KubeletC, KubeProxy}},
		{"installed", first, Config{Kubelet: Real, Installed: true}, []Component{Hub, Containerd, KubeletC, KubeProxy}},
		{"installed, the cloud", inCloud, Config{Kubelet: Real, Installed: true, CoreDNS: true, NoProxy: true},
			[]Component{Containerd, KubeletC, KubeProxy}},
		{"bare", second, Config{Pools: 1}.AsBare(), []Component{Containerd}},
		{"bare, the cloud", inCloud, Config{Pools: 1}.AsBare(), []Component{Containerd}},
	} {
		if got := (node{place: tt.place, cfg: tt.cfg}).components(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A node has its own keys and no other's: what a thief of one machine gets.
func TestKeysOfANode(t *testing.T) {
	want := []string{"p1-n2.crt", "p1-n2.key", "p1-n2-kubelet.crt", "p1-n2-kubelet.key"}
	if got := (node{place: place{1, 2}}).keys(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	want = []string{
		"p1-n1.crt", "p1-n1.key", "p1-n1-kubelet.crt", "p1-n1-kubelet.key", "p1-n1-coordinator.crt",
		"p1-n1-coordinator.key",
	}
	if got := (node{place: place{1, 1}}).keys(); !slices.Equal(got, want) {
		t.Errorf("the coordinator's: %v, want %v", got, want)
	}
	installed := Config{Kubelet: Real, Installed: true}
	if got := (node{place: place{1, 1}, cfg: installed}).keys(); !slices.Equal(got, want[:4]) {
		t.Errorf("in an installed lab: %v, want %v", got, want[:4])
	}
	want = []string{"cloud.crt", "cloud.key", "cloud-kubelet.crt", "cloud-kubelet.key", "cloud.kubeconfig"}
	if got := (node{place: inCloud, cfg: installed}).keys(); !slices.Equal(got, want) {
		t.Errorf("the cloud's as a node: %v, want %v", got, want)
	}
}

// kubelet reports a status that has not changed as often as it computes one, where only the latter is set: so both are.
func TestStatusReports(t *testing.T) {
	for name, tt := range map[string]struct {
		timing         Timing
		update, report string
	}{
		"stock": {Stock, "10s", "5m0s"},
		"quick": {Quick, "4s", "4s"},
	} {
		for _, at := range []place{{1, 1}, inCloud} {
			n := node{place: at, cfg: Config{Kubelet: Real, Timing: tt.timing, Installed: at == inCloud}, bins: programs()}
			var got struct{ NodeStatusUpdateFrequency, NodeStatusReportFrequency string }
			if err := yaml.Unmarshal([]byte(n.kubeletConfig()), &got); err != nil {
				t.Fatal(err)
			}
			if got.NodeStatusUpdateFrequency != tt.update || got.NodeStatusReportFrequency != tt.report {
				t.Errorf("%s, %s: computed every %s and reported every %s, want %s and %s", name, n.name(),
					got.NodeStatusUpdateFrequency, got.NodeStatusReportFrequency, tt.update, tt.report)
			}
		}
	}
}

// The files are put together from text; what reads them must at least find them whole.
func TestFilesOfANode(t *testing.T) {
	n := node{
		place: place{2, 3}, cfg: Config{Kubelet: Real, Timing: Quick, CoreDNS: true}, bins: programs(), disk: t.TempDir(),
		snapshotter: "native",
	}
	if err := n.writeFiles(); err != nil {
		t.Fatal(err)
	}
	read := func(name string, parse func([]byte, any) error) map[string]any {
		content, err := os.ReadFile(n.file(name))
		if err != nil {
			t.Fatal(err)
		}
		v := map[string]any{}
		if err := parse(content, &v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if strings.Contains(string(content), "$") {
			t.Errorf("%s: a name was not replaced:\n%s", name, content)
		}
		return v
	}
	strict := func(content []byte, v any) error { return yaml.UnmarshalStrict(content, v) }
	kubelet := read("kubelet.yaml", strict)
	if got := kubelet["nodeLeaseDurationSeconds"]; got != 8.0 {
		t.Errorf("kubelet.yaml: nodeLeaseDurationSeconds %v, want 8", got)
	}
	if got := fmt.Sprint(kubelet["clusterDNS"]); got != "[10.78.2.3]" {
		t.Errorf("kubelet.yaml: clusterDNS %s, want the node's own address", got)
	}
	corefile, err := os.ReadFile(n.file("Corefile"))
	if err != nil || strings.Contains(string(corefile), "$") ||
		!strings.Contains(string(corefile), "bind 127.0.0.1 10.78.2.3\n") ||
		!strings.Contains(string(corefile), "endpoint https://127.0.0.1:10261\n") ||
		!strings.Contains(string(corefile), "kubeconfig "+n.file("dns.kubeconfig")) {
		t.Errorf("Corefile: %v\n%s", err, corefile)
	}
	if proxy := read("kube-proxy.yaml", strict); proxy["clusterCIDR"] != "10.128.0.0/9" {
		t.Errorf("kube-proxy.yaml: clusterCIDR %v", proxy["clusterCIDR"])
	}
	if hub := fmt.Sprint(read("hub.kubeconfig", strict)["clusters"]); !strings.Contains(hub, hubAddress) {
		t.Errorf("hub.kubeconfig: %s", hub)
	}
	plugins := fmt.Sprint(read("cni/10-pods.conflist", json.Unmarshal)["plugins"])
	if !strings.Contains(plugins, "10.130.3.0/24") {
		t.Errorf("conflist: %s", plugins)
	}
	n.cfg.IPFamily = DualStack
	if err := n.writeFiles(); err != nil {
		t.Fatal(err)
	}
	if proxy := read("kube-proxy.yaml", strict); proxy["clusterCIDR"] != "10.128.0.0/9,fd00:10:128::/48" {
		t.Errorf("kube-proxy.yaml, both IP families: clusterCIDR %v", proxy["clusterCIDR"])
	}
	plugins = fmt.Sprint(read("cni/10-pods.conflist", json.Unmarshal)["plugins"])
	for _, want := range []string{
		"ranges:[[map[subnet:10.130.3.0/24]] [map[subnet:fd00:10:128:203::/64]]]", "routes:[map[dst:0.0.0.0/0] map[dst:::/0]]",
	} {
		if !strings.Contains(plugins, want) {
			t.Errorf("conflist, both IP families: %s, want %s", plugins, want)
		}
	}
	if corefile, err = os.ReadFile(n.file("Corefile")); err != nil ||
		!strings.Contains(string(corefile), "bind 127.0.0.1 10.78.2.3 fd00:10:78:2::3\n") {
		t.Errorf("Corefile, both IP families: %v\n%s", err, corefile)
	}
	containerd, err := os.ReadFile(n.file("containerd.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"snapshotter = 'native'", "'/bin/CNIDir'", "BinaryName = '/bin/Runc'"} {
		if !strings.Contains(string(containerd), want) || strings.Contains(string(containerd), "$") {
			t.Errorf("containerd.toml has no %s, or a name was not replaced:\n%s", want, containerd)
		}
	}
}
