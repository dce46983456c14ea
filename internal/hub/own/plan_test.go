package own

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
		h[i] = mark{revision: r}
	}
	return h
}

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
		if b.local {
			how = ", as the node says"
		}
		texts = append(texts, fmt.Sprintf("%s: %s%s", b.resource, text[:len(text)-1], how))
	}
	return texts
}

func TestPlan(t *testing.T) {
	now := time.Unix(1000, 0)
	everything := map[stream.ID]edge.Revision{node1: 5, podA: 10, podB: 11, conf: 7, key: 8}
	known := func(stream.ID) edge.Revision { return 100 }
	unknown := func(stream.ID) edge.Revision { return 0 }
	for name, c := range map[string]struct {
		want    want
		have    have
		refused map[stream.ID]refusal
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
			want: want{
				objects: of(map[stream.ID]edge.Revision{node1: 5, podA: 10}), known: func(stream.ID) edge.Revision { return 15 },
			},
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
			have:  have{node1: {5, 9}, podA: {10, 76}, podB: {11, 78}},
			steps: []string{"nodes: +n1@5", "pods: +a@10, as the node says"},
		},
		"shown by an earlier run of this hub, and the cloud is still cut off": {
			want: want{objects: of(map[stream.ID]edge.Revision{node1: 6, podA: 10, podB: 11}), known: known, cut: true,
				locals: map[stream.ID]uint64{podB: 78}},
			have:  have{node1: {5, foreign}, podA: {10, foreign}, podB: {11, foreign}},
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
			refused: map[stream.ID]refusal{podA: {mark{10, 0}, now.Add(-time.Second)}},
			steps:   []string{"pods: +a@10, as the node says"},
		},
		"refused a moment ago, a while ago, and changed since": {
			want: want{objects: of(map[stream.ID]edge.Revision{podA: 10, podB: 11, conf: 7}), known: known},
			refused: map[stream.ID]refusal{
				podA: {mark{10, 0}, now.Add(-time.Second)}, podB: {mark{11, 0}, now.Add(-refusedPause)},
				conf: {mark{6, 0}, now.Add(-time.Second)},
			},
			steps: []string{"pods: +b@11", "configmaps: +conf@7"},
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
		objects[stream.ID{Resource: configMaps, Key: k}] = stream.Object{Key: k, Revision: 1, Raw: make([]byte, maxBytes*2/3)}
	}
	var sizes []int
	for _, b := range plan(want{objects: objects}, nil, nil, time.Time{}) {
		sizes = append(sizes, len(b.events))
	}
	if want := []int{maxEvents, 1, 1, 1, 1}; !slices.Equal(sizes, want) {
		t.Errorf("got pushes of %v, want %v", sizes, want)
	}
}

func TestNameOf(t *testing.T) {
	for selector, want := range map[string]string{
		"metadata.name=conf": "conf", "metadata.name=a.b-c": "a.b-c", "": "", "metadata.name=": "", "metadata.name!=a": "",
		"metadata.name=a,metadata.namespace=b": "", "spec.nodeName=n1": "", "metadata.name==a": "", `metadata.name=a\,b`: "",
	} {
		if got, single := nameOf(selector); single != (want != "") || single && got != want {
			t.Errorf("%q: %q, %v", selector, got, single)
		}
	}
}
