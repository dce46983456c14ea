package replica

import (
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

type namedLook string

func (namedLook) Show(_ stream.Type, o stream.Object) ([]byte, bool) { return o.Raw, true }

// TestSeen: whether a client that comes back has seen everything with the present look, after looks have come and gone.
func TestSeen(t *testing.T) {
	type step struct {
		look     string // that becomes the current one
		position edge.Revision
	}
	for _, tt := range []struct {
		name  string
		steps []step
		told  edge.Revision // when a client was told what differs
		now   string        // what it will be shown
		after edge.Revision
		sure  bool
	}{
		{"one look", []step{{"a", 10}}, 0, "a", 11, true},
		{"at the change", []step{{"a", 10}, {"b", 20}}, 0, "b", 20, false},
		{"behind it", []step{{"a", 10}, {"b", 20}}, 0, "b", 21, true},
		{"between two changes", []step{{"a", 10}, {"b", 20}, {"c", 30}}, 0, "c", 25, false},
		{"told late", []step{{"a", 10}, {"b", 20}}, 25, "b", 25, false},
		{"… and behind that", []step{{"a", 10}, {"b", 20}}, 25, "b", 26, true},
		{"another watch has turned already", []step{{"a", 10}, {"b", 20}}, 0, "a", 21, false},
	} {
		var l looks
		for _, s := range tt.steps {
			l.observe(namedLook(s.look), s.position)
		}
		if tt.told > 0 {
			l.telling(tt.told)
		}
		if _, sure := l.seen("client", tt.after, namedLook(tt.now)); sure != tt.sure {
			t.Errorf("%s: sure %t, want %t", tt.name, sure, tt.sure)
		}
	}
}
