package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSubordinate(t *testing.T) {
	const file = "# comment\nann:100000:65536\nbob:165536:65536\n1000:300000:10\nann:400000:5\n\n" +
		"ann:x:1\nann:1:-1\nann:5:0\nann:1\n"
	for _, test := range []struct {
		name, id string
		want     []span
	}{
		{"ann", "1000", []span{{100000, 65536}, {300000, 10}, {400000, 5}}},
		{"bob", "1001", []span{{165536, 65536}}},
		{"eve", "1002", nil},
	} {
		if got := subordinate(file, test.name, test.id); !slices.Equal(got, test.want) {
			t.Errorf("subordinate(%s, %s) = %v, want %v", test.name, test.id, got, test.want)
		}
	}
}

func TestMapping(t *testing.T) {
	for _, test := range []struct {
		spans []span
		want  string
	}{
		{nil, "0 1000 1"},
		{[]span{{100000, 65536}}, "0 1000 1 1 100000 65536"},
		{[]span{{100000, 10}, {200000, 20}}, "0 1000 1 1 100000 10 11 200000 20"},
	} {
		if got := strings.Join(mapping(1000, test.spans), " "); got != test.want {
			t.Errorf("mapping(%v) = %s, want %s", test.spans, got, test.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{
		"HOME=/home/ann", "PATH=/home/ann/bin:/usr/bin", "https_proxy=http://proxy", "HTTP_PROXY=http://proxy",
		"XDG_RUNTIME_DIR=/run/user/1000", "KUBECONFIG=/home/ann/work", "EMPTY=",
	})
	want := []string{
		"HOME=/home/ann", "EMPTY=", "PATH=/home/ann/bin:/usr/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin",
	}
	if !slices.Equal(got, want) {
		t.Errorf("environment:\n%q, want\n%q", got, want)
	}
}

func TestRemedy(t *testing.T) {
	const namespaces, clone, apparmor = "user/max_user_namespaces", "kernel/unprivileged_userns_clone",
		"kernel/apparmor_restrict_unprivileged_userns"
	type settings map[string]string
	for _, test := range []struct {
		name     string
		root     bool
		settings settings
		says     string
	}{
		{"root", true, settings{namespaces: "0"}, "--privileged"},
		{"no namespaces", false, settings{namespaces: "0"}, "sysctl -w user.max_user_namespaces=15000"},
		{"root's only", false, settings{namespaces: "9", clone: "0"}, "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"AppArmor", false, settings{clone: "1", apparmor: "1"},
			"sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		{"nothing to see", false, nil, "outside of the container"},
	} {
		got := remedy(test.root, func(path string) string { return test.settings[path] })
		if !strings.Contains(got, test.says) {
			t.Errorf("%s: %q does not say %q", test.name, got, test.says)
		}
	}
}

func TestOnlyRefusalsGetARemedy(t *testing.T) {
	other := errors.New("other")
	if got := refused(other); !errors.Is(got, other) || got.Error() != other.Error() {
		t.Errorf("refused(%v) = %v", other, got)
	}
	if refused(nil) != nil {
		t.Error("no error has become one")
	}
	for _, refusal := range []error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EINVAL} {
		got := refused(fmt.Errorf("mount: %w", refusal))
		if !errors.Is(got, refusal) || !strings.Contains(got.Error(), "\n") {
			t.Errorf("refused(%v) = %v", refusal, got)
		}
	}
}

func TestIgnoreExit(t *testing.T) {
	if err := ignoreExit(fmt.Errorf("wait: %w", &exec.ExitError{})); err != nil {
		t.Errorf("the end of a process that was killed is an error: %v", err)
	}
	if err := ignoreExit(fs.ErrClosed); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("an error that is no exit is lost: %v", err)
	}
}

func TestLeads(t *testing.T) {
	if !leads([]uint64{31169, 1}) {
		t.Error("the lab's own process is not found")
	}
	for _, ids := range [][]uint64{
		{31170, 5},    // a child of the lab's own process, just forked
		{31170, 5, 1}, // a machine's first process, before its execve
		{31169},       // outside of any lab
		nil,
	} {
		if leads(ids) {
			t.Errorf("leads(%v)", ids)
		}
	}
}

func TestSocketsFit(t *testing.T) {
	largest := Config{Pools: MaxPools, Nodes: MaxNodes}
	name := strings.Repeat("n", 40)
	for home, fits := range map[string]bool{"/home/ann": true, "/home/" + strings.Repeat("a", 60): false} {
		err := socketsFit(filepath.Join(home, ".local/state/yurtlab", name), largest)
		if (err == nil) != fits {
			t.Errorf("%s: %v", home, err)
		}
		if err != nil && !strings.Contains(err.Error(), "XDG_STATE_HOME") {
			t.Errorf("%v does not say what to do", err)
		}
	}
}
