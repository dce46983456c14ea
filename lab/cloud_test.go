package lab

import (
	"slices"
	"strings"
	"testing"
)

func TestOverride(t *testing.T) {
	const argv = "/bin/kube-apiserver --authorization-mode=Node,RBAC --authorization-mode-x=1 --watch-cache --v=1"
	for flags, want := range map[string]string{
		"": argv,
		"--authorization-mode=AlwaysAllow --etcd-prefix=/empty": "/bin/kube-apiserver --authorization-mode-x=1 " +
			"--watch-cache --v=1 --authorization-mode=AlwaysAllow --etcd-prefix=/empty",
		"--watch-cache=false": "/bin/kube-apiserver --authorization-mode=Node,RBAC --authorization-mode-x=1 --v=1 " +
			"--watch-cache=false",
	} {
		before := strings.Fields(argv)
		got, err := override(before, strings.Fields(flags))
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("with %q: %q, %v; want %q", flags, got, err, want)
		}
		if !slices.Equal(before, strings.Fields(argv)) {
			t.Errorf("with %q: the original has changed: %q", flags, before)
		}
	}
	for _, bad := range []string{"v=1", "-v=1", "--", "--=1"} {
		if got, err := override(strings.Fields(argv), []string{bad}); err == nil {
			t.Errorf("%q is taken for a flag: %q", bad, got)
		}
	}
}

func TestComponentsOfTheCloud(t *testing.T) {
	core, rest := controlPlane(programs(), "/disk", Config{Timing: Quick})
	all := slices.Concat(core, rest)
	for _, c := range []Component{Etcd, KubeAPIServer, KubeControllerManager, KubeScheduler, CoordinatorController} {
		if command, err := findCommand(all, c); err != nil || command.Name != string(c) {
			t.Errorf("%s: %q, %v", c, command.Name, err)
		}
	}
	core, rest = controlPlane(programs(), "/disk", Config{Timing: Quick, Installed: true})
	if c, err := findCommand(slices.Concat(core, rest), CoordinatorController); err == nil {
		t.Errorf("an installed lab starts %s by itself, and the chart another", c.Name)
	}
	if _, err := findCommand(all, Hub); err == nil || !strings.Contains(err.Error(), "want one of etcd") {
		t.Errorf("the cloud has a hub: %v", err)
	}
	if command, err := findCommand(all, All); err != nil || command.Name != "" {
		t.Errorf("all: %q, %v", command.Name, err)
	}
}
