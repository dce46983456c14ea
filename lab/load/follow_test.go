package load

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestDiff(t *testing.T) {
	at := func(revision string, digest uint64) Version { return Version{Revision: revision, Digest: digest} }
	const r = ServicesResource
	want := State{r: {"a/x": at("5", 1), "a/y": at("6", 2)}}
	for _, tt := range []struct {
		has  State
		diff string
	}{
		{State{r: {"a/x": at("5", 1), "a/y": at("6", 2)}}, ""},
		{State{}, "services: 0 of 2; a/x is missing"},
		{State{r: {"a/x": at("5", 1)}}, "services: 1 of 2; a/y is missing"},
		{State{r: {"a/x": at("4", 1), "a/y": at("6", 2)}}, "services: a/x is at 4, want 5"},
		{State{r: {"a/x": at("5", 9), "a/y": at("6", 2)}}, "services: a/x has different content at revision 5"},
		{State{r: {"a/x": at("5", 1), "a/y": at("6", 2), "b/z": at("7", 3)}}, "services: b/z should be gone"},
	} {
		if got := tt.has.Diff(want); got != tt.diff {
			t.Errorf("%v: %q, want %q", tt.has, got, tt.diff)
		}
	}
}

func TestFollower(t *testing.T) {
	client := fake.NewClientset()
	spec := Spec{Services: 5, EndpointsEach: 3}
	if _, err := Services(t.Context(), client, spec); err != nil {
		t.Fatal(err)
	}
	if _, err := Services(t.Context(), client, Spec{Services: 2, EndpointsEach: 3, Namespace: "not-compared"}); err != nil {
		t.Fatal(err)
	}
	follow := FollowSpec{
		Streams: []Stream{{Resource: ServicesResource}, {Resource: EndpointSlicesResource}}, Compared: Namespace,
	}
	f, err := newFollower(client, follow)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	equal := func() State {
		t.Helper()
		want, err := Read(t.Context(), client, follow)
		if err != nil {
			t.Fatal(err)
		}
		wait, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := f.WaitEqual(wait, want); err != nil {
			t.Fatal(err)
		}
		return want
	}
	if first := equal(); len(first[EndpointSlicesResource]) != 5 {
		t.Errorf("%d slices, want 5", len(first[EndpointSlicesResource]))
	}
	if _, err := Churn(t.Context(), client, spec, 0, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Services(Namespace).Delete(t.Context(), serviceName(2), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second := equal()
	if len(second[ServicesResource]) != 4 || second[EndpointSlicesResource]["load/load-00000-000"].Sequence == 0 {
		t.Errorf("%v", second)
	}

	second[ServicesResource]["load/nobody"] = Version{}
	short, cancelShort := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelShort()
	if err := f.WaitEqual(short, second); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "load/nobody is missing") {
		t.Errorf("%v, want what is missing", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestStreamsThatCannotBe(t *testing.T) {
	for _, streams := range [][]Stream{
		{{Resource: "secrets"}}, {{Resource: ServicesResource}, {Resource: ServicesResource, Labels: "a=b"}},
	} {
		if _, err := newFollower(fake.NewClientset(), FollowSpec{Streams: streams}); err == nil {
			t.Errorf("%v can be followed", streams)
		}
	}
	if _, err := Read(t.Context(), fake.NewClientset(), FollowSpec{Streams: []Stream{{Resource: "secrets"}}}); err == nil {
		t.Error("secrets can be read")
	}
}

func TestReduce(t *testing.T) {
	object := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "x", ResourceVersion: "7", Annotations: map[string]string{AnnotationSequence: "12", "b": "c"},
	}}
	reducedTo := func(o any) Version {
		t.Helper()
		v, err := reduce(o)
		r, ok := v.(*reduced)
		if err != nil || !ok || r.key() != "a/x" {
			t.Fatalf("%T, %v", v, err)
		}
		return r.version
	}
	first := reducedTo(object)
	if first.Revision != "7" || first.Sequence != 12 || first != reducedTo(object.DeepCopy()) {
		t.Errorf("%+v, and %+v of an equal object", first, reducedTo(object.DeepCopy()))
	}
	object.Spec.ClusterIP = "10.96.0.9"
	if reducedTo(object).Digest == first.Digest {
		t.Error("a changed object has the same digest")
	}
	if _, err := reduce("text"); err == nil {
		t.Error("text is reduced")
	}
}
