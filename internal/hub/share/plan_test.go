package share

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

var (
	node1 = stream.ID{Resource: nodes, Key: stream.Key{Name: "n1"}}
	podA  = stream.ID{Resource: pods, Key: stream.Key{Namespace: "shop", Name: "a"}}
	podB  = stream.ID{Resource: pods, Key: stream.Key{Namespace: "shop", Name: "b"}}
	conf  = stream.ID{Resource: configMaps, Key: stream.Key{Namespace: "shop", Name: "conf"}}
	key   = stream.ID{Resource: secrets, Key: stream.Key{Namespace: "shop", Name: "key"}}
)

// of are objects at revisions.
func of(revisions map[stream.ID]edge.Revision) map[stream.ID]stream.Object {
	all := map[stream.ID]stream.Object{}
	for i, r := range revisions {
		all[i] = stream.Object{Key: i.Key, Revision: r, Raw: []byte("content")}
	}
	return all
}

// had is what a coordinator has as the cloud has written it.
func had(revisions map[stream.ID]edge.Revision) have {
	h := have{}
	for i, r := range revisions {
		h[i] = mark{Moment: edge.Moment{Revision: r}}
	}
	return h
}

func first(r edge.Revision) edge.Moment { return edge.Moment{Revision: r} }

// second is after the cloud was restored from a backup.
func second(r edge.Revision) edge.Moment { return edge.Moment{History: 1, Revision: r} }

// steps are a plan, as "+resource name@revision" and "-…", a push in brackets.
func steps(all []batch) []string {
	var texts []string
	for _, b := range all {
		text := ""
		for _, e := range b.events {
			sign := "+"
			if e.Type == stream.Deleted {
				sign = "-"
			}
			text += fmt.Sprintf("%s%s@%d ", sign, e.Object.Key.Name, e.Object.Revision)
		}
		how := ""
		if b.of.local {
			how = ", as the node says"
		}
		if b.of.in != 0 {
			how += fmt.Sprint(", in history ", b.of.in)
		}
		texts = append(texts, fmt.Sprintf("%s: %s%s", b.of.resource, text[:len(text)-1], how))
	}
	return texts
}

