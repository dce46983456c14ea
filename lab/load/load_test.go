package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

func TestServices(t *testing.T) {
	for _, tt := range []struct {
		what   string
		spec   Spec
		want   Counts
		slices int
	}{
		{"none", Spec{}, Counts{}, 0},
		{"without endpoints there is a slice", Spec{Services: 2}, Counts{Services: 2, Slices: 2}, 2},
		{"a slice is full at 100", Spec{Services: 1, EndpointsEach: 100}, Counts{Services: 1, Slices: 1, Addresses: 100}, 1},
		{"and 250 need three", Spec{Services: 2, EndpointsEach: 250}, Counts{Services: 2, Slices: 6, Addresses: 500}, 6},
	} {
		client := fake.NewClientset()
		for range 2 { // the second time there is nothing to do
			got, err := Services(t.Context(), client, tt.spec)
			if err != nil || got != tt.want {
				t.Errorf("%s: %+v, %v; want %+v", tt.what, got, err, tt.want)
			}
		}
		list, err := client.DiscoveryV1().EndpointSlices("load").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != tt.slices {
			t.Errorf("%s: %d slices, %v; want %d", tt.what, len(list.Items), err, tt.slices)
		}
		addresses := map[string]bool{}
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				addresses[e.Addresses[0]] = true
			}
		}
		if len(addresses) != tt.want.Addresses {
			t.Errorf("%s: %d different addresses, want %d", tt.what, len(addresses), tt.want.Addresses)
		}
	}
	if _, err := Services(t.Context(), fake.NewClientset(), Spec{Services: -1}); err == nil {
		t.Error("-1 Services can be made")
	}
}

func TestShapes(t *testing.T) {
	spec := Spec{Services: 1, EndpointsEach: 2, Nodes: []string{"n1", "n2"}}.withDefaults()
	service := spec.service(0)
	service.UID = "u"
	s := spec.slice(service, 0, 0, time.Unix(1, 0))
	if s.Labels[discoveryv1.LabelServiceName] != service.Name || s.Labels[discoveryv1.LabelManagedBy] != ManagedBy {
		t.Errorf("labels %v", s.Labels)
	}
	if o := s.OwnerReferences; len(o) != 1 || o[0].UID != "u" || o[0].Kind != "Service" {
		t.Errorf("owner %v", o)
	}
	e := s.Endpoints[1]
	if *e.NodeName != "n2" || e.TargetRef.Kind != "Pod" || !*e.Conditions.Ready || e.Addresses[0] != "172.16.0.1" {
		t.Errorf("endpoint %+v", e)
	}
	for number, want := range map[int]string{
		0: "172.16.0.0", 256: "172.16.1.0", 1<<20 - 1: "172.31.255.255", 1 << 20: "172.16.0.0",
	} {
		if got := address(number); got != want {
			t.Errorf("address %d is %s, want %s", number, got, want)
		}
	}
}

func TestRollingUpdate(t *testing.T) {
	spec := Spec{Services: 1, EndpointsEach: 3}.withDefaults()
	slice := &roller{spec: spec, object: spec.slice(spec.service(0), 0, 0, time.Unix(1, 0))}
	state := func() string {
		var all []string
		for _, e := range slice.object.Endpoints {
			mark := ""
			if *e.Conditions.Terminating {
				mark = "-"
			}
			all = append(all, strings.TrimPrefix(e.Addresses[0], "172.16.0.")+mark)
		}
		return strings.Join(all, " ")
	}
	for i, want := range []string{"0- 1 2", "1 2", "1 2 12", "1- 2 12", "2 12", "2 12 15"} {
		slice.step(phase(i%int(phases)), 10+i, time.Unix(2, 0))
		if got := state(); got != want {
			t.Fatalf("step %d: %s, want %s", i, got, want)
		}
	}
	// Whatever the order, an object stays valid.
	for i := range 200 {
		slice.step(phase(rand.IntN(int(phases))), 100+i, time.Unix(2, 0))
		if len(slice.object.Endpoints) > sliceSize {
			t.Fatalf("%d endpoints in a slice", len(slice.object.Endpoints))
		}
	}
}

// TestChurn has every third update fail: before it is made, or after. Time is the bubble's, so that a busy machine changes
// nothing.
func TestChurn(t *testing.T) { synctest.Test(t, testChurn) }

