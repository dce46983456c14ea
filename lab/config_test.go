package lab

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	valid := Config{Name: "a-1", Pools: 1, Nodes: 3, Kubelet: Hollow, Timing: Quick}
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   string // in the error; empty: none
	}{
		{"as it is", func(*Config) {}, ""},
		{"one letter", func(c *Config) { c.Name = "a" }, ""},
		{"a name as long as may be", func(c *Config) { c.Name = strings.Repeat("a", 40) }, ""},
		{"as large as may be", func(c *Config) { c.Pools, c.Nodes, c.Kubelet = MaxPools, MaxNodes, Real }, ""},
		{"no name", func(c *Config) { c.Name = "" }, "--name"},
		{"a path", func(c *Config) { c.Name = "../up" }, "--name"},
		{"IPv6", func(c *Config) { c.IPFamily = IPv6 }, ""},
		{"both IP families", func(c *Config) { c.IPFamily = DualStack }, ""},
		{"no IP family", func(c *Config) { c.IPFamily = "IPv5" }, "--ip-family"},
		{"an upper-case letter", func(c *Config) { c.Name = "Lab" }, "--name"},
		{"a hyphen at the end", func(c *Config) { c.Name = "a-" }, "--name"},
		{"a name too long", func(c *Config) { c.Name = strings.Repeat("a", 41) }, "--name"},
		{"a name of two lines", func(c *Config) { c.Name = "a\nb" }, "--name"},
		{"no pools", func(c *Config) { c.Pools = 0 }, "--pools 0: want 1 to 50"},
		{"too many pools", func(c *Config) { c.Pools = MaxPools + 1 }, "--pools 51"},
		{"no nodes", func(c *Config) { c.Nodes = -1 }, "--nodes -1: want 1 to 250"},
		{"too many nodes", func(c *Config) { c.Nodes = MaxNodes + 1 }, "--nodes 251"},
		{"a standby", func(c *Config) { c.Nodes, c.Coordinators = 3, 2 }, ""},
		{"more coordinators than slots", func(c *Config) { c.Nodes, c.Coordinators = 9, 4 }, "4 coordinators in a pool"},
		{"more coordinators than nodes", func(c *Config) { c.Nodes, c.Coordinators = 1, 2 }, "2 coordinators in a pool"},
		{"installed, with a standby", func(c *Config) { *c = c.AsInstalled(); c.Coordinators = 2 },
			"a lab that starts them itself"},
		{"no kubelet", func(c *Config) { c.Kubelet = "" }, "--kubelet"},
		{"installed", func(c *Config) { c.Kubelet, c.Installed = Real, true }, ""},
		{"installed, hollow", func(c *Config) { c.Installed = true }, "--installed runs the system in Pods"},
		{"installed, no kubelets", func(c *Config) { c.Kubelet, c.Installed, c.NoKubelet = Real, true, true }, "--kubelet real"},
		{"installed, no coordinator", func(c *Config) { c.Kubelet, c.Installed, c.NoCoordinator = Real, true, true },
			"leave --no-coordinator out"},
		{"bare", func(c *Config) { *c = valid.AsBare(); c.Name = "a" }, ""},
		{"bare, not installed", func(c *Config) { c.Bare = true }, "a bare lab is an installed one"},
		{"of another Kubernetes", func(c *Config) { c.Kubelet, c.Kubernetes, c.KubeletVersion = Real, "1.34", "1.33" }, ""},
		{"hubs alone, of another Kubernetes", func(c *Config) { c.NoKubelet, c.Kubernetes = true, "1.34" }, ""},
		{"hollow, of another Kubernetes", func(c *Config) { c.Kubernetes = "1.34" }, "--kubelet hollow is of our own Kubernetes"},
		{"hollow, with other kubelets", func(c *Config) { c.KubeletVersion = "1.34" }, "--kubelet hollow is of our own"},
		{"another kubelet", func(c *Config) { c.Kubelet = "fake" }, `--kubelet "fake": want real or hollow`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := valid
			tt.change(&c)
			err := c.Validate()
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) ||
				strings.Contains(err.Error(), "\n")):
				t.Errorf("%v, want one line with %q", err, tt.want)
			}
		})
	}
}

// What is removed at the end is this directory: it must never be another.
func TestDirStaysBelowTheRoot(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	root, err := StateRoot()
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := Dir("a-1"); err != nil || dir != filepath.Join(root, "a-1") {
		t.Errorf("%q, %v", dir, err)
	}
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/etc"} {
		if dir, err := Dir(name); err == nil {
			t.Errorf("%q is at %q", name, dir)
		}
	}
}

// A grace period must have room for heartbeats that are late: four of them, and of looks at them, in any timing.
func TestTimings(t *testing.T) {
	for name, timing := range map[string]Timing{"quick": Quick, "stock": Stock} {
		if renewed := timing.Lease / 4; renewed > timing.Grace/4 || timing.Monitor > timing.Grace/4 {
			t.Errorf("%s: a Lease renewed every %v, watched every %v, is too slow for a grace period of %v",
				name, renewed, timing.Monitor, timing.Grace)
		}
		if every := statusEvery(timing); every <= 0 || every >= timing.Grace/2 {
			t.Errorf("%s: status every %v", name, every)
		}
	}
}

// TestWatchers: Debian allows 128 of them, which is enough for what the scenarios need without --installed.
func TestWatchers(t *testing.T) {
	const usual = 128
	for name, tt := range map[string]struct {
		cfg  Config
		fits bool
	}{
		"ten real nodes":        {Config{Pools: 1, Nodes: 10, Kubelet: Real}, true},
		"thirty real nodes":     {Config{Pools: 1, Nodes: 30, Kubelet: Real}, false},
		"thirty hollow nodes":   {Config{Pools: 1, Nodes: 30, Kubelet: Hollow}, true},
		"four bare machines":    {Config{Pools: 1, Nodes: 3}.AsBare(), true},
		"two hundred bare hubs": {Config{Pools: 5, Nodes: 40, Kubelet: Hollow, NoKubelet: true, NoProxy: true}, true},
	} {
		if need := tt.cfg.watchers(); (need <= usual) != tt.fits {
			t.Errorf("%s need %d", name, need)
		}
	}
}
