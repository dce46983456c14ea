package edge

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 nodes have", 1: "1 node has", 2: "2 nodes have", 1000: "1000 nodes have"} {
		if got := Count(n, "node has", "nodes have"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestSome(t *testing.T) {
	if got := Some([]string{"a", "b"}); got != "a, b" {
		t.Error(got)
	}
	if got := Some([]string{"a", "b", "c", "d", "e", "f", "g"}); got != "a, b, c, d, e and 2 more" {
		t.Error(got)
	}
}
