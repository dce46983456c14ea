package build

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		kubernetes, kubelet string
		cloud, node         string
		why                 string // in the error; empty: none
	}{
		{"", "", "1.36", "1.36", ""},
		{"1.36", "1.36", "1.36", "1.36", ""},
		{"1.9", "", "1.9", "1.9", ""},
		{"1.34", "", "1.34", "1.34", ""},
		{"1.34", "1.33", "1.34", "1.33", ""},
		{"", "1.33", "1.36", "1.33", ""},
		{"1.37", "1.36", "1.37", "1.36", ""},
		{"1.37", "1.33", "", "", "at most 3 minor versions older"},
		{"1.34", "1.9", "", "", "at most 3 minor versions older"},
		{"1.33", "1.34", "", "", "newer than the API server, which is 1.33"},
		{"", "1.37", "", "", "newer than the API server, which is 1.36"},
		{"1.32", "", "", "", "--kubernetes 1.32: want one of 1.9, 1.33, 1.34, 1.36, 1.37"},
		{"1.34.4", "", "", "", `--kubernetes "1.34.4": want a minor version`},
		{"", "newest", "", "", `--kubelet-version "newest": want a minor version`},
	} {
		cloud, node, err := choose("1.36", []string{"1.33", "1.34", "1.37", "1.9"}, tt.kubernetes, tt.kubelet)
		if cloud != tt.cloud || node != tt.node || (err != nil) != (tt.why != "") ||
			err != nil && !strings.Contains(err.Error(), tt.why) {
			t.Errorf("--kubernetes %q --kubelet-version %q: %q, %q, %v; want %q, %q, %q", tt.kubernetes, tt.kubelet, cloud, node,
				err, tt.cloud, tt.node, tt.why)
		}
	}
}

// TestPlanOfOtherVersions: each other version is built whole, once, and the lab takes from it what it runs.
func TestPlanOfOtherVersions(t *testing.T) {
	const root = "../.."
	b := &builder{}
	var err error
	if b.tool, err = newGoTool(root); err != nil {
		t.Fatal(err)
	}
	const cloud = "bin/kube-apiserver bin/kube-controller-manager bin/kube-scheduler bin/kubectl bin/kubeadm"
	const node = "bin/kube-proxy bin/kubelet"
	for _, tt := range []struct {
		config           Config
		sets             []string
		gives            map[string]string
		oldCloud, oldest bool
	}{
		{Config{}, []string{"kubernetes", "programs"}, nil, false, false},
		{Config{Kubernetes: "1.36", KubeletVersion: "1.36"}, []string{"kubernetes", "programs"}, nil, false, false},
		{Config{Kubernetes: "1.34"}, []string{"kubernetes", "kubernetes1.34", "programs"},
			map[string]string{"kubernetes1.34": cloud + " " + node}, true, true},
		{Config{Kubernetes: "1.34", KubeletVersion: "1.33"},
			[]string{"kubernetes", "kubernetes1.34", "kubernetes1.33", "programs"},
			map[string]string{"kubernetes1.34": cloud, "kubernetes1.33": node}, true, true},
		{Config{KubeletVersion: "1.33"}, []string{"kubernetes", "kubernetes1.33", "programs"},
			map[string]string{"kubernetes1.33": node}, false, true},
	} {
		in := example()
		if err := b.others(t.Context(), root, tt.config, &in); err != nil {
			t.Fatal(err)
		}
		sets := plan(in)
		if got := names(sets); !slices.Equal(got, tt.sets) {
			t.Errorf("%+v: sets %v, want %v", tt.config, got, tt.sets)
		}
		for _, s := range sets {
			if want, other := tt.gives[s.name]; other && !slices.Equal(s.given(), strings.Fields(want)) {
				t.Errorf("%+v: %s gives %v, want %s", tt.config, s.name, s.given(), want)
			} else if !other && !slices.Equal(s.given(), s.files()) {
				t.Errorf("%+v: %s gives %v", tt.config, s.name, s.given())
			} else if other && len(s.files()) != len(kubernetesPrograms) {
				t.Errorf("%s makes %v, want all of Kubernetes' programs", s.name, s.files())
			}
		}
		older := func(v string) bool { return strings.HasPrefix(v, "v1.34.") || strings.HasPrefix(v, "v1.33.") }
		if older(in.versions.cloud) != tt.oldCloud || older(in.versions.node) != tt.oldest {
			t.Errorf("%+v: versions %+v", tt.config, in.versions)
		}
	}
	in := example()
	if err := b.others(t.Context(), t.TempDir(), Config{Kubernetes: "1.34"}, &in); err == nil {
		t.Error("a version without a module was taken")
	}
}

