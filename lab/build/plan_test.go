package build

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func example() inputs {
	return inputs{versions: versions{kubernetes: "v1.36.3", etcd: "v3.6.8"}, module: "example.org/ours",
		goMod: "module example.org/ours", tree: "1234"}
}

func names(sets []set) []string {
	var n []string
	for _, s := range sets {
		n = append(n, s.name)
	}
	return n
}

func TestPlanNamesEveryBinary(t *testing.T) {
	in := example()
	if got, want := names(plan(in)), []string{"kubernetes", "programs"}; !slices.Equal(got, want) {
		t.Errorf("sets %v, want %v", got, want)
	}
	in.real, in.coredns, in.helm, in.kubectlOlder, in.openYurt, in.flannel, in.caddy = true, true, true, true, true, true, true
	in.releases, in.prometheus, in.former, in.supply = true, true, "c0ffee", true
	var files []string
	for _, s := range plan(in) {
		files = append(files, s.files()...)
	}
	slices.Sort(files)
	want := strings.Fields(`bin/caddy
		bin/containerd bin/containerd-shim-runc-v2 bin/coordinator-controller bin/coredns bin/cosign bin/ctr
		bin/etcd
		bin/flanneld bin/helm bin/hollow bin/krew bin/kube-apiserver bin/kube-controller-manager bin/kube-proxy bin/kube-scheduler
		bin/kubeadm
		bin/kubectl bin/kubectl-older bin/kubectl-yurt bin/kubelet bin/pause bin/prometheus bin/promtool bin/registry bin/runc
		bin/yurt-coordinator bin/yurt-manager bin/yurthub bin/yurthub-faulty bin/yurthub-well cni/bridge
		cni/host-local cni/loopback cni/portmap
		former/coordinator-controller former/yurt-coordinator former/yurthub`)
	if !slices.Equal(files, want) {
		t.Errorf("files\n%v, want\n%v", files, want)
	}
}

// One set alone is made whether or not a lab would need it.
func TestPlanOfOneSet(t *testing.T) {
	for _, name := range Sets() {
		in := example()
		in.only = name
		if got := names(plan(in)); !slices.Equal(got, []string{name}) {
			t.Errorf("only %s: sets %v", name, got)
		}
	}
	in := example()
	in.real, in.coredns, in.helm, in.kubectlOlder, in.openYurt, in.flannel, in.caddy = true, true, true, true, true, true, true
	in.releases, in.prometheus, in.former, in.supply = true, true, "c0ffee", true
	if got := names(plan(in)); !slices.Equal(got, Sets()) {
		t.Errorf("sets %v, want %v", got, Sets())
	}
}

// TestKeys changes one input at a time and looks which sets are built again.
func TestKeys(t *testing.T) {
	keys := func(in inputs, env map[string]string) map[string]string {
		in.real = true
		k := map[string]string{}
		for _, s := range plan(in) {
			key, err := s.key(env)
			if err != nil {
				t.Fatal(err)
			}
			k[s.name] = key
		}
		return k
	}
	env := map[string]string{"GOVERSION": "go1.26.8", "GOFLAGS": ""}
	base := keys(example(), env)
	for _, test := range []struct {
		name   string
		change func(*inputs, map[string]string)
		want   []string
	}{
		{"nothing", func(*inputs, map[string]string) {}, nil},
		{"our source", func(in *inputs, _ map[string]string) { in.tree = "5678" }, []string{"programs"}},
		{"race detector", func(in *inputs, _ map[string]string) { in.race = true }, []string{"programs"}},
		{"the lab's go.mod", func(in *inputs, _ map[string]string) { in.goMod += "\n" }, []string{"kubernetes"}},
		{"Kubernetes", func(in *inputs, _ map[string]string) { in.versions.kubernetes = "v1.36.4" },
			[]string{"kubernetes", "programs"}},
		{"Go", func(_ *inputs, env map[string]string) { env["GOVERSION"] = "go1.26.9" },
			[]string{"containers", "kubernetes", "programs"}},
		{"CoreDNS is wanted", func(in *inputs, _ map[string]string) { in.coredns = true }, []string{"coredns"}},
		{"Helm is wanted", func(in *inputs, _ map[string]string) { in.helm = true }, []string{"helm"}},
		{"the older kubectl is wanted", func(in *inputs, _ map[string]string) { in.kubectlOlder = true },
			[]string{"kubectl-older"}},
		{"OpenYurt is wanted", func(in *inputs, _ map[string]string) { in.openYurt = true }, []string{"openyurt"}},
		{"Prometheus is wanted", func(in *inputs, _ map[string]string) { in.prometheus = true }, []string{"prometheus"}},
		{"the way of a release is wanted", func(in *inputs, _ map[string]string) { in.supply = true }, []string{"supply"}},
		{"the next releases are wanted", func(in *inputs, _ map[string]string) { in.releases = true }, []string{"releases"}},
		{"flags", func(_ *inputs, env map[string]string) { env["GOFLAGS"] = "-trimpath" },
			[]string{"containers", "kubernetes", "programs"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in, env := example(), map[string]string{"GOVERSION": "go1.26.8", "GOFLAGS": ""}
			test.change(&in, env)
			var changed []string
			for name, key := range keys(in, env) {
				if key != base[name] {
					changed = append(changed, name)
				}
			}
			slices.Sort(changed)
			if !slices.Equal(changed, test.want) {
				t.Errorf("rebuilds %v, want %v", changed, test.want)
			}
		})
	}
}

