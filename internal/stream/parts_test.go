package stream_test

import (
	"slices"
	"testing"

	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

func TestParts(t *testing.T) {
	object := func(namespace, name string) stream.Object {
		return stream.Object{Key: stream.Key{Namespace: namespace, Name: name}, Revision: 3}
	}
	part := func(objects ...stream.Object) stream.Snapshot {
		return stream.Snapshot{Type: streamtest.Widgets, Revision: 7, Objects: objects}
	}
	later, other, elsewhere := part(object("b", "y")), part(object("b", "y")), part(object("b", "y"))
	later.Revision, other.Type, elsewhere.History = 8, streamtest.EndpointSlices, 1
	for name, test := range map[string]struct {
		parts    []stream.Snapshot
		want     []stream.Key
		fits, ok bool
	}{
		"nothing": {parts: []stream.Snapshot{part()}, fits: true, ok: true},
		"as etcd has it": {
			parts: []stream.Snapshot{part(object("a-b", "x")), part(object("a", "x"))},
			want:  []stream.Key{{Namespace: "a", Name: "x"}, {Namespace: "a-b", Name: "x"}}, fits: true, ok: true,
		},
		"one twice":       {parts: []stream.Snapshot{part(object("a", "x")), part(object("a", "x"))}, fits: true},
		"later":           {parts: []stream.Snapshot{part(object("a", "x")), later}},
		"another type":    {parts: []stream.Snapshot{part(object("a", "x")), other}},
		"another history": {parts: []stream.Snapshot{part(object("a", "x")), elsewhere}},
	} {
		var all stream.Snapshot
		var err error
		for _, p := range test.parts {
			if err == nil {
				err = all.Extend(p)
			}
		}
		if fits := err == nil; fits != test.fits {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		if err := all.Complete(); (err == nil) != test.ok {
			t.Errorf("%s: complete: %v", name, err)
		}
		var keys []stream.Key
		for _, o := range all.Objects {
			keys = append(keys, o.Key)
		}
		if test.ok && !slices.Equal(keys, test.want) {
			t.Errorf("%s: %v, want %v", name, keys, test.want)
		}
	}
}