func TestPlan(t *testing.T) {
	now := time.Unix(1000, 0)
	everything := map[stream.ID]edge.Revision{node1: 5, podA: 10, podB: 11, conf: 7, key: 8}
	upTo := func(m edge.Moment) func(stream.ID) edge.Moment { return func(stream.ID) edge.Moment { return m } }
	known := upTo(first(100))
	unknown := upTo(edge.Moment{})
	later := func(all ...stream.ID) map[stream.ID]edge.History {
		in := map[stream.ID]edge.History{}
		for _, i := range all {
			in[i] = 1
		}
		return in
	}
	for name, c := range map[string]struct {
		want    want
		have    have
		refused map[stream.ID]offer
		steps   []string
	}{
		"an empty coordinator": {
			want:  want{objects: of(everything), known: known},
			steps: []string{"nodes: +n1@5", "pods: +a@10 +b@11", "configmaps: +conf@7", "secrets: +key@8"},
		},
		"nothing to do": {want: want{objects: of(everything), known: known}, have: had(everything)},
		"changes, and one that the coordinator wants again": {
			want:  want{objects: of(everything), known: known},
			have:  had(map[stream.ID]edge.Revision{node1: 5, podA: 9, podB: 11, conf: 0, key: 8}),
			steps: []string{"pods: +a@10", "configmaps: +conf@7"},
		},
		"the coordinator is ahead: a disk's replica is behind": {
			want: want{objects: of(map[stream.ID]edge.Revision{node1: 5, podA: 10}), known: upTo(first(15))},
			have: had(map[stream.ID]edge.Revision{node1: 20, podA: 21, podB: 22}),
		},
		"gone, in the opposite order": {
			want:  want{objects: of(map[stream.ID]edge.Revision{node1: 5}), known: known},
			have:  had(everything),
			steps: []string{"secrets: -key@8", "configmaps: -conf@7", "pods: -b@11 -a@10"},
		},
		"gone, and nobody knew at which revision it was": {
			want:  want{objects: of(nil), known: known},
			have:  had(map[stream.ID]edge.Revision{podA: 0}),
			steps: []string{"pods: -a@1"},
		},
		"unknown": {want: want{known: unknown}, have: had(everything)},
		"the node has left the pool": {
			want:  want{left: true, objects: of(everything), known: unknown},
			have:  had(map[stream.ID]edge.Revision{node1: 5, podA: 10, conf: 7}),
			steps: []string{"configmaps: -conf@7", "pods: -a@10", "nodes: -n1@5"},
		},
		"as the node says": {
			want: want{
				objects: of(map[stream.ID]edge.Revision{node1: 5, podA: 10, podB: 11}), known: known,
				locals: map[stream.ID]uint64{podA: 77, podB: 78},
			},
			have:  had(map[stream.ID]edge.Revision{node1: 5, podA: 10}),
			steps: []string{"pods: +a@10 +b@11, as the node says"},
		},
		"as it says now, as it has said, and as the cloud says again": {
			want: want{
				objects: of(map[stream.ID]edge.Revision{node1: 5, podA: 10, podB: 11}), known: known, cut: false,
				locals: map[stream.ID]uint64{podA: 77, podB: 78},
			},
			have:  have{node1: {first(5), 9}, podA: {first(10), 76}, podB: {first(11), 78}},
			steps: []string{"nodes: +n1@5", "pods: +a@10, as the node says"},
		},
		"shown by an earlier run of this hub, and the cloud is still cut off": {
			want: want{objects: of(map[stream.ID]edge.Revision{node1: 6, podA: 10, podB: 11}), known: known, cut: true,
				locals: map[stream.ID]uint64{podB: 78}},
			have:  have{node1: {first(5), foreign}, podA: {first(10), foreign}, podB: {first(11), foreign}},
			steps: []string{"nodes: +n1@6", "pods: +b@11, as the node says"},
		},
		"on top of what the cloud had before what the coordinator has": {
			want: want{objects: of(map[stream.ID]edge.Revision{podA: 10}), known: known, locals: map[stream.ID]uint64{podA: 77}},
			have: had(map[stream.ID]edge.Revision{podA: 11}),
		},
		"refused as the cloud says it, and not as the node does": {
			want: want{
				objects: of(map[stream.ID]edge.Revision{podA: 10}), known: known, locals: map[stream.ID]uint64{podA: 77},
			},
			refused: map[stream.ID]offer{podA: {mark{first(10), 0}, now.Add(-time.Second)}},
			steps:   []string{"pods: +a@10, as the node says"},
		},
		"refused a moment ago, a while ago, and changed since": {
			want: want{objects: of(map[stream.ID]edge.Revision{podA: 10, podB: 11, conf: 7}), known: known},
			refused: map[stream.ID]offer{
				podA: {mark{first(10), 0}, now.Add(-time.Second)}, podB: {mark{first(11), 0}, now.Add(-refusedPause)},
				conf: {mark{first(6), 0}, now.Add(-time.Second)},
			},
			steps: []string{"pods: +b@11", "configmaps: +conf@7"},
		},
		"the cloud was restored, and does not have what was there": {
			want:  want{objects: of(map[stream.ID]edge.Revision{podA: 397}), in: later(podA), known: upTo(second(438))},
			have:  have{podA: {second(397), 0}, podB: {first(710), 0}},
			steps: []string{"pods: -b@710"},
		},
		"the cloud was restored, and has an older one": {
			want:  want{objects: of(map[stream.ID]edge.Revision{podA: 397}), in: later(podA), known: upTo(second(438))},
			have:  have{podA: {first(691), 0}},
			steps: []string{"pods: +a@397, in history 1"},
		},
		"the cloud was restored, and has the same revision, which says nothing": {
			want:  want{objects: of(map[stream.ID]edge.Revision{podA: 397}), in: later(podA), known: upTo(second(438))},
			have:  have{podA: {first(397), 0}},
			steps: []string{"pods: +a@397, in history 1"},
		},
		"only some replicas are in the new history": {
			want: want{
				objects: of(map[stream.ID]edge.Revision{node1: 300, podA: 400, podB: 690, conf: 680}), in: later(node1, podA),
				known: func(i stream.ID) edge.Moment {
					if i == key {
						return first(700)
					}
					return second(438)
				},
			},
			have: have{node1: {first(5), 0}, podA: {first(691), 0}, podB: {first(680), 0}, conf: {second(300), 0},
				key: {second(300), 0}},
			steps: []string{"nodes: +n1@300, in history 1", "pods: +a@400, in history 1", "pods: +b@690"},
		},
		"a deletion in the new history": {
			want:  want{objects: of(nil), known: upTo(second(438))},
			have:  have{podA: {second(430), 0}, podB: {first(430), 0}},
			steps: []string{"pods: -b@430", "pods: -a@430, in history 1"},
		},
		"what is known of an earlier history says nothing of a later one": {
			want: want{objects: of(nil), known: upTo(first(1000))},
			have: have{podA: {second(430), 0}},
		},
		"refused in the history before": {
			want:    want{objects: of(map[stream.ID]edge.Revision{podA: 10}), in: later(podA), known: known},
			refused: map[stream.ID]offer{podA: {mark{first(10), 0}, now.Add(-time.Second)}},
			steps:   []string{"pods: +a@10, in history 1"},
		},
		"shown by an earlier run of this hub, before the cloud was restored": {
			want:  want{objects: of(map[stream.ID]edge.Revision{podA: 10}), in: later(podA), known: upTo(second(438)), cut: true},
			have:  have{podA: {first(10), foreign}},
			steps: []string{"pods: +a@10, in history 1"},
		},
	} {
		if got := steps(plan(c.want, c.have, c.refused, now)); !slices.Equal(got, c.steps) {
			t.Errorf("%s: got %q, want %q", name, got, c.steps)
		}
	}
}

func TestBatchesAreBounded(t *testing.T) {
	objects := map[stream.ID]stream.Object{}
	for i := range maxEvents + 1 {
		k := stream.Key{Namespace: "shop", Name: fmt.Sprintf("p%03d", i)}
		objects[stream.ID{Resource: pods, Key: k}] = stream.Object{Key: k, Revision: 1, Raw: make([]byte, 100)}
	}
	for i := range 3 {
		k := stream.Key{Namespace: "shop", Name: fmt.Sprint("large", i)}
		objects[stream.ID{Resource: configMaps, Key: k}] = stream.Object{Key: k, Revision: 1, Raw: make([]byte, maxNodeBytes*2/3)}
	}
	var sizes []int
	for _, b := range plan(want{objects: objects}, nil, nil, time.Time{}) {
		sizes = append(sizes, len(b.events))
	}
	if want := []int{maxEvents, 1, 1, 1, 1}; !slices.Equal(sizes, want) {
		t.Errorf("got pushes of %v, want %v", sizes, want)
	}
}