// keyOf returns a function that returns the key of a set after a change of the inputs.
func keyOf(t *testing.T, set string) func(change func(*inputs)) string {
	return func(change func(*inputs)) string {
		t.Helper()
		in := example()
		in.only = set
		change(&in)
		k, err := plan(in)[0].key(nil)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
}

func TestKeyOfTheOlderKubectl(t *testing.T) {
	key := keyOf(t, SetOlder)
	base := key(func(*inputs) {})
	for what, test := range map[string]struct {
		change func(*inputs)
		new    bool
	}{
		"its module":       {func(in *inputs) { in.olderTree = "5678" }, true},
		"its version":      {func(in *inputs) { in.versions.older = "v1.35.1" }, true},
		"our source":       {func(in *inputs) { in.tree = "5678" }, false},
		"the lab's go.mod": {func(in *inputs) { in.goMod += "\n" }, false},
	} {
		if changed := key(test.change) != base; changed != test.new {
			t.Errorf("%s: another key: %v", what, changed)
		}
	}
}

// TestOlderKubectlIsOlder holds the two go.mods against each other: whoever raises Kubernetes raises the older kubectl too.
func TestOlderKubectlIsOlder(t *testing.T) {
	b := &builder{}
	var err error
	const root = "../.."
	if b.tool, err = newGoTool(root); err != nil {
		t.Fatal(err)
	}
	_, required, err := b.tool.module(t.Context(), filepath.Join(root, labDir))
	if err != nil {
		t.Fatal(err)
	}
	var in inputs
	if err := b.older(t.Context(), root, &in); err != nil {
		t.Fatal(err)
	}
	var ours, older int
	_, errOurs := fmt.Sscanf(required[kubernetesModule], "v1.%d.", &ours)
	_, errOlder := fmt.Sscanf(in.versions.older, "v1.%d.", &older)
	if err := errors.Join(errOurs, errOlder); err != nil || older != ours-1 {
		t.Errorf("Kubernetes is %s, the older kubectl %s (%v): want the minor version before, in %s/go.mod",
			required[kubernetesModule], in.versions.older, err, olderDir)
	}
	if len(in.olderTree) != 64 {
		t.Errorf("its source is %q", in.olderTree)
	}
	if err := b.older(t.Context(), t.TempDir(), &in); err == nil {
		t.Error("a module that is not there has a version")
	}
}

func TestVersionFlags(t *testing.T) {
	got := strings.Join(VersionFlags("v1.36.3"), " ")
	for _, want := range []string{"-s -w", "-X k8s.io/component-base/version.gitVersion=v1.36.3",
		"-X k8s.io/component-base/version.gitMajor=1 ", "-X k8s.io/client-go/pkg/version.gitMinor=36 "} {
		if !strings.Contains(got, want) {
			t.Errorf("flags %q lack %q", got, want)
		}
	}
}

// TestLinkedAsTheLab: the Makefile links what is released as the lab links our programs.
func TestLinkedAsTheLab(t *testing.T) {
	printed := func(args ...string) []string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		flags := strings.Split(strings.Join(strings.Fields(string(out)), " "), " -")
		slices.Sort(flags)
		return flags
	}
	kubernetes := printed("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")[0]
	lab := slices.Concat(VersionFlags(kubernetes), ReleaseFlags("yurtcoordinator", "v1.2.3", "c0ffee"))
	want := printed("echo", strings.Join(lab, " "), "-buildid=")
	has := printed("make", "-s", "--no-print-directory", "ldflags", "VERSION=v1.2.3", "COMMIT=c0ffee")
	if !slices.Equal(has, want) {
		t.Errorf("%q, want %q", has, want)
	}
}

func TestRaceIsForOurProgramsOnly(t *testing.T) {
	in := example()
	in.real, in.race = true, true
	for _, s := range plan(in) {
		for _, st := range s.stages {
			race := slices.Contains(st.args("/work"), "-race")
			want := slices.Contains(st.Packages, "example.org/ours/cmd/yurthub")
			if race != want || st.Race && !st.CGO {
				t.Errorf("%s: race %v, cgo %v", st.Title, race, st.CGO)
			}
		}
	}
}

func TestAbout(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                 "less than a minute",
		59 * time.Second:  "less than a minute",
		61 * time.Second:  "about a minute",
		89 * time.Second:  "about a minute",
		91 * time.Second:  "about 2 minutes",
		400 * time.Second: "about 7 minutes",
	} {
		if got := about(d); got != want {
			t.Errorf("about(%s) = %q, want %q", d, got, want)
		}
	}
}

func TestFingerprint(t *testing.T) {
	root := t.TempDir()
	write := func(path, content string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	take := func() string {
		t.Helper()
		sum, err := fingerprint(root)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	write("go.mod", "module x")
	write("cmd/x/main.go", "package main")
	before := take()
	for path, matters := range map[string]bool{
		"cmd/x/more.go":       true,
		"cmd/x/embedded.yaml": true,
		"go.sum":              true,
		"cmd/x/main_test.go":  false,
		"cmd/x/testdata/a.go": false,
		".git/index":          false,
		"README.md":           false,
		"cmd/x/.swp":          false,
		"_scratch/a.go":       false,
		"other/go.mod":        false,
		"other/main.go":       false,
	} {
		if path == "other/main.go" {
			write("other/go.mod", "module other")
		}
		write(path, "something")
		if changed := take() != before; changed != matters {
			t.Errorf("%s changes the fingerprint: %v", path, changed)
		}
		if err := os.RemoveAll(filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
		if take() != before {
			t.Fatalf("removing %s does not bring the fingerprint back", path)
		}
	}
	write("cmd/x/main.go", "package  main")
	if take() == before {
		t.Error("a changed file does not change the fingerprint")
	}
	if _, err := fingerprint(filepath.Join(root, "missing")); err == nil {
		t.Error("a missing directory has a fingerprint")
	}
}
