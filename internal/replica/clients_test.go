package replica_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// restConfig is that of a client.
func (s *server) restConfig(contentType string) *rest.Config {
	c := &rest.Config{Host: s.URL, QPS: -1, UserAgent: "test"}
	c.ContentType = contentType
	if contentType == asProtobuf {
		c.AcceptContentTypes = asProtobuf + "," + asJSON
	}
	return c
}

type gates struct {
	clientfeatures.Gates
	watchList bool
}

func (g gates) Enabled(f clientfeatures.Feature) bool {
	if f == clientfeatures.WatchListClient {
		return g.watchList
	}
	return g.Gates.Enabled(f)
}

// revisions are those of all objects in an informer's store.
func revisions(t testing.TB, store cache.Store) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, o := range store.List() {
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		got[m.GetNamespace()+"/"+m.GetName()] = m.GetResourceVersion()
	}
	return got
}

// TestInformers runs Kubernetes' own informers of all kinds against a replica that changes, loses its source, and gets another
// content. In the end their stores must equal the replica.
func TestInformers(t *testing.T) {
	usual := clientfeatures.FeatureGates()
	t.Cleanup(func() { clientfeatures.ReplaceFeatureGates(usual) })
	widgetsType := streamtest.Widgets
	for _, watchList := range []bool{true, false} {
		clientfeatures.ReplaceFeatureGates(gates{usual, watchList})
		t.Run(fmt.Sprintf("WatchList %v", watchList), func(t *testing.T) {
			for _, test := range []struct {
				name     string
				custom   bool
				informer func(t *testing.T, s *server) cache.SharedIndexInformer
			}{
				{"typed protobuf", false, typed(asProtobuf)},
				{"typed JSON", false, typed(asJSON)},
				{"metadata", false, func(t *testing.T, s *server) cache.SharedIndexInformer {
					c, err := metadata.NewForConfig(s.restConfig(""))
					if err != nil {
						t.Fatal(err)
					}
					return metadatainformer.NewSharedInformerFactory(c, 0).ForResource(slicesResource).Informer()
				}},
				{"dynamic", true, func(t *testing.T, s *server) cache.SharedIndexInformer {
					c, err := dynamic.NewForConfig(s.restConfig(""))
					if err != nil {
						t.Fatal(err)
					}
					return dynamicinformer.NewDynamicSharedInformerFactory(c, 0).ForResource(widgetsResource).Informer()
				}},
				{"dynamic, of a built-in type", false, func(t *testing.T, s *server) cache.SharedIndexInformer {
					c, err := dynamic.NewForConfig(s.restConfig(""))
					if err != nil {
						t.Fatal(err)
					}
					return dynamicinformer.NewDynamicSharedInformerFactory(c, 0).ForResource(slicesResource).Informer()
				}},
				{"metadata of a custom type", true, func(t *testing.T, s *server) cache.SharedIndexInformer {
					c, err := metadata.NewForConfig(s.restConfig(""))
					if err != nil {
						t.Fatal(err)
					}
					return metadatainformer.NewSharedInformerFactory(c, 0).ForResource(widgetsResource).Informer()
				}},
			} {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel() // nearly all of it is the pause of an informer whose watch has expired
					resource, e := slicesResource, typ
					create := func(name string, revision edge.Revision) stream.Object {
						return slice("a", name, revision, 3, nil)
					}
					if test.custom {
						resource, e = widgetsResource, widgetsType
						create = func(name string, revision edge.Revision) stream.Object {
							return streamtest.Object(e, "a", name, revision, "")
						}
					}
					r := newReplica(t, replica.Config{Resource: resource})
					first := []stream.Object{create("x", 10), create("y", 20)}
					replace(t, r, stream.Snapshot{Type: e, Revision: 100, Objects: first})
					s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
					informer := test.informer(t, s)
					ctx, cancel := context.WithCancel(t.Context())
					var running sync.WaitGroup
					running.Go(func() { informer.Run(ctx.Done()) })
					defer running.Wait()
					defer cancel()
					changed := make(chan struct{}, 1000)
					note := func() { changed <- struct{}{} }
					_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
						AddFunc:    func(any) { note() },
						UpdateFunc: func(any, any) { note() },
						DeleteFunc: func(any) { note() },
					})
					if err != nil {
						t.Fatal(err)
					}
					until := func(want map[string]string) {
						t.Helper()
						for limit := time.After(streamtest.Patience); !maps.Equal(revisions(t, informer.GetStore()), want); {
							select {
							case <-changed:
							case <-limit:
								t.Fatalf("the store has %v, want %v", revisions(t, informer.GetStore()), want)
							}
						}
					}
					until(map[string]string{"a/x": "10", "a/y": "20"})
					apply(t, r, event(stream.Modified, create("x", 101)), event(stream.Deleted, create("y", 102)),
						event(stream.Added, create("z", 103)))
					until(map[string]string{"a/x": "101", "a/z": "103"})
					others := []stream.Object{create("y", 150), create("z", 103)}
					replace(t, r, stream.Snapshot{Type: e, Revision: 200, Objects: others})
					until(map[string]string{"a/y": "150", "a/z": "103"})
					apply(t, r, event(stream.Modified, create("z", 201)))
					until(map[string]string{"a/y": "150", "a/z": "201"})
					if got := s.asked("sendInitialEvents=true") > 0; got != watchList {
						t.Errorf("the client used WatchList: %v, want %v", got, watchList)
					}
				})
			}
		})
	}
}

