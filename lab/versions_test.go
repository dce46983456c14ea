package lab

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/lab/build"
)

func TestSince(t *testing.T) {
	for _, tt := range []struct {
		have, first string
		want        bool
	}{
		{"v1.36.3", "1.36", true},
		{"v1.36.0", "1.36", true},
		{"v1.35.4", "1.36", false},
		{"v1.9.0", "1.35", false},
		{"v1.100.0", "1.36", true},
		{"v2.0.0", "1.36", true},
		{"", "1.36", true},
	} {
		if got := since(tt.have, tt.first); got != tt.want {
			t.Errorf("%q since %s: %v", tt.have, tt.first, got)
		}
	}
}

// A kubelet refuses settings whose feature gates are off, and gates are set in one place.
func TestKubeletGates(t *testing.T) {
	for name, tt := range map[string]struct {
		kubelet              string
		installed, noCgroups bool
		want                 map[string]bool
	}{
		"ours":                 {"v1.36.3", true, false, nil},
		"without cgroups":      {"v1.36.3", true, true, map[string]bool{"KubeletInUserNamespace": true}},
		"since 1.35":           {"v1.35.4", true, false, nil},
		"older":                {"v1.34.4", true, false, map[string]bool{"KubeletCrashLoopBackOffMax": true}},
		"older, not installed": {"v1.33.13", false, false, nil},
		"older, without cgroups": {"v1.33.13", true, true,
			map[string]bool{"KubeletInUserNamespace": true, "KubeletCrashLoopBackOffMax": true}},
		"nobody has said which":    {"", true, false, nil},
		"not installed, no cgroup": {"", false, true, map[string]bool{"KubeletInUserNamespace": true}},
	} {
		n := node{
			place: place{1, 1}, bins: build.Binaries{KubeletVersion: tt.kubelet},
			cfg: Config{Kubelet: Real, Timing: Quick, Installed: tt.installed, NoCgroups: tt.noCgroups},
		}
		var got struct {
			FeatureGates     map[string]bool
			CrashLoopBackOff map[string]string
			CgroupsPerQOS    bool
		}
		if err := yaml.Unmarshal([]byte(n.kubeletConfig()), &got); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !reflect.DeepEqual(got.FeatureGates, tt.want) || got.CgroupsPerQOS == tt.noCgroups ||
			(got.CrashLoopBackOff["maxContainerRestartPeriod"] == "1s") != tt.installed {
			t.Errorf("%s: %+v, want the gates %v", name, got, tt.want)
		}
	}
}

// The verbs by which impersonation is constrained mean nothing to an API server before 1.36: there a leader needs the plain one.
func TestForwardersOfOtherClouds(t *testing.T) {
	for version, want := range map[string]string{
		"v1.33.13": "impersonate", "v1.35.4": "impersonate",
		"v1.36.3": "impersonate:serviceaccount", "v1.37.2": "impersonate:serviceaccount",
	} {
		cfg := Config{Pools: 1, Nodes: 3}
		l := &Lab{cfg: cfg, all: cfg.places(), bins: build.Binaries{KubernetesVersion: version}}
		objects, err := l.systemRights()
		if err != nil {
			t.Fatal(err)
		}
		var verbs []string
		for _, o := range objects {
			role, ok := o.(*rbacv1.Role)
			if !ok {
				continue
			}
			for _, r := range role.Rules {
				verbs = append(verbs, slices.DeleteFunc(slices.Clone(r.Verbs), func(v string) bool {
					return !strings.HasPrefix(v, "impersonate") || strings.HasPrefix(v, "impersonate-on")
				})...)
			}
		}
		if !slices.Equal(verbs, []string{want}) {
			t.Errorf("%s: the pool's nodes may %v, want %s", version, verbs, want)
		}
	}
}

// Helm's template takes the cloud for the Kubernetes that Helm is made from, and the chart decides by its version.
func TestRenderedForTheCloud(t *testing.T) {
	for version, want := range map[string]bool{"v1.34.4": true, "": false} {
		l := &Lab{
			dir: t.TempDir(), cfg: Config{Pools: 1, Chart: "/chart"},
			bins: build.Binaries{Helm: "/bin/helm", KubernetesVersion: version},
		}
		args := l.renderCommand(t.Context()).Args
		if got := slices.Contains(args, "--kube-version="+version); got != want {
			t.Errorf("%q: %v", version, args)
		}
	}
}
