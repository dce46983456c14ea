package join

import (
	"slices"
	"strings"
	"testing"
)

func TestAccept(t *testing.T) {
	for _, tt := range []struct{ names, want, floor, refusal string }{
		{"yurthub-v0.3.0-linux-amd64", "v0.3.0", "v0.2.0", ""},
		{"yurthub-v0.2.0-linux-amd64", "v0.2.0", "v0.2.0", ""},
		{"yurthub-v0.3.0-rc.1-linux-amd64", "v0.3.0-rc.1", "v0.2.0", ""},
		{"kubectl-yurt-v0.3.0-linux-amd64 yurthub-v0.3.0-linux-amd64", "v0.3.0", "v0.2.0", ""},
		{"yurthub-v0.2.9-linux-amd64 yurthub-v0.3.0-linux-amd64 yurthub-v0.3.1-linux-amd64", "v0.3.0", "v0.2.0", ""},
		{"yurthub-v0.3.0-rc.1-linux-amd64", "v0.3.0-rc.1", "v0.3.0", "below the floor"},
		{"yurthub-v0.9.0-linux-amd64", "v0.9.0", "v0.10.0", "below the floor"},
		{"yurthub-v0.3.0-linux-arm64", "v0.3.0", "v0.2.0", "no yurthub for linux/amd64"},
		{"yurthub-v0.3.0-linux-amd64", "v0.4.0", "v0.2.0", "was asked for"},
		{"yurt-coordinator-v0.3.0-linux-amd64", "v0.3.0", "v0.2.0", "no yurthub"},
		{"yurthub-v0.3.0-linux-amd64.tar.gz", "v0.3.0", "v0.2.0", "no yurthub"},
		{"", "", "v0.2.0", "no yurthub"},
		{"yurthub-v0.3-linux-amd64", "v0.3", "v0.2.0", "v0.3"},
		{"yurthub-v0.3.0-linux-amd64", "v0.3.0", "", "floor"},
	} {
		err := accept(strings.Fields(tt.names), tt.want, tt.floor, "linux/amd64")
		if (err == nil) != (tt.refusal == "") || err != nil && !strings.Contains(err.Error(), tt.refusal) {
			t.Errorf("%s for %s above %s: %v, want %q", tt.names, tt.want, tt.floor, err, tt.refusal)
		}
	}
}

func TestHigher(t *testing.T) {
	for _, tt := range [][3]string{
		{"v0.2.0", "v0.10.0", "v0.10.0"},
		{"v0.10.0", "v0.2.0", "v0.10.0"},
		{"v0.2.0", "", "v0.2.0"},
		{"", "v0.2.0", "v0.2.0"},
		{"v0.2.0-rc.1", "v0.2.0", "v0.2.0"},
		{"noise", "v0.1.0", "v0.1.0"},
	} {
		if got := higher(tt[0], tt[1]); got != tt[2] {
			t.Errorf("higher(%q, %q) = %q, want %q", tt[0], tt[1], got, tt[2])
		}
		if other := lower(tt[0], tt[1]); other == tt[2] || other != tt[0] && other != tt[1] {
			t.Errorf("lower(%q, %q) = %q", tt[0], tt[1], other)
		}
	}
}

func TestWorse(t *testing.T) {
	fail := func(what ...string) (all []finding) {
		for _, w := range what {
			all = append(all, finding{Level: "fail", What: w, Why: "why"})
		}
		return all
	}
	for name, tt := range map[string]struct {
		before []string
		now    []finding
		want   string
	}{
		"all is well":               {nil, nil, ""},
		"as before":                 {[]string{"clock", "node"}, fail("clock"), ""},
		"new":                       {[]string{"clock"}, fail("clock", "--port"), "--port: why"},
		"several":                   {nil, fail("a", "b"), "a: why; b: why"},
		"the line is cut":           {nil, fail("cloud", "yurthub: cloud"), ""},
		"the hub alone sees no way": {nil, fail("yurthub: cloud"), "yurthub: cloud: why"},
		"cut, and no hub":           {nil, fail("cloud", "yurthub"), "yurthub: why"},
	} {
		if got := worse(tt.before, tt.now); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestFailures(t *testing.T) {
	said := `{"ok":false,"findings":[{"level":"ok","what":"a","why":"b"},{"level":"fail","what":"c","why":"d"}]}`
	if got, err := failures(said); err != nil || !slices.Equal(got, []finding{{"fail", "c", "d"}}) ||
		!slices.Equal(names(got), []string{"c"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, said := range []string{"", "panic: no", `{"ok":true,"findings":[]}`} {
		if _, err := failures(said); err == nil {
			t.Errorf("%q is taken for a check without failures", said)
		}
	}
}

func TestPrintedVersion(t *testing.T) {
	for said, want := range map[string]string{
		"yurthub v0.2.0 (commit abc)\n": "v0.2.0", "yurthub v0.3.0-rc.1\n": "v0.3.0-rc.1",
		"yurt-coordinator v0.2.0\n": "", "yurthub\n": "", "": "", "yurthub devel": "",
	} {
		if got, err := printedVersion(said); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", said, got, err, want)
		}
	}
}