func testChurn(t *testing.T) {
	client := fake.NewClientset()
	spec := Spec{Services: 3, EndpointsEach: 4, Writers: 2}
	if _, err := Services(t.Context(), client, spec); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	last := map[string]uint64{}
	calls := 0
	check := func(a clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		update, _ := a.(clienttesting.UpdateAction)
		o, ok := update.GetObject().(metav1.Object)
		if !ok {
			t.Errorf("update of %T", update.GetObject())
			return false, nil, nil
		}
		key := a.GetResource().Resource + "/" + o.GetName()
		n := sequenceOf(&metav1.ObjectMeta{Annotations: o.GetAnnotations()})
		if n <= last[key] {
			t.Errorf("%s goes from change %d to %d", key, last[key], n)
		}
		last[key] = n
		if calls++; calls%3 == 0 {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: a.GetResource().Resource}, o.GetName(),
				errors.New("of this test"))
		}
		return false, nil, nil
	}
	client.PrependReactor("update", "*", check)
	counts, err := Churn(t.Context(), client, spec, 200, 200*time.Millisecond)
	if err != nil || counts.Updates < 6 || counts.Retries == 0 || len(last) != 3 {
		t.Errorf("%+v, %v, %d objects: want some updates of all 3, some of them again", counts, err, len(last))
	}
	before := counts.Sequence
	if counts, err = Churn(t.Context(), client, spec, 0, 50*time.Millisecond); err != nil || counts.Sequence <= before {
		t.Errorf("%+v, %v: want it to go on after %d", counts, err, before)
	}

	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := Churn(ctx, client, spec, 1, time.Hour); !errors.Is(err, cause) {
		t.Errorf("%v, want the cause", err)
	}
	began := time.Now()
	short, done := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer done()
	_, err = Churn(short, client, spec, 1, time.Hour) // the second change would come after the deadline
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 500*time.Millisecond {
		t.Errorf("it ends after %v with %v, want the deadline", took, err)
	}
	if _, err := Churn(t.Context(), fake.NewClientset(), spec, 1, time.Hour); !errors.Is(err, ErrNothingToChange) {
		t.Errorf("%v, want ErrNothingToChange", err)
	}
}

func TestRefusalsAreNotTriedAgain(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "x", errors.New("no"))
	})
	if _, err := Services(t.Context(), client, Spec{Services: 1}); !apierrors.IsForbidden(err) {
		t.Errorf("%v, want the refusal", err)
	}
}

func TestPatches(t *testing.T) {
	var patched atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := patched.Add(1)
		var patch struct{ Metadata metav1.ObjectMeta }
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || r.Method != http.MethodPatch ||
			r.URL.Path != "/api/v1/nodes/a" && r.URL.Path != "/api/v1/nodes/b" {
			t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		}
		if size := len(patch.Metadata.Annotations[AnnotationPatch]); size < 1 || size > 64 {
			t.Errorf("a patch of %d bytes", size)
		}
		if n%5 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1"}`))
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	counts, err := Patches(t.Context(), client.CoreV1().RESTClient(), PatchSpec{
		Paths: []string{"/api/v1/nodes/a", "/api/v1/nodes/b"}, MaxBytes: 64, PerSecond: 500,
	}, 100*time.Millisecond)
	if err != nil || counts.Updates == 0 {
		t.Errorf("%+v, %v", counts, err)
	}
	if _, err := Patches(t.Context(), client.CoreV1().RESTClient(), PatchSpec{}, time.Hour); !errors.Is(err, ErrNothingToChange) {
		t.Errorf("%v, want ErrNothingToChange", err)
	}
}

// However many Services and nodes there are, and however long it goes on.
func TestARollingUpdateLeavesNoNodeOut(t *testing.T) {
	for nodes := 1; nodes <= 5; nodes++ {
		spec := Spec{EndpointsEach: 12, Namespace: "load"}
		for i := range nodes {
			spec.Nodes = append(spec.Nodes, fmt.Sprint("n", i))
		}
		for services := 1; services <= 20; services++ {
			s := &roller{spec: spec, object: spec.slice(spec.service(0), 0, 0, time.Unix(0, 0))}
			for turn := 1; turn <= 40; turn++ {
				for _, p := range []phase{terminate, remove, add} {
					s.step(p, 1000+turn*services, time.Unix(0, 0))
				}
				slices := map[string]int{}
				for _, x := range s.object.Endpoints {
					slices[*x.NodeName]++
				}
				for _, node := range spec.Nodes {
					if least := 12/nodes - 1; slices[node] < least {
						t.Fatalf("%d Services, turn %d: %v, want at least %d each", services, turn, slices, least)
					}
				}
			}
		}
	}
}
