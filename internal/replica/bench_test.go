package replica_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// BenchmarkWatch measures one event from Apply to the bodies of n clients, over loopback connections: an EndpointSlice of 50
// endpoints. The figures include reading it at the other end.
func BenchmarkWatch(b *testing.B) {
	for _, accept := range []string{asProtobuf, asJSON} {
		for _, n := range []int{1, 10} {
			name := map[string]string{asProtobuf: "protobuf", asJSON: "json"}[accept]
			b.Run(fmt.Sprintf("%s/watchers=%d", name, n), func(b *testing.B) {
				r := newReplica(b, replica.Config{})
				replace(b, r, snapshot(1))
				s := serve(b, newHandler(b, replica.HandlerConfig{Replica: r}))
				told := make(chan error)
				for range n {
					url := s.URL + slicesPath + "?watch=1&resourceVersion=1"
					req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
					if err != nil {
						b.Fatal(err)
					}
					req.Header.Set("Accept", accept)
					res, err := s.Client().Do(req)
					if err != nil {
						b.Fatal(err)
					}
					defer func() { _ = res.Body.Close() }()
					e, err := stream.EncodingOf(res.Header.Get("Content-Type"))
					if err != nil {
						b.Fatal(err)
					}
					frames := stream.NewFrameReader(res.Body, e, 1<<20)
					go func() {
						for {
							_, err := frames.Read()
							select {
							case told <- err:
							case <-b.Context().Done():
								return
							}
							if err != nil {
								return
							}
						}
					}()
				}
				o := slice("a", "x", 1, 50, app("x"))
				b.SetBytes(int64(len(o.Raw) * n))
				b.ReportAllocs()
				for b.Loop() {
					o.Revision++
					if err := r.Apply(b.Context(), []stream.Event{{Type: stream.Modified, Object: o}}); err != nil {
						b.Fatal(err)
					}
					for range n {
						if err := <-told; err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// BenchmarkHandlerAlone measures the replica's own part of it: no connection, no reader.
func BenchmarkHandlerAlone(b *testing.B) {
	r := newReplica(b, replica.Config{})
	replace(b, r, snapshot(1))
	w, err := r.Watch(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	o := slice("a", "x", 1, 50, app("x"))
	frames := stream.NewFrameWriter(io.Discard, typ)
	b.ReportAllocs()
	for b.Loop() {
		o.Revision++
		if err := r.Apply(b.Context(), []stream.Event{{Type: stream.Modified, Object: o}}); err != nil {
			b.Fatal(err)
		}
		events, err := w.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range events {
			if err := frames.Write(e); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkList measures a list of 1000 EndpointSlices of 50 endpoints.
func BenchmarkList(b *testing.B) {
	r := newReplica(b, replica.Config{})
	replace(b, r, thousand())
	h := newHandler(b, replica.HandlerConfig{Replica: r})
	for _, accept := range []string{asProtobuf, asProtobuf + " gzip", asJSON} {
		b.Run(accept, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req := ask(b.Context(), "")
				req.Header.Set("Accept", accept)
				if accept == asProtobuf+" gzip" {
					req.Header.Set("Accept", asProtobuf)
					req.Header.Set("Accept-Encoding", "gzip")
				}
				w := &discard{header: http.Header{}}
				h.Serve(w, req, replica.Request{Verb: "list"})
				b.SetBytes(w.n)
			}
		})
	}
}

type discard struct {
	header http.Header
	n      int64
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     {}
func (d *discard) Write(p []byte) (int, error) {
	d.n += int64(len(p))
	return len(p), nil
}

func thousand() stream.Snapshot {
	s := snapshot(2000)
	for i := range 1000 {
		s.Objects = append(s.Objects, slice("default", fmt.Sprintf("service-%d-abcde", i), 1+edge.Revision(i), 50, app("x")))
	}
	return s
}

// BenchmarkMemory measures the heap that 1000 EndpointSlices of 50 endpoints take, in a replica and decoded in a
// client-go store. Its time means nothing.
func BenchmarkMemory(b *testing.B) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	b.Run("replica", func(b *testing.B) {
		for b.Loop() {
			before := heap()
			r := newReplica(b, replica.Config{})
			replace(b, r, thousand())
			b.ReportMetric(float64(heap()-before)/1000, "heap-B/object")
			b.ReportMetric(float64(r.Stats().ObjectBytes)/1000, "raw-B/object")
			r.Close()
		}
	})
	b.Run("decoded", func(b *testing.B) {
		for b.Loop() {
			before := heap()
			store := cache.NewStore(cache.MetaNamespaceKeyFunc)
			for _, o := range thousand().Objects {
				s := &discoveryv1.EndpointSlice{}
				if err := s.Unmarshal(o.Raw); err != nil {
					b.Fatal(err)
				}
				if err := store.Add(s); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(heap()-before)/1000, "heap-B/object")
			runtime.KeepAlive(store)
		}
	})
}
