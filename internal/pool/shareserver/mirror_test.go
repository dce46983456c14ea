package shareserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// pushSink is a leader as far as a Sink is concerned.
type pushSink struct {
	t        *testing.T
	bench    *mirrorBench
	resource schema.GroupVersionResource
	typ      stream.Type
	position edge.Revision
}

func (p *pushSink) Sink() stream.Sink { return p }

func (p *pushSink) Type() stream.Type { return p.typ }

func (p *pushSink) Content() []stream.Object { return p.bench.content(p.t, p.resource) }

func (p *pushSink) Position() edge.Revision { return p.position }

func (p *pushSink) Replace(_ context.Context, s stream.Snapshot) error {
	return p.send(0, pooltest.WholeStream(s.Revision, s.Objects...))
}

func (p *pushSink) Apply(_ context.Context, events []stream.Event) error {
	events = slices.DeleteFunc(slices.Clone(events), func(e stream.Event) bool {
		return e.Object.Revision <= p.position
	})
	if len(events) == 0 && p.position != 0 {
		return nil
	}
	return p.send(max(p.position, 1), events)
}

func (p *pushSink) send(from edge.Revision, events []stream.Event) error {
	a := p.bench.push(p.t, p.resource, from, p.typ.Encoding, pooltest.Frames(p.t, p.typ, events...))
	if a.Code != http.StatusOK {
		return errors.New(a.Body)
	}
	p.position = a.Applied
	return nil
}

func TestMirrorIsASink(t *testing.T) {
	for name, r := range map[string]struct {
		resource schema.GroupVersionResource
		typ      stream.Type
	}{
		"BuiltIn": {pooltest.SliceResource, streamtest.EndpointSlices},
		"Custom":  {schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}, streamtest.Widgets},
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Sinks(t, func(t *testing.T) streamtest.SinkHarness {
				return &pushSink{t: t, bench: newMirrorBench(t, 64<<20), resource: r.resource, typ: r.typ}
			})
		})
	}
}

// TestFailedWritesHeal pushes at random into an etcd that fails at random. The model: after a success both copies are
// what the leader has; after a failure the mirror stands where it stood.
func TestFailedWritesHeal(t *testing.T) {
	t.Parallel()
	for seed := range uint64(healingSeeds) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := newMirrorBench(t, 64<<20)
		failing := true
		b.etcd.Fail = func() (failed, applied bool) { return failing && random.IntN(3) == 0, random.IntN(2) == 0 }
		cloud, revision := streamtest.Model{}, edge.Revision(100)
		var since []stream.Event // what the mirror has not acknowledged
		var acknowledged edge.Revision
		for step := range 60 {
			failing = step < 59
			for range random.IntN(200) {
				revision += edge.Revision(1 + random.IntN(3))
				o := slice(fmt.Sprintf("s%d", random.IntN(300)), revision)
				event := stream.Event{Type: stream.Added, Object: o}
				if _, ok := cloud[o.Key]; ok {
					event.Type = []stream.EventType{stream.Modified, stream.Deleted}[random.IntN(2)]
				}
				cloud.Apply(event)
				since = append(since, event)
			}
			from, events := acknowledged, since
			if from == 0 || random.IntN(4) == 0 || len(events) == 0 {
				from, events = 0, pooltest.WholeStream(revision, cloud.Content()...)
			}
			a := b.pushSlices(t, from, events...)
			b.clock.Step(time.Minute)
			switch a.Code {
			case http.StatusOK:
				acknowledged, since = a.Applied, nil
				if got := b.content(t, pooltest.SliceResource); a.Applied != revision || len(got) != len(cloud) {
					t.Fatalf("seed %d step %d: at %d with %d objects, want %d with %d", seed, step, a.Applied, len(got), revision,
						len(cloud))
				}
			case http.StatusServiceUnavailable, http.StatusConflict:
				if a.Code == http.StatusConflict && a.Header.Get("Retry-After") == "" {
					t.Fatalf("seed %d step %d: %s", seed, step, a.Body)
				}
				if at := b.mirror.get(pooltest.SliceResource).Position(); at != acknowledged {
					t.Fatalf("seed %d step %d: at %d after a failure, want %d", seed, step, at, acknowledged)
				}
				failing = step < 58 && failing
			default:
				t.Fatalf("seed %d step %d: %d %s", seed, step, a.Code, a.Body)
			}
		}
		failing = false
		a := b.push(t, pooltest.SliceResource, 0, stream.Protobuf, pooltest.Frames(t, streamtest.EndpointSlices,
			pooltest.WholeStream(revision, cloud.Content()...)...))
		for range 3 { // a suspicious one is believed in the end
			if a.Code == http.StatusOK {
				break
			}
			b.clock.Step(time.Minute)
			a = b.push(t, pooltest.SliceResource, 0, stream.Protobuf, pooltest.Frames(t, streamtest.EndpointSlices,
				pooltest.WholeStream(revision, cloud.Content()...)...))
		}
		if got := b.content(t, pooltest.SliceResource); a.Code != http.StatusOK || len(got) != len(cloud) {
			t.Fatalf("seed %d: %d %s, %d objects, want %d", seed, a.Code, a.Body, len(got), len(cloud))
		}
	}
}