// TestKeyOfAnotherVersion: its module decides, and neither our source nor the Go build cache that it is compiled in.
func TestKeyOfAnotherVersion(t *testing.T) {
	key := func(change func(*inputs)) string {
		in := example()
		in.others = []other{{minor: "1.34", version: "v1.34.4", tree: "1234", programs: nodePrograms}}
		change(&in)
		k, err := plan(in)[1].key(nil)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	base := key(func(*inputs) {})
	for what, test := range map[string]struct {
		change func(*inputs)
		new    bool
	}{
		"its module":              {func(in *inputs) { in.others[0].tree = "5678" }, true},
		"its version":             {func(in *inputs) { in.others[0].version = "v1.34.5" }, true},
		"what the lab runs of it": {func(in *inputs) { in.others[0].programs = cloudPrograms }, false},
		"our source":              {func(in *inputs) { in.tree = "5678" }, false},
		"the lab's go.mod":        {func(in *inputs) { in.goMod += "\n" }, false},
	} {
		if changed := key(test.change) != base; changed != test.new {
			t.Errorf("%s: another key: %v", what, changed)
		}
	}
}

// TestOtherVersionsAreWhole holds the modules of other versions to what makes them a Kubernetes, by their files alone: go mod
// tidy would have to download four of them.
func TestOtherVersionsAreWhole(t *testing.T) {
	const root = "../.."
	all, ours, err := Versions(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(all, ours) || len(all) < 2 || !slices.IsSortedFunc(all, compare) || len(slices.Compact(all)) != len(all) {
		t.Fatalf("versions %v, ours %s: want each once, in order, with others", all, ours)
	}
	for _, minor := range all {
		if minor != ours {
			t.Run(minor, func(t *testing.T) { checkOther(t, filepath.Join(root, othersDir, minor), minor) })
		}
	}
}

var (
	toolLine    = regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes/cmd/(\S+)$`)
	requireLine = regexp.MustCompile(`(?m)^(?:require|\t)\s*(k8s\.io/\S+) (v\S+)(?: // indirect)?$`)
	replaceLine = regexp.MustCompile(`(?m)^\t(k8s\.io/\S+) => (\S+) (\S+)$`)
)

func checkOther(t *testing.T, dir, minor string) {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	mod, sums := read("go.mod"), read("go.sum")
	if want := "module yurtcoordinator/" + othersDir + "/" + minor + "\n"; !strings.HasPrefix(mod, want) {
		t.Errorf("go.mod does not begin with %q", want)
	}
	var tools []string
	for _, m := range toolLine.FindAllStringSubmatch(mod, -1) {
		tools = append(tools, m[1])
	}
	if want := slices.Sorted(slices.Values(kubernetesPrograms)); !slices.Equal(tools, want) {
		t.Errorf("tools %v, want %v", tools, want)
	}
	replaced := map[string]string{}
	for _, m := range replaceLine.FindAllStringSubmatch(mod, -1) {
		if m[1] != m[2] {
			t.Errorf("%s is replaced by %s: want another version of itself", m[1], m[2])
		}
		replaced[m[1]] = m[3]
	}
	kubernetes, staging := "", 0
	for _, m := range requireLine.FindAllStringSubmatch(mod, -1) {
		switch {
		case m[1] == kubernetesModule:
			kubernetes = m[2]
		case m[2] == "v0.0.0":
			staging++
			if replaced[m[1]] == "" {
				t.Errorf("%s is required at v0.0.0 and not replaced", m[1])
			}
		}
	}
	if got, err := minorOf(kubernetes); err != nil || got != minor {
		t.Fatalf("Kubernetes is %q (%v), want a %s", kubernetes, err, minor)
	}
	if staging < 10 || len(replaced) < staging {
		t.Errorf("%d staging modules are required, %d replaced: want all that Kubernetes has", staging, len(replaced))
	}
	if !strings.Contains(sums, kubernetesModule+" "+kubernetes+" h1:") {
		t.Errorf("go.sum lacks %s %s", kubernetesModule, kubernetes)
	}
	want := "v0." + strings.TrimPrefix(kubernetes, "v1.") // module v0.34.4 belongs to Kubernetes v1.34.4
	for module, version := range replaced {
		if version != want {
			t.Errorf("%s is %s: want %s, as Kubernetes is %s", module, version, want, kubernetes)
		}
		if !strings.Contains(sums, module+" "+want+"/go.mod h1:") {
			t.Errorf("go.sum lacks %s %s", module, want)
		}
	}
}

// TestApart: what is compiled once takes a Go build cache of its own, unless somebody has said which one to take.
func TestApart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), apartDir)
	g, err := newGoTool("../..")
	if err != nil {
		t.Fatal(err)
	}
	g.apart = dir
	cache := func(s stage) string {
		t.Helper()
		out, err := g.run(t.Context(), g.dir, s, nil, "env", "GOCACHE")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	t.Setenv("GOCACHE", "")
	if got := cache(stage{}); got == dir {
		t.Error("our own programs are compiled apart")
	}
	if got := cache(stage{Apart: true}); got != dir {
		t.Errorf("compiled in %s, want %s", got, dir)
	}
	if err := os.MkdirAll(filepath.Join(dir, "00"), 0o755); err != nil {
		t.Fatal(err)
	}
	g.trim()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the cache is left: %v", err)
	}
	said := t.TempDir()
	t.Setenv("GOCACHE", said)
	if got := cache(stage{Apart: true}); got != said {
		t.Errorf("compiled in %s, want %s, as was said", got, said)
	}
}
