package model_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"yurtcoordinator/internal/sim/model"
)

// world is a store with a namespace, and two servers over it, whose clocks stand at 2106.
type world struct {
	t     *testing.T
	store *model.Store
	a, b  *model.Server
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: model.NewStore()}
	cfg := model.Config{
		Store: w.store, Random: model.NewRandom(0),
		Clock: clocktesting.NewFakePassiveClock(time.Date(2106, 1, 1, 0, 0, 0, 0, time.UTC)),
	}
	w.a, w.b = model.NewServer(cfg), model.NewServer(cfg)
	w.must(http.StatusCreated, w.a, "POST", "/api/v1/namespaces", `{"metadata":{"name":"default"}}`)
	return w
}

func as(ctx context.Context, name string) context.Context {
	return request.WithUser(ctx, &user.DefaultInfo{Name: name})
}

// ask returns a server's answer.
func ask(ctx context.Context, h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(as(ctx, "me"), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", merge)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func (w *world) must(code int, h http.Handler, method, path, body string) any {
	w.t.Helper()
	answer := ask(w.t.Context(), h, method, path, body)
	if answer.Code != code {
		w.t.Fatalf("%s %s: %d, must be %d: %s", method, path, answer.Code, code, answer.Body)
	}
	var o any
	if err := json.Unmarshal(answer.Body.Bytes(), &o); err != nil {
		w.t.Fatal(err)
	}
	return o
}

// stream is a watch under way, as it came so far.
type stream struct {
	events chan string // "ADDED a", or "ERROR 410"
	stop   context.CancelFunc
}

// watch begins a watch, in a bubble. What it sent is in events; they are closed when it has ended.
func watch(t *testing.T, h http.Handler, path string) *stream {
	ctx, stop := context.WithCancel(as(t.Context(), "me"))
	reader, writer := io.Pipe()
	s := &stream{events: make(chan string, 100), stop: stop}
	go func() {
		h.ServeHTTP(flushed{writer}, httptest.NewRequestWithContext(ctx, "GET", path, nil))
		_ = writer.Close()
	}()
	go func() {
		defer close(s.events)
		for lines := bufio.NewScanner(reader); lines.Scan(); {
			var e any
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Error(err)
			}
			what := at(e, "object.metadata.name")
			if what == "" {
				what = at(e, "object.code") + at(e, "object.metadata.resourceVersion")
			}
			s.events <- at(e, "type") + " " + what
		}
	}()
	return s
}

type flushed struct{ io.Writer }

func (flushed) Header() http.Header { return http.Header{} }
func (flushed) WriteHeader(int)     {}
func (flushed) Flush()              {}

// sent checks what came since the last time.
func (s *stream) sent(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for len(s.events) > 0 {
		got = append(got, <-s.events)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the watch sent %q, must be %q", got, want)
	}
}