func typed(contentType string) func(t *testing.T, s *server) cache.SharedIndexInformer {
	return func(t *testing.T, s *server) cache.SharedIndexInformer {
		c, err := kubernetes.NewForConfig(s.restConfig(contentType))
		if err != nil {
			t.Fatal(err)
		}
		return informers.NewSharedInformerFactory(c, 0).Discovery().V1().EndpointSlices().Informer()
	}
}

func TestPager(t *testing.T) {
	r := newReplica(t, replica.Config{})
	var many []stream.Object
	for i := range 1234 {
		many = append(many, slice(fmt.Sprint("ns", i%3), fmt.Sprint("s", i), 1+edge.Revision(i), 1, nil))
	}
	replace(t, r, snapshot(2000, many...))
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	c, err := kubernetes.NewForConfig(s.restConfig(asProtobuf))
	if err != nil {
		t.Fatal(err)
	}
	p := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		apply(t, r, event(stream.Modified, slice("ns0", "s0", r.Position()+1, 1, nil))) // the world goes on
		return c.DiscoveryV1().EndpointSlices("").List(t.Context(), o)
	}))
	p.PageSize = 500
	got, paged, err := p.List(t.Context(), metav1.ListOptions{})
	if err != nil || !paged || meta.LenList(got) != 1234 {
		t.Fatalf("%d objects, paged %v, %v", meta.LenList(got), paged, err)
	}
	if n := len(s.requests); n != 3 {
		t.Errorf("%d requests, want 3 pages", n)
	}
}

func TestTypedErrors(t *testing.T) {
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: filled(t)}))
	for _, ct := range []string{asJSON, asProtobuf} {
		c, err := kubernetes.NewForConfig(s.restConfig(ct))
		if err != nil {
			t.Fatal(err)
		}
		api := c.DiscoveryV1().EndpointSlices("a")
		o, err := api.Get(t.Context(), "x", metav1.GetOptions{})
		if err != nil || len(o.Endpoints) != 2 || o.ResourceVersion != "10" {
			t.Errorf("get: %v %v", o, err)
		}
		if _, err := api.Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get: %v, want not found", err)
		}
		w, err := api.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
		if err != nil {
			t.Fatal(err)
		}
		e := <-w.ResultChan()
		if e.Type != apiwatch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
			t.Errorf("watch from long ago: %v", e)
		}
		w.Stop()
	}
}
