package share

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/stream"
)

// TestTheRestOfAnObjectStays: byte for byte, even fields of a newer Kubernetes.
func TestTheRestOfAnObjectStays(t *testing.T) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop", ResourceVersion: "7", UID: "u"},
		Spec:       corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := protowire.AppendTag(nil, 99, protowire.BytesType)
	unknown = protowire.AppendBytes(unknown, []byte("of the future"))
	base := stream.Object{Raw: slices.Concat(unknown, raw)}
	patch := []byte(`{"status":{"phase":"Failed"},"spec":{"nodeName":"n2"}}`)
	w, err := writeStatus(base, pods, http.MethodPatch, strategic, patch)
	if err != nil {
		t.Fatal(err)
	}
	got := &corev1.Pod{}
	if err := got.Unmarshal(w.shown); err != nil || got.Status.Phase != corev1.PodFailed || got.Spec.NodeName != "n1" ||
		got.UID != "u" || got.ResourceVersion != "7" {
		t.Errorf("%+v, %v", got, err)
	}
	if !slices.Equal(w.shown[:len(unknown)], unknown) || !slices.Equal(w.shown, w.told) {
		t.Errorf("shown %q, told %q", w.shown, w.told)
	}
	if _, err := writeStatus(stream.Object{Raw: []byte("\xff")}, pods, http.MethodPatch, strategic, patch); err == nil {
		t.Error("no protobuf is taken")
	}
}

// TestVolumesInUseAreTheClouds: kubelet mounts a volume only when the cloud has confirmed its use.
func TestVolumesInUseAreTheClouds(t *testing.T) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "7"},
		Status:     corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{"old"}},
	}
	raw, err := n.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	patch := `{"status":{"conditions":[{"type":"Ready","status":"True"}],"volumesInUse":["old","new"]}}`
	w, err := writeStatus(stream.Object{Raw: raw}, nodes, http.MethodPatch, strategic, []byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	shown, told := &corev1.Node{}, &corev1.Node{}
	if err := errors.Join(shown.Unmarshal(w.shown), told.Unmarshal(w.told)); err != nil {
		t.Fatal(err)
	}
	if len(shown.Status.VolumesInUse) != 2 || len(told.Status.VolumesInUse) != 1 || len(told.Status.Conditions) != 1 {
		t.Errorf("shown %v, told %v", shown.Status, told.Status)
	}
}

func TestHowAStatusIsWritten(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Namespace: "shop", ResourceVersion: "7", UID: "u", Labels: map[string]string{"app": "web"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}}
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	put := func(change func(*corev1.Pod)) (asJSON, asProtobuf []byte) {
		q := p.DeepCopy()
		q.ManagedFields, q.Status.Phase = nil, corev1.PodFailed
		change(q)
		inJSON, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		inProtobuf, err := q.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		kind := stream.Type{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), Encoding: stream.Protobuf}
		return inJSON, stream.Envelope(kind, inProtobuf)
	}
	asIs, asIsProtobuf := put(func(*corev1.Pod) {})
	anew, anewProtobuf := put(func(q *corev1.Pod) { q.ResourceVersion = "" })
	stale, staleProtobuf := put(func(q *corev1.Pod) { q.ResourceVersion = "6" })
	relabeled, _ := put(func(q *corev1.Pod) { q.Labels = nil })
	renamed, _ := put(func(q *corev1.Pod) { q.Name = "b" })
	for name, c := range map[string]struct {
		method, contentType string
		body                []byte
		err                 error
	}{
		"PUT":                         {http.MethodPut, runtime.ContentTypeJSON, asIs, nil},
		"PUT of protobuf":             {http.MethodPut, runtime.ContentTypeProtobuf, asIsProtobuf, nil},
		"PUT of no state":             {http.MethodPut, runtime.ContentTypeJSON, anew, nil},
		"PUT of no state in protobuf": {http.MethodPut, runtime.ContentTypeProtobuf, anewProtobuf, nil},
		"PUT of an old state":         {http.MethodPut, runtime.ContentTypeJSON, stale, errPrecondition},
		"the same in protobuf":        {http.MethodPut, runtime.ContentTypeProtobuf, staleProtobuf, errPrecondition},
		"PUT of other labels":         {http.MethodPut, runtime.ContentTypeJSON, relabeled, errNotKept},
		"PUT of another name":         {http.MethodPut, runtime.ContentTypeJSON, renamed, errPrecondition},
		"PUT of JSON as protobuf":     {http.MethodPut, runtime.ContentTypeProtobuf, asIs, errNotKept},
		"PATCH of an annotation": {http.MethodPatch, strategic, []byte(`{"metadata":{"annotations":{"a":"b"}},"status":{}}`),
			errNotKept},
		"a merge patch": {http.MethodPatch, string(types.MergePatchType), []byte(`{"status":{"phase":"Failed"}}`), errNotKept},
		"an apply":      {http.MethodPatch, string(types.ApplyPatchType), asIs, errNotKept},
	} {
		w, err := writeStatus(stream.Object{Raw: raw}, pods, c.method, c.contentType, c.body)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
		if c.err != nil || err != nil {
			continue
		}
		got := &corev1.Pod{}
		if err := got.Unmarshal(w.shown); err != nil || got.Status.Phase != corev1.PodFailed || len(got.ManagedFields) != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