func TestAFullPushIsADiff(t *testing.T) {
	b := newMirrorBench(t, 64<<20)
	var objects []stream.Object
	for i := range 300 {
		objects = append(objects, slice(fmt.Sprintf("s%03d", i), edge.Revision(10+i)))
	}
	push := func(revision edge.Revision, objects ...stream.Object) pooltest.Answer {
		t.Helper()
		return b.pushSlices(t, 0, pooltest.WholeStream(revision, objects...)...)
	}
	writes := func(what string, want int, a pooltest.Answer, code int) {
		t.Helper()
		if b.etcd.Writes != want || a.Code != code {
			t.Errorf("%s: %d writes and %d %s, want %d and %d", what, b.etcd.Writes, a.Code, a.Body, want, code)
		}
		b.etcd.Writes = 0
	}
	writes("the first", 300, push(500, objects...), 200)
	writes("again", 0, push(500, objects...), 200)
	writes("later, and nothing has changed", 0, push(510, objects...), 200)
	b.leader = pusher{"n2", 8}
	objects[0] = slice("s000", 515)
	writes("a new leader; one changed, one is gone", 2, push(520, objects[:299]...), 200)
	writes("an older snapshot", 0, push(519, objects[:299]...), 409)
	b.content(t, pooltest.SliceResource)

	suspicious := push(530)
	writes("everything is gone", 0, suspicious, 409)
	if suspicious.Applied != 520 || suspicious.Header.Get("Retry-After") == "" {
		t.Errorf("got %+v", suspicious)
	}
	b.clock.Step(20 * time.Second)
	writes("still", 0, push(530), 409)
	b.clock.Step(20 * time.Second)
	writes("a third time, after 40 s", 299, push(530), 200)
	if left := b.content(t, pooltest.SliceResource); len(left) != 0 {
		t.Errorf("%d are left", len(left))
	}
}

// in pushes EndpointSlices of a history.
func (b *mirrorBench) in(t *testing.T, h edge.History, from edge.Revision, events ...stream.Event) pooltest.Answer {
	t.Helper()
	client := &http.Client{Transport: historian{b.server.Client().Transport, h}}
	return pooltest.Do(t, client, http.MethodPost, b.server.URL+pooltest.Target(pooltest.SliceResource, from, b.leader.term),
		stream.Protobuf.ContentType(true), pooltest.Frames(t, streamtest.EndpointSlices, events...), b.leader.node.User())
}

type historian struct {
	http.RoundTripper
	history edge.History
}

func (h historian) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set(edge.HeaderHistory, h.history.String())
	return h.RoundTripper.RoundTrip(r)
}

