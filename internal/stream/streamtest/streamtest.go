// Package streamtest has the conformance suites of stream.Source and stream.Sink, so that any implementation can replace any
// other. A test passes an implementation to a suite in a SourceHarness or a SinkHarness. A SourceHarness also controls the far
// side, such as a server.
//
// The suites know only the contract. They never sleep, and their only time limit is Patience: an implementation that takes longer
// is broken.
package streamtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Patience is how long a test waits for what must come.
const Patience = 20 * time.Second

// SourceHarness is a Source under test and the far side that it reads.
type SourceHarness interface {
	// Source is what is tested. It is complete, and empty before the first Change.
	Source() stream.Source
	// Type is that of the objects. The suite makes them with Object.
	Type() stream.Type
	// Change makes events happen at the far side, in order. Their revisions ascend from above Revision.
	Change(events ...stream.Event)
	// Revision is the far side's latest, never 0.
	Revision() edge.Revision
	// Compact makes the far side forget. From then on, a watch after a revision older than upTo fails with ErrExpired, and a
	// watch after upTo does not. The function change makes one more change happen, for a far side that forgets only when new
	// changes come.
	Compact(upTo edge.Revision, change func())
}

// SinkHarness is a Sink under test and a way to see what it holds.
type SinkHarness interface {
	// Sink is what is tested. It has nothing yet.
	Sink() stream.Sink
	// Type is that of the objects.
	Type() stream.Type
	// Content is what the sink holds, in the order of Key.Compare.
	Content() []stream.Object
}

// EndpointSlices and Widgets are Types to make objects of: a built-in one and a custom one.
var (
	EndpointSlices = stream.Type{
		GroupVersionKind: schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
		Encoding:         stream.Protobuf,
	}
	Widgets = stream.Type{
		GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"},
		Encoding:         stream.JSON,
	}
)

// Object makes an object with metadata and a label "content".
func Object(t stream.Type, namespace, name string, revision edge.Revision, content string) stream.Object {
	var raw []byte
	if t.Encoding == stream.Protobuf {
		o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, ResourceVersion: revision.String(), Labels: map[string]string{"content": content},
		}}
		var err error
		if raw, err = o.Marshal(); err != nil {
			panic(err)
		}
	} else {
		raw = fmt.Appendf(nil,
			`{"apiVersion":%q,"kind":%q,"metadata":{"labels":{"content":%q},"name":%q,"namespace":%q,"resourceVersion":%q}}`,
			t.GroupVersion(), t.Kind, content, name, namespace, revision.String())
	}
	return stream.Object{Key: stream.Key{Namespace: namespace, Name: name}, Revision: revision, Raw: raw}
}

// Model is the dumb truth: what there is after some events.
type Model map[stream.Key]stream.Object

// Apply makes one event happen.
func (m Model) Apply(e stream.Event) {
	switch e.Type {
	case stream.Added, stream.Modified:
		m[e.Object.Key] = e.Object
	case stream.Deleted:
		delete(m, e.Object.Key)
	}
}

// Content is all objects in the order of Key.Compare.
func (m Model) Content() []stream.Object {
	return slices.SortedFunc(maps.Values(m), func(a, b stream.Object) int { return a.Key.Compare(b.Key) })
}

// history makes events one after the other, as a far side has them.
type history struct {
	typ      stream.Type
	revision edge.Revision
	model    Model
}

func newHistory(t stream.Type, revision edge.Revision) *history {
	return &history{typ: t, revision: revision, model: Model{}}
}

// put adds or changes an object.
func (h *history) put(namespace, name, content string) stream.Event {
	h.revision += 3 // other resources of a cluster are changed between two changes of this one
	e := stream.Event{Type: stream.Added, Object: Object(h.typ, namespace, name, h.revision, content)}
	if _, ok := h.model[e.Object.Key]; ok {
		e.Type = stream.Modified
	}
	h.model.Apply(e)
	return e
}

// remove deletes an object, which need not be.
func (h *history) remove(namespace, name string) stream.Event {
	h.revision += 3
	e := stream.Event{Type: stream.Deleted, Object: Object(h.typ, namespace, name, h.revision, "gone")}
	h.model.Apply(e)
	return e
}

// mixed is the i-th of a long series of changes of few objects.
func (h *history) mixed(i int) stream.Event {
	namespace, name := fmt.Sprintf("ns%d", i%2), fmt.Sprintf("o%d", i*7%11)
	if _, ok := h.model[stream.Key{Namespace: namespace, Name: name}]; ok && i%3 == 0 {
		return h.remove(namespace, name)
	}
	return h.put(namespace, name, fmt.Sprintf("content %d", i))
}

// same says in what two contents differ; "" if in nothing.
func same(got, want []stream.Object) string {
	if len(got) != len(want) {
		return fmt.Sprintf("it has %d objects %v, want %d %v", len(got), keys(got), len(want), keys(want))
	}
	for i := range got {
		if got[i].Key != want[i].Key || got[i].Revision != want[i].Revision {
			return fmt.Sprintf("it has %s of revision %s where %s of %s should be",
				got[i].Key, got[i].Revision, want[i].Key, want[i].Revision)
		}
		if string(got[i].Raw) != string(want[i].Raw) {
			return fmt.Sprintf("%s has other bytes: %q, want %q", got[i].Key, got[i].Raw, want[i].Raw)
		}
	}
	return ""
}

func keys(objects []stream.Object) []string {
	var s []string
	for _, o := range objects {
		s = append(s, fmt.Sprintf("%s@%s", o.Key, o.Revision))
	}
	return s
}

func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}
