package lab

import (
	"strings"
	"testing"
	"time"

	"yurtcoordinator/lab/build"
	"yurtcoordinator/lab/line"
)

// Links of machines without power are put on lines as well: they are on them when the power comes. What no link is on any more
// is ended.
func TestShape(t *testing.T) {
	l := newLab(Config{Pools: 2, Nodes: 2}, t.TempDir(), build.Binaries{}, Images{})
	for _, p := range l.all {
		l.hosts[string(p.name())] = l.nodeHost(p)
	}
	defer l.endLines()
	slow := LinkShape{Shape: line.Shape{Delay: time.Second}, Seed: 3}
	uplink := slow
	uplink.Shared = true
	names := func() string {
		var all []string
		for _, p := range l.all {
			name := "-"
			if s := l.wiring(p).WANLine; s != nil {
				name = s.Name
				if s.Seed != 3 || s.Delay != time.Second {
					t.Errorf("%s: %+v", name, s)
				}
			}
			all = append(all, name)
		}
		return strings.Join(all, ", ")
	}
	for _, step := range []struct {
		do   func() error
		want string
	}{
		{func() error { return l.Shape(WAN, "p1-n2", slow) }, "-, p1-n2 wan, -, -"},
		{func() error { return l.Shape(LAN, "p1-n1", slow) }, "-, p1-n2 wan, -, -"},
		{func() error { return l.Shape(WAN, "pool/p2", slow) }, "-, p1-n2 wan, p2-n1 wan, p2-n2 wan"},
		{func() error { return l.Shape(WAN, "pool/p2", uplink) }, "-, p1-n2 wan, p2 wan, p2 wan"},
		{func() error { return l.Shape(WAN, "p2-n1", slow) }, "-, p1-n2 wan, p2-n1 wan, p2 wan"},
		{func() error { return l.Unshape(WAN, "pool/p2") }, "-, p1-n2 wan, -, -"},
		{func() error { return l.Unshape(WAN, "pool/p1") }, "-, -, -, -"},
		{func() error { return l.Unshape(WAN, "pool/p1") }, "-, -, -, -"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := names(); got != step.want {
			t.Fatalf("%s, want %s", got, step.want)
		}
	}
	if s := l.wiring(place{1, 1}).LANLine; s == nil || s.Name != "p1-n1 lan" {
		t.Errorf("the LAN of p1-n1: %+v", s)
	}

	for what, tt := range map[string]struct{ err, want any }{
		"nothing":           {l.Shape(WAN, "p1-n1", LinkShape{}), "changes nothing"},
		"one node, shared":  {l.Shape(WAN, "p1-n1", uplink), "pool/p1, can share a line"},
		"nobody":            {l.Shape(WAN, "p9-n1", slow), "no node or pool"},
		"nobody, unshaping": {l.Unshape(WAN, "p9-n1"), "no node or pool"},
	} {
		if err, ok := tt.err.(error); !ok || !strings.Contains(err.Error(), tt.want.(string)) {
			t.Errorf("%s: %v, want %q", what, tt.err, tt.want)
		}
	}
}

// A shared line lasts as long as one link is on it.
func TestSharedLineEnds(t *testing.T) {
	l := newLab(Config{Pools: 1, Nodes: 2}, t.TempDir(), build.Binaries{}, Images{})
	for _, p := range l.all {
		l.hosts[string(p.name())] = l.nodeHost(p)
	}
	if err := l.Shape(WAN, "pool/p1", LinkShape{Shape: line.Shape{Loss: 1}, Shared: true}); err != nil {
		t.Fatal(err)
	}
	s := l.lines[link{place{1, 1}, WAN}]
	ends := 0
	end := s.end
	s.end = func() { ends++; end() }
	for i, want := range []int{0, 1} {
		if err := l.Unshape(WAN, string(place{1, i + 1}.name())); err != nil {
			t.Fatal(err)
		}
		if ends != want {
			t.Errorf("%d links off: ended %d times, want %d", i+1, ends, want)
		}
	}
}
