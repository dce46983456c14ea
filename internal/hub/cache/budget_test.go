package cache

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

// large is a ConfigMap of namespace a of some size.
func large(bytes int) stream.Object {
	return stream.Object{
		Key: stream.Key{Namespace: "a", Name: "x"}, Revision: 5,
		Raw: fmt.Appendf(nil, `{"metadata":{"namespace":"a","name":"x","resourceVersion":"5"},"data":{"x":"%s"}}`,
			strings.Repeat("x", bytes)),
	}
}

// Many small selections are as much as a large one: the largest goes first, and is the cloud's to answer.
func TestACallersBudget(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.client = "sa 1"
		at := func(i int) string { return fmt.Sprintf("%s?fieldSelector=n%d", listOfA, i) }
		for i := range 5 {
			what := inA
			what.Fields, what.Labels = fmt.Sprintf("n%d", i), w.client
			w.has(what, 9, large(2<<20+i))
			want(t, w.get(at(i)), http.StatusOK, `"name":"x"`)
		}
		w.nothing()
		time.Sleep(2*tidyEvery + time.Second)
		for i := range 5 {
			want(t, w.get(at(i)), http.StatusOK)
		}
		if passed := len(w.passed()); passed != 2 || len(w.guests()) != 3 {
			t.Errorf("%d of 5 are passed on, %d are followed: want 2 and 3", passed, len(w.guests()))
		}
		// What the node's programs have is no concern of theirs.
		w.client = ""
		w.has(inA, 9, large(10<<20))
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		time.Sleep(2*tidyEvery + time.Second)
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		w.nothing()
	})
}

// What was too large for a caller may fit later.
func TestWhatWasTooLargeIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.client = "sa 1"
		var said []string
		w.Set.mu.Lock()
		w.cfg.TooLarge = func(what store.Collection, most int) { said = append(said, fmt.Sprint(what.Client, " ", most)) }
		w.Set.mu.Unlock()
		w.has(of(w.client, inA), 9, large(guestBytes))
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		time.Sleep(2*tidyEvery + time.Second)
		w.nothing()
		want(t, w.get(listOfA), http.StatusOK, "the cloud's own")
		w.passedOn()
		w.has(of(w.client, inA), 12, setObject("x", 12))
		time.Sleep(passOnFor - time.Minute)
		want(t, w.get(listOfA), http.StatusOK, "the cloud's own")
		w.passedOn()
		time.Sleep(time.Minute)
		want(t, w.get(listOfA), http.StatusOK, `"at":"12"`)
		w.nothing()
		if len(w.guests()) != 1 {
			t.Errorf("%+v are followed", w.guests())
		}
		w.Set.mu.Lock()
		defer w.Set.mu.Unlock()
		if want := fmt.Sprint("sa 1 ", guestBytes); len(said) != 1 || said[0] != want {
			t.Errorf("said to be too large: %q, want %q", said, want)
		}
	})
}

// A caller who asks for 200 MB is answered by the cloud; nothing of it is in memory.
func TestACallerWhoAsksForTooMuch(t *testing.T) {
	const objects, each = 200, 1 << 20
	var lists atomic.Int32
	cloud := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		lists.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[`)
		const one = `{"metadata":{"namespace":"a","name":"o%d","resourceVersion":"5"},"data":{"x":"%s"}}`
		filler := strings.Repeat("x", each)
		for i := range objects {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			if _, err := fmt.Fprintf(w, one, i, filler); err != nil {
				return
			}
		}
		fmt.Fprint(w, `]}`)
	}))
	defer cloud.Close()
	base, err := url.Parse(cloud.URL)
	if err != nil {
		t.Fatal(err)
	}
	up := live.NewValue(link.Up)
	newFeed := Feeds(&Sources{
		Cloud: base, CloudLink: up, History: sure(t, up),
		As: func(string) http.RoundTripper { return http.DefaultTransport },
	})
	w := begin(t, Config{Disk: store.NewMemory(nil), Cloud: up, NewFeed: newFeed})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 3 {
		r := httptest.NewRequest(http.MethodGet, listOfA, nil)
		info, err := infos.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		for out := httptest.NewRecorder(); w.Answer(out, r.WithContext(request.WithRequestInfo(t.Context(), info)), "sa 1"); {
			if out.Code != http.StatusServiceUnavailable { // as long as the list takes longer than a caller waits, it is refused
				t.Fatalf("it is not the cloud's own: %d %s", out.Code, out.Body)
			}
			out = httptest.NewRecorder()
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 100<<20 {
		t.Errorf("%d MiB were allocated for it", grown>>20)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("%d MiB are held", grown>>20)
	}
	if n := lists.Load(); n != 1 {
		t.Errorf("it was listed %d times, want once in %v", n, passOnFor)
	}
}

// sure is a history that runs until the test ends.
func sure(t testing.TB, cloud *live.Value[link.State]) *HistoryKeeper {
	k := NewHistory(HistoryConfig{Link: cloud, Disk: store.NewMemory(nil)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return k
}

// begin runs a set in real time.
func begin(t testing.TB, c Config) *Set {
	t.Helper()
	c.Coordinator, c.Changed = live.NewValue(link.Down), func() {}
	s := New(c, nil)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-s.Begun()
	return s
}

// BenchmarkSingles measures a thousand selections of one object, such as kubelet's ConfigMaps and Secrets: bytes of heap and
// goroutines for each, with its watch of the cloud.
func BenchmarkSingles(b *testing.B) {
	const n = 1000
	cloud := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("watch") {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		name := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
		fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[%s]}`,
			setObject(name, edge.Revision(5)).Raw)
	}))
	defer cloud.Close()
	base, err := url.Parse(cloud.URL)
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{}
	defer cloud.CloseClientConnections()
	up := live.NewValue(link.Up)
	newFeed := Feeds(&Sources{
		Cloud: base, CloudLink: up, History: sure(b, up),
		AsNode: transport, As: func(string) http.RoundTripper { return transport },
	})
	for b.Loop() {
		s := begin(b, Config{Disk: store.NewMemory(nil), Cloud: up, NewFeed: newFeed})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		goroutines := runtime.NumGoroutine()
		for i := range n {
			r := httptest.NewRequest(http.MethodGet, fmt.Sprintf("%s?fieldSelector=metadata.name%%3Dx%d", listOfA, i), nil)
			info, err := infos.NewRequestInfo(r)
			if err != nil {
				b.Fatal(err)
			}
			out := httptest.NewRecorder()
			if !s.Answer(out, r.WithContext(request.WithRequestInfo(b.Context(), info)), "") || out.Code != http.StatusOK {
				b.Fatalf("%d %s", out.Code, out.Body)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "heap-B/selection")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/n, "goroutines/selection")
	}
}