// TestAnotherHistoryOfTheCloud: what is of a later one replaces what is here, whatever its revision.
func TestAnotherHistoryOfTheCloud(t *testing.T) {
	b := at100(t)
	want := func(what string, a pooltest.Answer, code int, at edge.Revision, objects int) {
		t.Helper()
		if a.Code != code {
			t.Errorf("%s: %d %s, want %d", what, a.Code, a.Body, code)
		}
		b.standsAt(t, at, objects)
	}
	other := slice("a", 10)
	other.Raw = streamtest.Object(streamtest.EndpointSlices, "default", "a", 10, "another content").Raw
	want("changes of a later one", b.in(t, 1, 100, stream.Event{Type: stream.Added, Object: slice("x", 101)}), 409, 100, 2)
	want("everything of a later one", b.in(t, 1, 0, pooltest.WholeStream(60, other, slice("z", 50))...), 200, 60, 2)
	if o, _ := b.mirror.get(pooltest.SliceResource).replica.Get(other.Key); !bytes.Equal(o.Raw, other.Raw) {
		t.Error("an object of the same revision of another history was left as it was")
	}
	want("everything of an earlier one", b.in(t, 0, 0, pooltest.WholeStream(900, slice("a", 10))...), 409, 60, 2)
	want("by who knows of no history", b.pushSlices(t, 0, pooltest.WholeStream(900, slice("a", 10))...), 409, 60, 2)
	want("everything of one that no cloud reaches", b.in(t, 1<<61, 0, pooltest.WholeStream(900, slice("a", 10))...), 409, 60, 2)
	f := b.mirror.state().Resources[0]
	if f.History != 1 || f.Applied != 60 {
		t.Errorf("index: %+v", f)
	}
}

// TestALeaderInsistsOnTheCloudsHistory: one before it, whose node was stolen, has brought the mirror, empty or not, to a history
// for which no hub takes its word. The mirror takes that, and each other one, only from who insists, and never from a filler.
func TestALeaderInsistsOnTheCloudsHistory(t *testing.T) {
	for name, before := range map[string]edge.Revision{"empty": 0, "in a real one": 30} {
		t.Run(name, func(t *testing.T) {
			b := newMirrorBench(t, 8<<20)
			b.filler = &pusher{"n5", 3}
			if before != 0 {
				b.in(t, 2, 0, pooltest.WholeStream(before, slice("a", 10))...)
			}
			insists := func(h edge.History, at, now edge.Revision, objects ...stream.Object) {
				t.Helper()
				for i, want := range []int{409, 409, 200} {
					a := b.in(t, h, 0, pooltest.WholeStream(now, objects...)...)
					if a.Code != want || want == 409 && (a.Applied != at || a.Header.Get("Retry-After") == "") {
						t.Errorf("history %s, offer %d: %d %s", h, i+1, a.Code, a.Body)
					}
					b.clock.Step(16 * time.Second)
					if a := b.fill(t, *b.filler, 1<<61, 50, slice("a", 40)); a.Code != http.StatusBadRequest {
						t.Errorf("a filler: %d %s", a.Code, a.Body)
					}
					if at == 0 && want == 409 {
						continue // it may fill what nobody has
					}
					if a := b.fill(t, *b.filler, 2, 50, slice("a", 40)); a.Code != http.StatusConflict {
						t.Errorf("a filler in a real history: %d %s", a.Code, a.Body)
					}
				}
				b.standsAt(t, now, len(objects))
				if is := b.mirror.get(pooltest.SliceResource).replica.History(); is != h {
					t.Errorf("the mirror is in history %s, want %s", is, h)
				}
			}
			insists(1<<61, before, 900, slice("x", 10)) // the thief
			insists(2, 900, 60, slice("a", 10), slice("b", 20))
			b.in(t, 1<<20, 0, pooltest.WholeStream(900, slice("x", 10))...) // the last that hubs believe, and follow
			insists(1<<20+1, 900, 70, slice("a", 10))                       // by who has seen the cloud change since
			if a := b.in(t, 1<<20+1, 70, stream.Event{Type: stream.Added, Object: slice("y", 71)}); a.Code != http.StatusOK {
				t.Errorf("changes: %d %s", a.Code, a.Body)
			}
		})
	}
}