func (s *stream) ended(t *testing.T) {
	t.Helper()
	s.sent(t)
	select {
	case _, open := <-s.events:
		if open {
			t.Error("the watch sends")
		}
	default:
		t.Error("the watch has not ended")
	}
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func (w *world) make(h http.Handler, name string) {
	w.t.Helper()
	w.must(http.StatusCreated, h, "POST", configMaps, `{"metadata":{"name":"`+name+`"}}`)
}

func names(list any) (names []string) {
	for i := 0; at(list, "items."+strconv.Itoa(i)) != ""; i++ {
		names = append(names, at(list, "items."+strconv.Itoa(i)+".metadata.name"))
	}
	return names
}

func TestCacheLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(w.a, "a")
		w.b.Lag(2 * time.Second)
		before, late := watch(t, w.a, configMaps+"?watch=true"), watch(t, w.b, configMaps+"?watch=true")
		defer before.stop()
		defer late.stop()
		before.sent(t, "ADDED a")
		late.sent(t, "ADDED a")
		w.make(w.b, "b")
		before.sent(t, "ADDED b")
		late.sent(t)
		got := names(w.must(http.StatusOK, w.b, "GET", configMaps+"?resourceVersion=0", ""))
		if !slices.Equal(got, []string{"a"}) {
			t.Errorf("the cache has %q", got)
		}
		w.must(http.StatusOK, w.b, "GET", configMaps+"/b", "")
		w.must(http.StatusNotFound, w.b, "GET", configMaps+"/b?resourceVersion=0", "")
		start := time.Now()
		if got := names(w.must(http.StatusOK, w.b, "GET", configMaps, "")); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the storage has %q", got)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("a consistent list waits for the cache: %v", d)
		}
		late.sent(t, "ADDED b")

		w.b.Lag(time.Hour)
		w.make(w.b, "c")
		start = time.Now()
		got = names(w.must(http.StatusOK, w.b, "GET", configMaps, ""))
		if len(got) != 3 || time.Since(start) != 3*time.Second {
			t.Errorf("after %v, the storage has %q", time.Since(start), got)
		}
		newest := strconv.FormatInt(w.store.Revision(), 10)
		w.must(http.StatusGatewayTimeout, w.b, "GET", configMaps+"?resourceVersion="+newest, "")
		w.b.Lag(0)
		late.sent(t, "ADDED c")
	})
}

func TestBookmarksAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := watch(t, w.a, configMaps+"?watch=true&allowWatchBookmarks=true&timeoutSeconds=90&resourceVersion=2")
		time.Sleep(59 * time.Second)
		s.sent(t)
		w.must(http.StatusCreated, w.a, "POST", nodes, `{"metadata":{"name":"n"}}`)
		time.Sleep(time.Second)
		s.sent(t, "BOOKMARK 3")
		time.Sleep(28 * time.Second)
		s.sent(t, "BOOKMARK 3")
		time.Sleep(2 * time.Second)
		s.ended(t)
	})
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(w.a, "a")
		there := watch(t, w.b, configMaps+"?watch=true")
		defer there.stop()
		s := watch(t, w.a, configMaps+"?watch=true")
		s.sent(t, "ADDED a")
		there.sent(t, "ADDED a")
		w.a.Restart()
		s.ended(t)
		there.sent(t)
		s = watch(t, w.a, configMaps+"?watch=true&resourceVersion=2")
		s.sent(t, "ERROR 410")
		s.ended(t)
		resumed := watch(t, w.b, configMaps+"?watch=true&resourceVersion=2")
		defer resumed.stop()
		resumed.sent(t, "ADDED a")
	})
}

func TestRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(w.a, "a")
		backup := w.store.Backup()
		for _, name := range []string{"b", "c"} {
			w.make(w.a, name)
		}
		w.must(http.StatusOK, w.a, "DELETE", configMaps+"/a", "")
		s := watch(t, w.b, configMaps+"?watch=true&resourceVersion="+strconv.FormatInt(w.store.Revision(), 10))
		s.sent(t)
		for range 2 { // a backup can be restored twice
			w.store.Restore(backup)
			s.ended(t)
			got := names(w.must(http.StatusOK, w.b, "GET", configMaps, ""))
			if !slices.Equal(got, []string{"a"}) || w.store.Revision() != 3 {
				t.Errorf("restored are %q, at revision %d", got, w.store.Revision())
			}
			w.make(w.a, "d")
		}
		resumed := watch(t, w.b, configMaps+"?watch=true&resourceVersion=3")
		defer resumed.stop()
		resumed.sent(t, "ADDED d")
	})
}

