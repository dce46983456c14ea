package build

import (
	"fmt"
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	c := newTally([]string{"fmt", "k8s.io/api/core/v1", "k8s.io/kubernetes/cmd/kubelet", "fmt"})
	for _, step := range []struct {
		line string
		text string
		ok   bool
		done int
	}{
		{"go: downloading k8s.io/api v0.36.3", "downloading k8s.io/api v0.36.3", true, 0},
		{"fmt", "fmt", true, 1},
		{"fmt", "", false, 1},
		{"# k8s.io/api/core/v1", "", false, 1},
		{"core.go:1:2: syntax error", "", false, 1},
		{"unsafe", "", false, 1},
		{"  k8s.io/api/core/v1\r", "k8s.io/api/core/v1", true, 2},
		{"", "", false, 2},
		{"k8s.io/kubernetes/cmd/kubelet", "k8s.io/kubernetes/cmd/kubelet", true, 3},
	} {
		text, ok := c.line(step.line)
		if text != step.text || ok != step.ok || c.done() != step.done {
			t.Errorf("after %q: %q, %v, %d of %d; want %q, %v, %d", step.line, text, ok, c.done(), c.total,
				step.text, step.ok, step.done)
		}
	}
	if c.total != 3 {
		t.Errorf("total %d, want 3 different packages", c.total)
	}
}

func TestTail(t *testing.T) {
	tl := tail{max: 3}
	for i := range 10 {
		tl.add(fmt.Sprint("line ", i))
		tl.add(" ")
	}
	if got, want := tl.String(), "line 7\nline 8\nline 9"; got != want {
		t.Errorf("tail %q, want %q", got, want)
	}
	if cap(tl.lines) > 16 {
		t.Errorf("it keeps %d lines", cap(tl.lines))
	}
}

func TestAdvice(t *testing.T) {
	for _, test := range []struct{ output, want string }{
		{"compile: writing output: write $WORK/b001/_pkg_.a: no space left on device", "disk space"},
		{"k8s.io/api/core/v1: /usr/lib/go/pkg/tool/linux_amd64/compile: signal: killed", "memory"},
		{"missing go.sum entry for module providing package x; to add: go get y", "go mod tidy"},
		{"verifying module: checksum mismatch", "stop if it happens again"},
		{`go: x@v1: Get "https://modules.example/x/@v/v1.mod": dial tcp: lookup modules.example: no such host`,
			"GOPROXY"},
		{`# pkg-config --cflags -- libseccomp` + "\nPackage libseccomp was not found in the pkg-config search path.",
			"libseccomp-dev"},
		{`cgo: C compiler "gcc" not found: exec: "gcc": executable file not found in $PATH`, "gcc"},
		{"go: go.mod requires go >= 1.27 (running go 1.26.8)", "GOTOOLCHAIN"},
		{"main.go:3:1: syntax error: unexpected newline", ""},
	} {
		got := advice(test.output)
		if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("advice for %q: %q, want one that says %q", test.output, got, test.want)
		}
	}
}