// TestReadersTellTheirHistory: a revision of another one can't be resumed.
func TestReadersTellTheirHistory(t *testing.T) {
	b := at100(t)
	b.in(t, 3, 0, pooltest.WholeStream(60, slice("a", 10))...)
	target := b.server.URL + edge.PathMirror + "/discovery.k8s.io/v1/endpointslices"
	for h, code := range map[edge.History]int{0: 410, 2: 410, 3: 200, 4: 410} {
		client := &http.Client{Transport: historian{b.server.Client().Transport, h}}
		a := pooltest.Do(t, client, http.MethodGet, target+"?watch=1&resourceVersion=60&timeoutSeconds=1", "", nil, "x")
		if a.Code != code {
			t.Errorf("history %s: %d %s", h, a.Code, a.Body)
		}
		if code == 200 && (a.Header.Get(edge.HeaderHistory) != "3" || a.Header.Get(edge.HeaderRevision) != "60") {
			t.Errorf("history %s: %v", h, a.Header)
		}
	}
	a := pooltest.Do(t, b.server.Client(), http.MethodGet, target, "", nil, "x")
	if a.Code != 200 || a.Header.Get(edge.HeaderHistory) != "3" {
		t.Errorf("list: %d %v", a.Code, a.Header)
	}
}

// TestAnOlderPushIsBelievedIfItIsRepeated, as a suspicious one is: its leader may have missed that the history has changed. One
// that ends later, but has an object of before what is here, is older, too: within one history no object goes back.
func TestAnOlderPushIsBelievedIfItIsRepeated(t *testing.T) {
	for name, test := range map[string]struct {
		end     edge.Revision
		objects []stream.Object
	}{
		"it ends earlier":         {50, []stream.Object{slice("a", 10), slice("c", 40)}},
		"an object has gone back": {200, []stream.Object{slice("a", 5), slice("c", 40)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := at100(t)
			for i, want := range []int{409, 409, 200} {
				a := b.pushSlices(t, 0, pooltest.WholeStream(test.end, test.objects...)...)
				if a.Code != want || want == 409 && (a.Applied != 100 || a.Header.Get("Retry-After") == "") {
					t.Errorf("offer %d: %d %s", i+1, a.Code, a.Body)
				}
				b.clock.Step(16 * time.Second)
			}
			b.standsAt(t, test.end, 2)
			for _, o := range test.objects {
				if has, _ := b.mirror.get(pooltest.SliceResource).replica.Get(o.Key); has.Revision != o.Revision {
					t.Errorf("%s is at %s, want %s", o.Key, has.Revision, o.Revision)
				}
			}
		})
	}
}

// TestDeletesComeLast: who reads in between finds too much, never too little.
func TestDeletesComeLast(t *testing.T) {
	b := newMirrorBench(t, 64<<20)
	a := b.push(t, pooltest.SliceResource, 0, stream.Protobuf, pooltest.Frames(t, streamtest.EndpointSlices,
		pooltest.WholeStream(100, slice("a", 10), slice("b", 20), slice("c", 30))...))
	if a.Code != http.StatusOK {
		t.Fatal(a.Body)
	}
	var order []string
	plain := b.etcd.Write
	b.mirror.get(pooltest.SliceResource).write = func(ctx context.Context, txn *etcdserverpb.TxnRequest) (done bool, err error) {
		for _, op := range txn.Success {
			if op.GetRequestPut() != nil {
				order = append(order, "put")
			} else {
				order = append(order, "delete")
			}
		}
		return plain(ctx, txn)
	}
	a = b.push(t, pooltest.SliceResource, 100, stream.Protobuf, pooltest.Frames(t, streamtest.EndpointSlices,
		stream.Event{Type: stream.Deleted, Object: slice("a", 101)},
		stream.Event{Type: stream.Added, Object: slice("d", 102)},
		stream.Event{Type: stream.Modified, Object: slice("d", 103)},
		stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: 110}}))
	if want := []string{"put", "delete"}; a.Code != http.StatusOK || a.Applied != 110 || !slices.Equal(order, want) {
		t.Errorf("got %d %s, wrote %v, want %v", a.Code, a.Body, order, want)
	}
	b.content(t, pooltest.SliceResource)
}