// A compaction leaves what is there, what a late cache has yet to show, and watches that are up to date.
func TestCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(w.a, "a")
		w.make(w.a, "b")
		s := watch(t, w.a, configMaps+"?watch=true&resourceVersion=4")
		defer s.stop()
		w.b.Lag(time.Minute)
		w.must(http.StatusOK, w.a, "DELETE", configMaps+"/a", "")
		s.sent(t, "DELETED a")
		w.store.Compact(w.store.Revision())
		late := watch(t, w.b, configMaps+"?watch=true&resourceVersion=4")
		defer late.stop()
		late.sent(t)
		time.Sleep(time.Minute)
		late.sent(t, "DELETED a")
		w.store.Compact(w.store.Revision())
		w.make(w.a, "a")
		s.sent(t, "ADDED a")
		if got := names(w.must(http.StatusOK, w.a, "GET", configMaps, "")); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("there are %q", got)
		}
		w.must(http.StatusGone, w.a, "GET", configMaps+"?resourceVersion=4&resourceVersionMatch=Exact", "")
	})
}

// What objects say of the time is the machine's clock's.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.must(http.StatusCreated, w.a, "POST", configMaps, `{"metadata":{"name":"a"}}`)
		if got := at(o, "metadata.creationTimestamp"); got != "2106-01-01T00:00:00Z" {
			t.Error(got)
		}
	})
}

// client-go's informers work with the model in both forms, and with streamed lists.
func TestInformers(t *testing.T) {
	for _, form := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(form, func(t *testing.T) {
			_, url := serveModel(t, model.NewStore())
			cfg := &rest.Config{Host: url, ContentConfig: rest.ContentConfig{ContentType: form}}
			client, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			create := func(name string) {
				o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
				if _, err := client.CoreV1().Nodes().Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			create("a")
			seen := addedNodes(t, client)
			if got := <-seen; got != "a" {
				t.Error(got)
			}
			create("b")
			if got := <-seen; got != "b" {
				t.Error(got)
			}
		})
	}
}

// addedNodes returns the names of the Nodes that an informer adds.
func addedNodes(t *testing.T, client kubernetes.Interface) <-chan string {
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Nodes().Informer()
	seen := make(chan string, 10)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		seen <- o.(*corev1.Node).Name
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(factory.Shutdown)
	t.Cleanup(cancel)
	factory.StartWithContext(ctx)
	return seen
}

// Over a Wire, an answer begins when the server flushes, and both sides see when the other one ends.
func TestWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(w.a, "a")
		ended := false
		wire := &model.Wire{User: &user.DefaultInfo{Name: "me"}}
		wire.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.a.ServeHTTP(rw, r)
			ended = true
		})
		open := func(ctx context.Context) io.ReadCloser {
			ended = false
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://cloud"+configMaps+"?watch=true", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := wire.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(answer.Body).ReadString('\n'); !strings.Contains(line, `"name":"a"`) || err != nil {
				t.Errorf("%q, %v", line, err)
			}
			return answer.Body
		}
		body := open(t.Context())
		if synctest.Wait(); ended {
			t.Error("the watch has ended")
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
		if synctest.Wait(); !ended {
			t.Error("the watch outlives its client")
		}
		ctx, cancel := context.WithCancel(t.Context())
		body = open(ctx)
		cancel()
		if _, err := io.ReadAll(body); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if synctest.Wait(); !ended {
			t.Error("the watch outlives its request")
		}
		body = open(t.Context())
		w.a.Restart()
		if rest, err := io.ReadAll(body); len(rest) > 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
	})
}

