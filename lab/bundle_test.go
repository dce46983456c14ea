package lab

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestBundleOf(t *testing.T) {
	for args, want := range map[string]string{
		"--root /run/r --log /l create --bundle /b --pid-file /p x": "/b",
		"create --bundle=/b x":               "/b",
		"create -b /b x":                     "/b",
		"--root /run/r kill --all x 9":       "",
		"create --pid-file /p x":             "",
		"create --bundle":                    "",
		"--log /bundle create --pid-file=/b": "",
	} {
		if got := bundleOf(strings.Fields(args)); got != want {
			t.Errorf("bundleOf(%s) = %q, want %q", args, got, want)
		}
	}
}

func TestWithoutCgroups(t *testing.T) {
	const spec = `{"ociVersion":"1.2.0","process":{"rlimits":[{"hard":18446744073709551615}]},"mounts":[` +
		`{"destination":"/proc","type":"proc"},{"destination":"/sys/fs/cgroup","type":"cgroup"}],` +
		`"linux":{"cgroupsPath":"/k8s.io/x","resources":{"memory":{"limit":1}},"namespaces":[{"type":"pid"}]}}`
	const want = `{"ociVersion":"1.2.0","process":{"rlimits":[{"hard":18446744073709551615}]},"mounts":[` +
		`{"destination":"/proc","type":"proc"}],"linux":{"namespaces":[{"type":"pid"}]}}`
	got, err := withoutCgroups([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	var left, right any
	if err := errors.Join(json.Unmarshal(got, &left), json.Unmarshal([]byte(want), &right)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(left, right) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if !strings.Contains(string(got), "18446744073709551615") {
		t.Errorf("a large number has changed: %s", got)
	}
	for _, bad := range []string{"", "{}", `{"linux":[]}`} {
		if _, err := withoutCgroups([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a container", bad)
		}
	}
}

func TestRuncScriptPassesOnWhatIsNotACreation(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	runc := write("real runc", "#!/bin/sh\necho real \"$@\"\n")
	script := write("runc", runcScript(runc))
	out, err := exec.CommandContext(t.Context(), script, "--root", "/r r", "delete", "x").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "real --root /r r delete x" {
		t.Errorf("runc delete: %q, %v", got, err)
	}
	if !strings.Contains(runcScript(runc), "exec /proc/1/exe "+runcArg+" '"+runc+"' \"$@\"") {
		t.Errorf("creations do not go by way of this program:\n%s", runcScript(runc))
	}
}

func TestFilesOfANodeWithoutCgroups(t *testing.T) {
	n := node{
		place: place{1, 1}, cfg: Config{Kubelet: Real, Timing: Quick, NoCgroups: true},
		bins: programs(), disk: t.TempDir(), snapshotter: "native",
	}
	if err := n.writeFiles(); err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string][]string{
		"kubelet.yaml": {"KubeletInUserNamespace: true", "cgroupsPerQOS: false", "enforceNodeAllocatable: []"},
		"containerd.toml": {
			"BinaryName = '" + n.file(runcFile) + "'", "disable_apparmor = true", "restrict_oom_score_adj = true",
		},
		runcFile: {"'" + n.bins.Runc + "'"},
	} {
		content, err := os.ReadFile(n.file(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains(string(content), line) {
				t.Errorf("%s has no %q:\n%s", name, line, content)
			}
		}
	}
	if info, err := os.Stat(n.file(runcFile)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("what stands in for runc can't be executed: %v, %v", info.Mode(), err)
	}
}