func TestWhatMayBeMirrored(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	for text, code := range map[string]int{
		"core/v1/endpoints":                       0,
		"core/v1/services":                        0,
		"discovery.k8s.io/v1/endpointslices":      0,
		"example.org/v1/widgets":                  0,
		"apps.openyurt.io/v1beta2/nodepools":      0,
		"core/v1/secrets":                         403,
		"core/v1/pods":                            403,
		"core/v1/nodes":                           403,
		"core/v1/configmaps":                      403,
		"core/v1/serviceaccounts":                 403,
		"coordination.k8s.io/v1/leases":           403,
		"rbac.authorization.k8s.io/v1/roles":      403,
		"apps/v1/deployments":                     403,
		"k8s.io/v1/things":                        403,
		"gateway.networking.k8s.io/v1/routes":     403,
		"discovery.k8s.io/v1beta1/endpointslices": 422,
		"Core/v1/secrets":                         404,
		"core/v1/Secrets":                         404,
		"core/v1/pods/status":                     404,
		"core/v01/endpoints":                      404,
		"core/v1/..":                              404,
		"example.org/v1/widgets.x":                404,
		"example.org/latest/widgets":              404,
		"core/v1":                                 404,
	} {
		r, err := exchange.ParseResource("/" + text)
		if err == nil {
			err = b.mirror.accepts(r)
		}
		var why *exchange.Refusal
		if errors.As(err, &why); (code == 0) != (err == nil) || (why != nil && why.Code != code) {
			t.Errorf("%s: got %v, want %d", text, err, code)
		}
	}
}

func TestOnlyTheLeaderOfTheTermPushes(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	whole := pooltest.Frames(t, streamtest.EndpointSlices, pooltest.WholeStream(200, slice("c", 150))...).Bytes()
	for _, who := range []string{"", "alice", "system:node:", "system:node:n2", "system:node:N1"} {
		a := pooltest.Do(t, b.server.Client(), http.MethodPost, b.server.URL+pooltest.Target(pooltest.SliceResource, 0,
			b.leader.term),
			stream.Protobuf.ContentType(true), bytes.NewReader(whole), who)
		if a.Code != http.StatusForbidden {
			t.Errorf("%q: got %d %s", who, a.Code, a.Body)
		}
	}
	// Deposed while its body is on the way.
	deposed := &notice{bytes.NewReader(whole), make(chan struct{}), sync.Once{}}
	calls := 0
	b.mirror.leads = func(_ context.Context, n edge.NodeName, term int32) error {
		calls++
		if calls > 1 {
			return pusher{"n2", 8}.refuse(n, term)
		}
		return nil
	}
	if a := b.push(t, pooltest.SliceResource, 0, stream.Protobuf, deposed); a.Code != http.StatusForbidden {
		t.Errorf("got %d %s", a.Code, a.Body)
	}
	if len(b.etcd.Keys) != 0 || len(b.content(t, pooltest.SliceResource)) != 0 {
		t.Errorf("etcd has %v", b.etcd.Keys)
	}
}