func TestGray(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := &model.Gray{Handler: w.a}
		within := func(d time.Duration, method, path, body string) *httptest.ResponseRecorder {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			return ask(ctx, g, method, path, body)
		}
		s := watch(t, g, configMaps+"?watch=true")
		defer s.stop()

		g.Set(model.Fault{Hang: true})
		if a := within(time.Minute, "POST", configMaps, `{"metadata":{"name":"hangs"}}`); a.Body.Len() > 0 {
			t.Error(a.Body)
		}
		w.make(w.b, "a")
		s.sent(t)
		g.Set()
		s.sent(t, "ADDED a")

		g.Set(model.Fault{Mute: true, Path: configMaps})
		if a := within(time.Minute, "POST", configMaps, `{"metadata":{"name":"mute"}}`); a.Body.Len() > 0 {
			t.Error(a.Body)
		}
		w.must(http.StatusOK, w.a, "GET", configMaps+"/mute", "")
		w.must(http.StatusOK, g, "GET", nodes, "")
		g.Set()
		s.sent(t, "ADDED mute")

		g.Set(model.Fault{Writes: true, Refuse: apierrors.NewInternalError(errors.New("no space"))})
		w.must(http.StatusInternalServerError, g, "DELETE", configMaps+"/a", "")
		w.must(http.StatusOK, g, "GET", configMaps+"/a", "")
		g.Set(model.Fault{User: "other", Refuse: apierrors.NewUnauthorized("")},
			model.Fault{Path: configMaps + "/a", Refuse: apierrors.NewTooManyRequests("later", 7)})
		w.must(http.StatusOK, g, "GET", configMaps, "")
		a := within(time.Second, "GET", configMaps+"/a", "")
		if a.Code != http.StatusTooManyRequests || a.Header().Get("Retry-After") != "7" {
			t.Error(a)
		}
		g.Set(model.Fault{User: "me", Refuse: apierrors.NewUnauthorized("")})
		w.must(http.StatusUnauthorized, g, "GET", configMaps, "")

		g.Set(model.Fault{Delay: 5 * time.Second})
		start := time.Now()
		w.must(http.StatusOK, g, "GET", configMaps, "")
		if d := time.Since(start); d != 5*time.Second {
			t.Error(d)
		}
		start = time.Now()
		urgent := ask(model.WithUrgency(t.Context()), g, "GET", configMaps, "")
		if d := time.Since(start); d > 0 || urgent.Code != http.StatusGatewayTimeout {
			t.Errorf("after %v: %v", d, urgent)
		}
	})
}

// TestGrayStorage: without its storage, a server answers what its watch cache has.
func TestGrayStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := &model.Gray{Handler: w.a}
		g.Set(model.Fault{Storage: true})
		s := watch(t, g, configMaps+"?watch=true")
		defer s.stop()
		w.make(w.b, "a")
		s.sent(t, "ADDED a")
		for _, path := range []string{configMaps + "?resourceVersion=0", configMaps + "/a?resourceVersion=0", "/apis"} {
			start := time.Now()
			if w.must(http.StatusOK, g, "GET", path, ""); time.Since(start) > 0 {
				t.Errorf("%s: after %v", path, time.Since(start))
			}
		}
		for path, method := range map[string]string{
			configMaps + "?timeout=7s": "GET", configMaps + "/a?timeout=7s": "DELETE", "/readyz?timeout=7s": "GET",
			configMaps + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeout=7s": "GET",
		} {
			start := time.Now()
			if w.must(http.StatusGatewayTimeout, g, method, path, ""); time.Since(start) != 7*time.Second {
				t.Errorf("%s: after %v", path, time.Since(start))
			}
		}
		time.AfterFunc(time.Second, func() { g.Set() })
		w.must(http.StatusOK, g, "DELETE", configMaps+"/a", "")
		s.sent(t, "DELETED a")
	})
}

// BenchmarkRenewal is a heartbeat: how much of a processor's time the model costs.
func BenchmarkRenewal(b *testing.B) {
	store := model.NewStore()
	s := model.NewServer(model.Config{
		Store: store, Random: model.NewRandom(0), Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)),
	})
	ask(b.Context(), s, "POST", "/api/v1/namespaces", `{"metadata":{"name":"kube-node-lease"}}`)
	ask(b.Context(), s, "POST", leases, `{"metadata":{"name":"n1"}}`)
	for i := 0; b.Loop(); i++ {
		a := ask(b.Context(), s, "PUT", leases+"/n1", fmt.Sprintf(
			`{"metadata":{"name":"n1","resourceVersion":"%d"},"spec":{"holderIdentity":"%d"}}`, store.Revision(), i))
		if a.Code != http.StatusOK {
			b.Fatal(a.Body)
		}
	}
}
