package version

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	vcs := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "0e928d5cafe"}, {Key: "vcs.modified", Value: modified}}
	}
	for name, test := range map[string]struct {
		told, commit string
		info         *debug.BuildInfo
		version      string
		of           string
	}{
		"a release":           {"v0.2.0", "abc", &debug.BuildInfo{Settings: vcs("false")}, "v0.2.0", "abc"},
		"nothing known":       {"", "", nil, Next + "-dev", ""},
		"a clone without git": {"", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, Next + "-dev", ""},
		"a clone":             {"", "", &debug.BuildInfo{Settings: vcs("false")}, Next + "-dev.g0e928d5", "0e928d5cafe"},
		"a clone that was changed": {
			"", "", &debug.BuildInfo{Settings: vcs("true")}, Next + "-dev.g0e928d5.dirty", "0e928d5cafe",
		},
		"installed by go": {"", "", &debug.BuildInfo{Main: debug.Module{Version: "v0.3.1"}}, "v0.3.1", ""},
		"a candidate":     {"", "", &debug.BuildInfo{Main: debug.Module{Version: "v0.3.0-rc.1"}}, "v0.3.0-rc.1", ""},
		"a version that Go made up": {"", "", &debug.BuildInfo{
			Main: debug.Module{Version: "v0.0.0-20261126012345-0e928d5cafe0"},
		}, Next + "-dev", ""},
		"of a changed clone with a tag": {"", "", &debug.BuildInfo{
			Main: debug.Module{Version: "v0.2.0+dirty"}, Settings: vcs("true"),
		}, Next + "-dev.g0e928d5.dirty", "0e928d5cafe"},
	} {
		if is := of(test.told, test.commit, test.info); is.Version != test.version || is.Commit != test.of {
			t.Errorf("%s: %s of %q, want %s of %q", name, is.Version, is.Commit, test.version, test.of)
		}
	}
}

func TestKubernetes(t *testing.T) {
	replaced := &debug.Module{Path: "k8s.io/client-go", Version: "v0.0.0", Replace: &debug.Module{Version: "v0.36.3"}}
	own := &debug.Module{Path: "k8s.io/kubernetes", Version: "v1.35.1"}
	for _, test := range []struct {
		deps []*debug.Module
		want string
	}{{nil, ""}, {[]*debug.Module{replaced}, "v1.36.3"}, {[]*debug.Module{replaced, own}, "v1.35.1"}} {
		if got := kubernetes(test.deps); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestLine(t *testing.T) {
	i := Info{Version: "v0.2.0", GoVersion: "go1.26.4", Platform: "linux/arm64"}
	if got, want := i.Line("yurthub"), "yurthub v0.2.0 (go1.26.4, linux/arm64)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	i.Commit, i.Kubernetes = "abc", "v1.36.3"
	if got, want := i.Line("yurthub"), "yurthub v0.2.0 (go1.26.4, linux/arm64, Kubernetes v1.36.3, commit abc)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// tags are what registries take.
var tags = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

func TestCoordinatorTag(t *testing.T) {
	for _, test := range []struct{ release, kubernetes, want string }{
		{"v0.2.0", "v1.36.3", "v0.2.0-k1.36.3"},
		{"v0.3.0-rc.1", "v1.37.0-rc.0", "v0.3.0-rc.1-k1.37.0-rc.0"},
		{Development("0e928d5cafe", true), "v1.36.3", Next + "-dev.g0e928d5.dirty-k1.36.3"},
	} {
		got := CoordinatorTag(test.release, test.kubernetes)
		if got != test.want || !tags.MatchString(got) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// TestLinkerFlags: the names that builds give the linker are those of this package. A name that does not exist is no error there.
func TestLinkerFlags(t *testing.T) {
	program := filepath.Join(t.TempDir(), "says")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"-ldflags=-X yurtcoordinator/internal/version.version=v9.8.7 -X yurtcoordinator/internal/version.commit=c0ffee",
		"./testdata/says")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program).Output()
	if err != nil || !strings.HasPrefix(string(out), "says v9.8.7 (go") || !strings.HasSuffix(string(out), ", commit c0ffee)\n") {
		t.Errorf("%q, %v", out, err)
	}
}