func TestMirrorIsBounded(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	for i := range maxMirrored + 1 {
		r := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: fmt.Sprintf("widgets%d", i)}
		a := b.push(t, r, 0, stream.JSON, pooltest.Frames(t, streamtest.Widgets, pooltest.WholeStream(100)...))
		if want := map[bool]int{true: 200, false: 422}[i < maxMirrored]; a.Code != want {
			t.Errorf("resource %d: got %d %s, want %d", i, a.Code, a.Body, want)
		}
	}
	b.mirror.wait = time.Millisecond
	for range maxPushes {
		b.mirror.slots <- struct{}{}
	}
	r := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets0"}
	a := b.push(t, r, 0, stream.JSON, pooltest.Frames(t, streamtest.Widgets, pooltest.WholeStream(100)...))
	if a.Code != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
		t.Errorf("got %d %s", a.Code, a.Body)
	}
}

// TestConcurrentLeaders: whoever comes in which order, the mirror ends at the newest and both copies agree.
func TestConcurrentLeaders(t *testing.T) {
	b := newMirrorBench(t, 64<<20)
	var group sync.WaitGroup
	for leader := range 4 {
		group.Go(func() {
			for i := range 20 {
				revision := edge.Revision(1000 + 10*i + leader)
				var objects []stream.Object
				for n := range 5 + i {
					objects = append(objects, slice(fmt.Sprintf("s%d", n), edge.Revision(100+n)))
				}
				a := b.pushSlices(t, 0, pooltest.WholeStream(revision, objects...)...)
				if a.Code != http.StatusOK && a.Code != http.StatusConflict {
					t.Errorf("got %d %s", a.Code, a.Body)
				}
			}
		})
	}
	group.Wait()
	if got := b.content(t, pooltest.SliceResource); len(got) != 24 || b.mirror.get(pooltest.SliceResource).Position() != 1193 {
		t.Errorf("%d objects at %d, want 24 at 1193", len(got), b.mirror.get(pooltest.SliceResource).Position())
	}
}

func TestMirrorIndexAndUnpushed(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	get := func(path string) pooltest.Answer {
		return pooltest.Do(t, b.server.Client(), http.MethodGet, b.server.URL+path, "", nil, "system:node:n2")
	}
	a := get(edge.PathMirror + "/discovery.k8s.io/v1/endpointslices")
	if a.Code != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
		t.Errorf("before the first push: %d %s", a.Code, a.Body)
	}
	if a := b.pushSlices(t, 0, pooltest.WholeStream(200, slice("c", 150))...); a.Code != 200 {
		t.Fatal(a.Body)
	}
	var found edge.PoolState
	if err := json.Unmarshal([]byte(get(edge.PathMirror).Body), &found); err != nil {
		t.Fatal(err)
	}
	want := edge.ResourceState{
		Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Applied: 200, Objects: 1,
	}
	if len(found.Resources) != 1 || found.Instance == "" {
		t.Fatalf("got %+v", found)
	}
	got := found.Resources[0]
	if got.Bytes == 0 {
		t.Error("no bytes")
	}
	if got.Bytes = 0; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestWhatLasts(t *testing.T) {
	for target, want := range map[string]bool{
		"GET /mirror/v1/core/v1/endpoints?watch=1":     true,
		"GET /mirror/v1/core/v1/endpoints?watch=true":  true,
		"GET /mirror/v1/core/v1/endpoints?watch=0":     false,
		"GET /mirror/v1/core/v1/endpoints?watch=maybe": false,
		"GET /mirror/v1/core/v1/endpoints":             false,
		"POST /mirror/v1/core/v1/endpoints?watch=1":    true,
		"POST /mirror/v1/core/v1/endpoints?term=1":     true,
		"POST /mirror/v1/core/v1/endpoints?from=7":     true,
		"GET /mirror/v1/core/v1/endpoints?from=7":      false,
		"PUT /mirror/v1/core/v1/endpoints?from=7":      false,
		"POST /api/v1/nodes?from=7":                    false,
		"GET /mirror/v1?watch=1":                       false,
		"GET /version?watch=1":                         false,
	} {
		method, url, _ := strings.Cut(target, " ")
		if got := MayLast(httptest.NewRequest(method, url, nil)); got != want {
			t.Errorf("%s: %v", target, got)
		}
	}
}
