package replica

import (
	"fmt"
	"slices"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

type namedLook string

func (namedLook) Show(_ stream.Type, o stream.Object) ([]byte, bool) { return o.Raw, true }

// TestSeenBefore: what a client may have that comes back, after looks have come and gone.
func TestSeenBefore(t *testing.T) {
	type step struct {
		look     string // that becomes the current one
		position edge.Revision
	}
	for _, tt := range []struct {
		name  string
		steps []step
		// told is a client that is told the current look at a revision, when it may have seen others before.
		told   edge.Revision
		before seenBefore
		after  edge.Revision
		want   []string
		lost   bool
	}{
		{"one look", []step{{"a", 10}}, 0, seenBefore{}, 11, nil, false},
		{"at the change", []step{{"a", 10}, {"b", 20}}, 0, seenBefore{}, 20, []string{"a"}, false},
		{"behind it", []step{{"a", 10}, {"b", 20}}, 0, seenBefore{}, 21, nil, false},
		{"two changes", []step{{"a", 10}, {"b", 20}, {"c", 30}}, 0, seenBefore{}, 20, []string{"a", "b"}, false},
		{"between them", []step{{"a", 10}, {"b", 20}, {"c", 30}}, 0, seenBefore{}, 25, []string{"b"}, false},
		{"told late", []step{{"a", 10}, {"b", 20}}, 25, seenBefore{looks: []Look{namedLook("a")}}, 25, []string{"a"}, false},
		{"… and behind that", []step{{"a", 10}, {"b", 20}}, 25, seenBefore{looks: []Look{namedLook("a")}}, 26, nil, false},
		{"told when nobody knew", []step{{"a", 10}, {"b", 20}}, 25, seenBefore{unknown: true}, 25, nil, true},
		{"there and back", []step{{"a", 10}, {"b", 20}, {"a", 30}}, 0, seenBefore{}, 30, []string{"b"}, false},
		{"… and there", []step{{"a", 10}, {"b", 20}, {"a", 30}, {"b", 40}}, 0, seenBefore{}, 25, []string{"a"}, false},
	} {
		var l looks
		for _, s := range tt.steps {
			l.observe(namedLook(s.look), s.position)
		}
		now := l.look
		if tt.told > 0 {
			l.telling(tt.told, tt.before, now)
		}
		_, got := l.seen("client", tt.after, now)
		var names []string
		for _, look := range got.looks {
			names = append(names, string(look.(namedLook)))
		}
		if !slices.Equal(names, tt.want) || got.unknown != tt.lost {
			t.Errorf("%s: %q, unknown %t; want %q, %t", tt.name, names, got.unknown, tt.want, tt.lost)
		}
	}
}

// TestLooksAreBounded: of many looks the first are forgotten, and a client that may have seen a forgotten one is told
// everything again. Two looks that alternate count as two.
func TestLooksAreBounded(t *testing.T) {
	var many, two looks
	for i := range edge.Revision(100) {
		many.observe(namedLook(fmt.Sprint(i)), i)
		two.observe(namedLook(fmt.Sprint(i%2)), i)
	}
	if len(many.past) != maxPast || len(two.past) > 2 || two.lost != 0 {
		t.Errorf("it remembers %d and %d, and has lost those up to %d", len(many.past), len(two.past), two.lost)
	}
	_, recent := many.seen("client", many.lost+1, many.look)
	_, former := many.seen("client", many.lost, many.look)
	if recent.unknown || len(recent.looks) != maxPast || !former.unknown {
		t.Errorf("%+v, %+v", recent, former)
	}
	// Who is told a look that is forgotten meanwhile.
	many.telling(200, seenBefore{}, namedLook("1"))
	if _, before := many.seen("client", 200, many.look); !before.unknown {
		t.Errorf("%+v", before)
	}
	// Another watch has turned already.
	two.observe(namedLook("2"), 100)
	if _, before := two.seen("client", 101, namedLook("1")); len(before.looks) != 1 || before.looks[0] != namedLook("2") {
		t.Errorf("%+v", before)
	}
}
