package views

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// TestInformerSeesAChangeOfTopology checks that a client's handlers get each change of topology without a restart, also when the
// slices were unchanged before and when the change arrives late.
func TestInformerSeesAChangeOfTopology(t *testing.T) {
	slices1 := newReplica(t, schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"})
	services := newReplica(t, schema.GroupVersionResource{Version: "v1", Resource: "services"})
	sliceType := stream.Type{GroupVersionKind: sliceKind, Encoding: stream.Protobuf}
	replace(t, slices1, stream.Snapshot{Type: sliceType, Revision: 100, Objects: []stream.Object{
		sliceOf(t, 100, places...),
	}})
	replace(t, services, stream.Snapshot{Type: serviceType, Revision: 100, Objects: []stream.Object{
		service(t, "web", 90, "openyurt.io/nodepool"),
	}})
	topology := NewTopology(TopologyConfig{
		Node: "n1", Pool: "hangzhou", Source: from(services, newScript(poolType, 80, nodePool(70, "n1", "n2"))),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = topology.Run(ctx) }()
	defer func() { cancel(); <-done }()
	if _, err := topology.complete.Wait(ctx, func(c bool) bool { return c }); err != nil {
		t.Fatal(err)
	}

	handler := replica.NewHandler(replica.HandlerConfig{Replica: slices1, View: topology})
	var lists atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verb := "list"
		query := r.URL.Query()
		if query.Get("resourceVersion") != "" && !query.Has("watch") || query.Get("sendInitialEvents") == "true" {
			lists.Add(1)
		}
		if r.URL.Query().Has("watch") {
			verb = "watch"
		}
		handler.Serve(w, r, replica.Request{Verb: verb})
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
	})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	told := make(chan []string, 100)
	tell := func(o any) {
		var names []string
		for _, e := range o.(*discoveryv1.EndpointSlice).Endpoints {
			names = append(names, e.Addresses...)
		}
		told <- names
	}
	_, err = factory.Discovery().V1().EndpointSlices().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, o any) { tell(o) }, DeleteFunc: func(any) { t.Error("a slice was deleted") },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	defer func() { cancel(); factory.Shutdown() }()

	expect := func(why string, want ...string) {
		t.Helper()
		deadline := time.After(30 * time.Second)
		for {
			select {
			case got := <-told:
				if slices.Equal(got, want) {
					return
				}
			case <-deadline:
				t.Fatalf("%s: the handlers were never told of %v", why, want)
			}
		}
	}
	change := func(r edge.Revision, value string) {
		t.Helper()
		apply(t, services, stream.Modified, service(t, "web", r, value))
	}
	bookmark := func(r edge.Revision) {
		t.Helper()
		apply(t, slices1, stream.Bookmark, stream.Object{Revision: r})
	}
	expect("at first", "self", "mate")
	change(110, "kubernetes.io/hostname") // the slices' replica is still at 100, where the slice itself is
	bookmark(120)
	expect("another scope, of a slice of the newest revision", "self")
	change(130, "openyurt.io/nodepool") // and now it is at 120
	bookmark(140)
	expect("another scope, of a slice that is older", "self", "mate")
	apply(t, slices1, stream.Modified, sliceOf(t, 200, places[0], places[3]))
	expect("an event", "self")
	change(150, "") // late: the slice of 200 has been shown
	bookmark(210)
	expect("no topology any more", "self", "far")
	apply(t, slices1, stream.Modified, sliceOf(t, 220, places...))
	expect("an event without a topology", everyone...)
	if n := lists.Load(); n != 1 {
		t.Errorf("the informer listed %d times: a change of topology is told within the watch", n)
	}
}

func newReplica(t *testing.T, resource schema.GroupVersionResource) *replica.Replica {
	t.Helper()
	r := replica.New(replica.Config{Resource: resource})
	t.Cleanup(r.Close)
	return r
}

func replace(t *testing.T, r *replica.Replica, s stream.Snapshot) {
	t.Helper()
	if err := r.Replace(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func apply(t *testing.T, r *replica.Replica, kind stream.EventType, o stream.Object) {
	t.Helper()
	if err := r.Apply(t.Context(), []stream.Event{{Type: kind, Object: o}}); err != nil {
		t.Fatal(err)
	}
}
