package pool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// fakeEtcd is a map that fails when it is told to.
type fakeEtcd struct {
	mu     sync.Mutex
	keys   map[string]string
	writes int
	// fail says whether a transaction fails, and whether it is applied all the same.
	fail func() (failed, applied bool)
}

var errEtcd = errors.New("etcd is out of order")

func (e *fakeEtcd) write(_ context.Context, txn *etcdserverpb.TxnRequest) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	failed, applied := false, true
	if e.fail != nil {
		failed, applied = e.fail()
	}
	if applied || !failed {
		seen := map[string]bool{}
		for _, op := range txn.Success {
			put, remove := op.GetRequestPut(), op.GetRequestDeleteRange()
			key := string(put.GetKey()) + string(remove.GetKey())
			if seen[key] || len(txn.Success) > maxTxnOps {
				return fmt.Errorf("etcd refuses a transaction of %d operations, %s among them twice", len(txn.Success), key)
			}
			seen[key] = true
			if put != nil {
				e.keys[key] = string(put.Value)
			} else {
				delete(e.keys, key)
			}
			e.writes++
		}
	}
	if failed {
		return errEtcd
	}
	return nil
}

// mirrorBench is a mirror behind HTTP, without the chain that is before it in the coordinator.
type mirrorBench struct {
	mirror *mirror
	etcd   *fakeEtcd
	clock  *clocktesting.FakeClock
	server *httptest.Server
	leader claim
}

var sliceResource = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}

func newMirrorBench(t testing.TB, quota int64) *mirrorBench {
	t.Helper()
	b := &mirrorBench{
		etcd:   &fakeEtcd{keys: map[string]string{}},
		clock:  clocktesting.NewFakeClock(time.Unix(1000, 0)),
		leader: claim{"n1", 7},
	}
	builtIns := pushable()
	for r, each := range builtIns {
		each.prefix = "/registry/" + r.Resource + "/"
		builtIns[r] = each
	}
	b.mirror = newMirror(Config{Clock: b.clock, MirrorQuotaBytes: quota, stalledPush: 50 * time.Millisecond},
		func(_ context.Context, c claim) error {
			return decidePush(c, leaseMark{holder: b.leader.node, transitions: b.leader.term})
		}, b.etcd.write, builtIns)
	b.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := &user.DefaultInfo{Name: r.Header.Get("X-User"), Groups: []string{edge.GroupNodes}}
		b.mirror.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), caller)))
	}))
	b.server.Config.BaseContext = func(net.Listener) context.Context {
		return klog.NewContext(context.Background(), logr.Discard())
	}
	b.server.Start()
	t.Cleanup(b.server.Close)
	t.Cleanup(func() { _ = b.mirror.Close() })
	return b
}

// answer is what a push was told.
type answer struct {
	code    int
	body    string
	applied edge.Revision // -1 would be none; 0 is "0" or none
	header  http.Header
}

// target is the query of a push.
func target(r schema.GroupVersionResource, from edge.Revision, term int32) string {
	group := r.Group
	if group == "" {
		group = "core"
	}
	text := fmt.Sprintf("%s/%s/%s/%s?term=%d", mirrorPath, group, r.Version, r.Resource, term)
	if from != 0 {
		text += "&from=" + decimal(from)
	}
	return text
}

func do(t testing.TB, client *http.Client, method, url, contentType string, body io.Reader, user string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if user != "" {
		r.Header.Set("X-User", user)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{code: response.StatusCode, body: string(text), header: response.Header}
	var told conflict
	if json.Unmarshal(text, &told) == nil {
		a.applied, _ = edge.ParseRevision(told.Applied) // "0" and nothing are 0
	}
	return a
}

func (b *mirrorBench) push(
	t testing.TB, r schema.GroupVersionResource, from edge.Revision, e stream.Encoding, body io.Reader,
) answer {
	t.Helper()
	return do(t, b.server.Client(), http.MethodPost, b.server.URL+target(r, from, b.leader.term), e.ContentType(true), body,
		b.leader.node.User())
}

func frames(t testing.TB, typ stream.Type, events ...stream.Event) *bytes.Buffer {
	t.Helper()
	var buffer bytes.Buffer
	w := stream.NewFrameWriter(&buffer, typ)
	for _, event := range events {
		if err := w.Write(event); err != nil {
			t.Fatal(err)
		}
	}
	return &buffer
}

// wholeStream is a stream of everything.
func wholeStream(revision edge.Revision, objects ...stream.Object) []stream.Event {
	var events []stream.Event
	for _, o := range objects {
		events = append(events, stream.Event{Type: stream.Added, Object: o})
	}
	return append(events, stream.Event{Type: stream.InitialEventsEnd, Object: stream.Object{Revision: revision}})
}

func slice(name string, revision edge.Revision) stream.Object {
	return streamtest.Object(streamtest.EndpointSlices, "default", name, revision, "content")
}

// pushSlices pushes EndpointSlices.
func (b *mirrorBench) pushSlices(t testing.TB, from edge.Revision, events ...stream.Event) answer {
	t.Helper()
	return b.push(t, sliceResource, from, stream.Protobuf, frames(t, streamtest.EndpointSlices, events...))
}

// content is what the mirror holds; for a built-in resource it checks that etcd holds the same.
func (b *mirrorBench) content(t testing.TB, r schema.GroupVersionResource) []stream.Object {
	t.Helper()
	each := b.mirror.get(r)
	if each == nil || each.Position() == 0 {
		return nil
	}
	s, err := each.replica.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if each.builtIn == nil {
		return s.Objects
	}
	b.etcd.mu.Lock()
	defer b.etcd.mu.Unlock()
	found := 0
	for key := range b.etcd.keys {
		if strings.HasPrefix(key, each.builtIn.prefix) {
			found++
		}
	}
	if found != len(s.Objects) {
		t.Fatalf("etcd has %d keys, the replica %d objects", found, len(s.Objects))
	}
	for _, o := range s.Objects {
		if b.etcd.keys[string(each.key(o.Key))] != string(stream.Envelope(s.Type, o.Raw)) {
			t.Fatalf("etcd has other bytes at %s than the replica", o.Key)
		}
	}
	return s.Objects
}

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
	return p.send(0, wholeStream(s.Revision, s.Objects...))
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
	a := p.bench.push(p.t, p.resource, from, p.typ.Encoding, frames(p.t, p.typ, events...))
	if a.code != http.StatusOK {
		return errors.New(a.body)
	}
	p.position = a.applied
	return nil
}

func TestMirrorIsASink(t *testing.T) {
	for name, r := range map[string]struct {
		resource schema.GroupVersionResource
		typ      stream.Type
	}{
		"BuiltIn": {sliceResource, streamtest.EndpointSlices},
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
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := newMirrorBench(t, 64<<20)
		failing := true
		b.etcd.fail = func() (failed, applied bool) { return failing && random.IntN(3) == 0, random.IntN(2) == 0 }
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
				from, events = 0, wholeStream(revision, cloud.Content()...)
			}
			a := b.pushSlices(t, from, events...)
			b.clock.Step(time.Minute)
			switch a.code {
			case http.StatusOK:
				acknowledged, since = a.applied, nil
				if got := b.content(t, sliceResource); a.applied != revision || len(got) != len(cloud) {
					t.Fatalf("seed %d step %d: at %d with %d objects, want %d with %d", seed, step, a.applied, len(got), revision,
						len(cloud))
				}
			case http.StatusServiceUnavailable, http.StatusConflict:
				if a.code == http.StatusConflict && a.header.Get("Retry-After") == "" {
					t.Fatalf("seed %d step %d: %s", seed, step, a.body)
				}
				if at := b.mirror.get(sliceResource).Position(); at != acknowledged {
					t.Fatalf("seed %d step %d: at %d after a failure, want %d", seed, step, at, acknowledged)
				}
				failing = step < 58 && failing
			default:
				t.Fatalf("seed %d step %d: %d %s", seed, step, a.code, a.body)
			}
		}
		failing = false
		a := b.push(t, sliceResource, 0, stream.Protobuf, frames(t, streamtest.EndpointSlices,
			wholeStream(revision, cloud.Content()...)...))
		for range 3 { // a suspicious one is believed in the end
			if a.code == http.StatusOK {
				break
			}
			b.clock.Step(time.Minute)
			a = b.push(t, sliceResource, 0, stream.Protobuf, frames(t, streamtest.EndpointSlices,
				wholeStream(revision, cloud.Content()...)...))
		}
		if got := b.content(t, sliceResource); a.code != http.StatusOK || len(got) != len(cloud) {
			t.Fatalf("seed %d: %d %s, %d objects, want %d", seed, a.code, a.body, len(got), len(cloud))
		}
	}
}

func TestAFullPushIsADiff(t *testing.T) {
	b := newMirrorBench(t, 64<<20)
	var objects []stream.Object
	for i := range 300 {
		objects = append(objects, slice(fmt.Sprintf("s%03d", i), edge.Revision(10+i)))
	}
	push := func(revision edge.Revision, objects ...stream.Object) answer {
		t.Helper()
		return b.pushSlices(t, 0, wholeStream(revision, objects...)...)
	}
	writes := func(what string, want int, a answer, code int) {
		t.Helper()
		if b.etcd.writes != want || a.code != code {
			t.Errorf("%s: %d writes and %d %s, want %d and %d", what, b.etcd.writes, a.code, a.body, want, code)
		}
		b.etcd.writes = 0
	}
	writes("the first", 300, push(500, objects...), 200)
	writes("again", 0, push(500, objects...), 200)
	writes("later, and nothing has changed", 0, push(510, objects...), 200)
	b.leader = claim{"n2", 8}
	objects[0] = slice("s000", 515)
	writes("a new leader; one changed, one is gone", 2, push(520, objects[:299]...), 200)
	writes("an older snapshot", 0, push(519, objects[:299]...), 409)
	b.content(t, sliceResource)

	suspicious := push(530)
	writes("everything is gone", 0, suspicious, 409)
	if suspicious.applied != 520 || suspicious.header.Get("Retry-After") == "" {
		t.Errorf("got %+v", suspicious)
	}
	b.clock.Step(20 * time.Second)
	writes("still", 0, push(530), 409)
	b.clock.Step(20 * time.Second)
	writes("a third time, after 40 s", 299, push(530), 200)
	if left := b.content(t, sliceResource); len(left) != 0 {
		t.Errorf("%d are left", len(left))
	}
}

// TestDeletesComeLast: who reads in between finds too much, never too little.
func TestDeletesComeLast(t *testing.T) {
	b := newMirrorBench(t, 64<<20)
	a := b.push(t, sliceResource, 0, stream.Protobuf, frames(t, streamtest.EndpointSlices,
		wholeStream(100, slice("a", 10), slice("b", 20), slice("c", 30))...))
	if a.code != http.StatusOK {
		t.Fatal(a.body)
	}
	var order []string
	plain := b.etcd.write
	b.mirror.get(sliceResource).write = func(ctx context.Context, txn *etcdserverpb.TxnRequest) error {
		for _, op := range txn.Success {
			if op.GetRequestPut() != nil {
				order = append(order, "put")
			} else {
				order = append(order, "delete")
			}
		}
		return plain(ctx, txn)
	}
	a = b.push(t, sliceResource, 100, stream.Protobuf, frames(t, streamtest.EndpointSlices,
		stream.Event{Type: stream.Deleted, Object: slice("a", 101)},
		stream.Event{Type: stream.Added, Object: slice("d", 102)},
		stream.Event{Type: stream.Modified, Object: slice("d", 103)},
		stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: 110}}))
	if want := []string{"put", "delete"}; a.code != http.StatusOK || a.applied != 110 || !slices.Equal(order, want) {
		t.Errorf("got %d %s, wrote %v, want %v", a.code, a.body, order, want)
	}
	b.content(t, sliceResource)
}

// TestWhatIsMalformedChangesNothing tries, on a mirror that holds something, all that a broken or hostile leader may send.
func TestWhatIsMalformedChangesNothing(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	start := []stream.Object{slice("a", 10), slice("b", 20)}
	widgets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
	if a := b.pushSlices(t, 0, wholeStream(100, start...)...); a.code != 200 {
		t.Fatal(a.body)
	}
	whole := frames(t, streamtest.EndpointSlices, wholeStream(200, slice("c", 150))...).Bytes()
	added := func(o stream.Object) []stream.Event { return []stream.Event{{Type: stream.Added, Object: o}} }
	body := func(events ...stream.Event) []byte { return frames(t, streamtest.EndpointSlices, events...).Bytes() }
	foreign := slice("c", 150)
	foreign.Raw = append(foreign.Raw, 2<<3, 1) // endpoints, as a number
	huge := streamtest.Object(streamtest.EndpointSlices, "default", "huge", 150, strings.Repeat("x", 2<<20))
	var many []stream.Object
	for i := range 9 {
		many = append(many,
			streamtest.Object(streamtest.EndpointSlices, "default", fmt.Sprint(i), 150, strings.Repeat("x", 1<<20)))
	}
	pods := stream.Type{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), Encoding: stream.Protobuf}
	var failed bytes.Buffer
	w := stream.NewFrameWriter(&failed, streamtest.EndpointSlices)
	expired := &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}
	if err := w.WriteError(expired); err != nil {
		t.Fatal(err)
	}
	bookmark := stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: 120}}
	for _, c := range []struct {
		name     string
		resource schema.GroupVersionResource
		from     edge.Revision
		body     []byte
		code     int
	}{
		{"half a frame", sliceResource, 0, whole[:len(whole)/2], 422},
		{"no marker", sliceResource, 0, body(added(slice("c", 150))...), 422},
		{"empty", sliceResource, 0, nil, 422},
		{"random bytes", sliceResource, 0, []byte("\x00\x00\x00\x08garbage!"), 422},
		{"a frame of 4 GB", sliceResource, 0, []byte("\xff\xff\xff\xffx"), 422},
		{"a frame of 9 MB", sliceResource, 0, append([]byte{0, 0x90, 0, 0}, make([]byte, 9<<20)...), 422},
		{"an object that etcd would not take", sliceResource, 0, body(wholeStream(200, huge)...), 413},
		{"more than the quota", sliceResource, 0, body(wholeStream(200, many...)...), 413},
		{"goes on after the marker", sliceResource, 0,
			body(append(wholeStream(200, slice("c", 150)), added(slice("d", 210))...)...), 422},
		{"twice the same", sliceResource, 0, body(wholeStream(200, slice("c", 150), slice("c", 160))...), 422},
		{"newer than its end", sliceResource, 0, body(wholeStream(200, slice("c", 250))...), 422},
		{"an object older than the one held", sliceResource, 0, body(wholeStream(200, slice("a", 5), slice("b", 20))...), 422},
		{"an error in it", sliceResource, 0, failed.Bytes(), 422},
		{"a deletion in a full stream", sliceResource, 0,
			body(append([]stream.Event{{Type: stream.Deleted, Object: slice("a", 150)}}, wholeStream(200)...)...), 422},
		{"another type", sliceResource, 0, frames(t, pods, wholeStream(200, slice("c", 150))...).Bytes(), 422},
		{"bytes that do not decode", sliceResource, 0, body(wholeStream(200, foreign)...), 422},
		{"a way out by the name", sliceResource, 0, body(wholeStream(200, slice("../../secrets/default/x", 150))...), 422},
		{"the name ..", sliceResource, 0, body(wholeStream(200, slice("..", 150))...), 422},
		{"a way out by the namespace", sliceResource, 0, body(wholeStream(200,
			streamtest.Object(streamtest.EndpointSlices, "../secrets", "x", 150, ""))...), 422},
		{"no namespace", sliceResource, 0,
			body(wholeStream(200, streamtest.Object(streamtest.EndpointSlices, "", "x", 150, ""))...), 422},
		{"an older snapshot", sliceResource, 0, body(wholeStream(99, start...)...), 409},
		{"from where the mirror is not yet", sliceResource, 101, body(added(slice("c", 150))...), 409},
		{"from where the mirror has been", sliceResource, 99, body(added(slice("c", 150))...), 409},
		{"changes to what was never pushed", widgets, 99, nil, 409},
		{"a change at the position", sliceResource, 100, body(added(slice("c", 100))...), 422},
		{"changes in disorder", sliceResource, 100,
			body(append(added(slice("c", 150)), added(slice("d", 140))...)...), 422},
		{"a bookmark that goes back", sliceResource, 100,
			body(append(added(slice("c", 150)), bookmark)...), 422},
		{"a marker among changes", sliceResource, 100, body(wholeStream(200, slice("c", 150))...), 422},
		{"half of the changes", sliceResource, 100,
			body(append(added(slice("c", 150)), added(slice("d", 160))...)...)[:100], 422},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := b.push(t, c.resource, c.from, stream.Protobuf, bytes.NewReader(c.body))
			if a.code != c.code || a.body == "" {
				t.Errorf("got %d %s, want %d", a.code, a.body, c.code)
			}
			if got := b.content(t, sliceResource); len(got) != 2 || b.mirror.get(sliceResource).Position() != 100 {
				t.Errorf("it holds %d objects at %d", len(got), b.mirror.get(sliceResource).Position())
			}
			if got := b.content(t, widgets); len(got) != 0 {
				t.Errorf("widgets: %v", got)
			}
			b.mirror.mu.Lock()
			defer b.mirror.mu.Unlock()
			if b.mirror.reading != 0 {
				t.Errorf("%d bytes stay reserved", b.mirror.reading)
			}
		})
	}
	for name, set := range map[string]func(*http.Request){
		"JSON":           func(r *http.Request) { r.Header.Set("Content-Type", "application/json") },
		"CBOR":           func(r *http.Request) { r.Header.Set("Content-Type", "application/cbor") },
		"compressed":     func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") },
		"without a term": func(r *http.Request) { r.URL.RawQuery = "" },
		"from nowhere":   func(r *http.Request) { r.URL.RawQuery += "&from=0" },
		"PUT":            func(r *http.Request) { r.Method = http.MethodPut },
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				b.server.URL+target(sliceResource, 0, b.leader.term), bytes.NewReader(whole))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", stream.Protobuf.ContentType(true))
			r.Header.Set("X-User", b.leader.node.User())
			set(r)
			response, err := b.server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode < 400 || response.StatusCode >= 500 || len(b.content(t, sliceResource)) != 2 {
				t.Errorf("got %d", response.StatusCode)
			}
		})
	}
}

// slowly is a body that stalls after its first bytes.
type slowly struct {
	first []byte
	until <-chan struct{}
}

func (s *slowly) Read(p []byte) (int, error) {
	if len(s.first) > 0 {
		n := copy(p, s.first)
		s.first = s.first[n:]
		return n, nil
	}
	<-s.until
	return 0, io.ErrUnexpectedEOF
}

func TestAStalledPushIsCutAndHoldsUpNobody(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	whole := frames(t, streamtest.EndpointSlices, wholeStream(200, slice("c", 150))...).Bytes()
	a := b.push(t, sliceResource, 0, stream.Protobuf, &slowly{whole[:len(whole)/2], t.Context().Done()})
	if a.code != http.StatusRequestTimeout {
		t.Errorf("got %d %s", a.code, a.body)
	}
	// With one stalled, another goes through: the next leader does not wait for the last one.
	done := make(chan answer, 1)
	entered := make(chan struct{})
	b.mirror.stalled = time.Hour
	until := make(chan struct{})
	stalled := &slowly{whole[:len(whole)/2], until}
	go func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.server.URL+target(sliceResource, 0, b.leader.term),
			&notice{stalled, entered, sync.Once{}})
		if err == nil {
			r.Header.Set("Content-Type", stream.Protobuf.ContentType(true))
			r.Header.Set("X-User", b.leader.node.User())
			var response *http.Response
			if response, err = b.server.Client().Do(r); err == nil {
				response.Body.Close()
			}
		}
		done <- answer{body: fmt.Sprint(err)}
	}()
	<-entered
	if a := b.push(t, sliceResource, 0, stream.Protobuf, bytes.NewReader(whole)); a.code != http.StatusOK {
		t.Errorf("got %d %s", a.code, a.body)
	}
	close(until)
	<-done
}

// notice tells when it is read from.
type notice struct {
	io.Reader
	read chan struct{}
	once sync.Once
}

func (n *notice) Read(p []byte) (int, error) {
	n.once.Do(func() { close(n.read) })
	return n.Reader.Read(p)
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
		r, err := parseResource("/" + text)
		if err == nil {
			err = b.mirror.mayBeMirrored(r)
		}
		var why *refusal
		if errors.As(err, &why); (code == 0) != (err == nil) || (why != nil && why.code != code) {
			t.Errorf("%s: got %v, want %d", text, err, code)
		}
	}
}

func TestOnlyTheLeaderOfTheTermPushes(t *testing.T) {
	leader := leaseMark{holder: "n1", transitions: 7}
	for _, c := range []struct {
		claim  claim
		leader leaseMark
		ok     bool
	}{
		{claim{"n1", 7}, leader, true},
		{claim{"n1", 6}, leader, false},
		{claim{"n1", 8}, leader, false},
		{claim{"n2", 7}, leader, false},
		{claim{"n1", 7}, leaseMark{transitions: 7}, false},
		{claim{"", 7}, leaseMark{transitions: 7}, false},
	} {
		if err := decidePush(c.claim, c.leader); (err == nil) != c.ok {
			t.Errorf("%+v, leader %+v: %v", c.claim, c.leader, err)
		}
	}
	b := newMirrorBench(t, 8<<20)
	whole := frames(t, streamtest.EndpointSlices, wholeStream(200, slice("c", 150))...).Bytes()
	for _, who := range []string{"", "alice", "system:node:", "system:node:n2", "system:node:N1"} {
		a := do(t, b.server.Client(), http.MethodPost, b.server.URL+target(sliceResource, 0, b.leader.term),
			stream.Protobuf.ContentType(true), bytes.NewReader(whole), who)
		if a.code != http.StatusForbidden {
			t.Errorf("%q: got %d %s", who, a.code, a.body)
		}
	}
	// Deposed while its body is on the way.
	deposed := &notice{bytes.NewReader(whole), make(chan struct{}), sync.Once{}}
	calls := 0
	b.mirror.leads = func(_ context.Context, c claim) error {
		calls++
		if calls > 1 {
			return decidePush(c, leaseMark{holder: "n2", transitions: 8})
		}
		return nil
	}
	if a := b.push(t, sliceResource, 0, stream.Protobuf, deposed); a.code != http.StatusForbidden {
		t.Errorf("got %d %s", a.code, a.body)
	}
	if len(b.etcd.keys) != 0 || len(b.content(t, sliceResource)) != 0 {
		t.Errorf("etcd has %v", b.etcd.keys)
	}
}

func TestMirrorIsBounded(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	for i := range maxMirrored + 1 {
		r := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: fmt.Sprintf("widgets%d", i)}
		a := b.push(t, r, 0, stream.JSON, frames(t, streamtest.Widgets, wholeStream(100)...))
		if want := map[bool]int{true: 200, false: 422}[i < maxMirrored]; a.code != want {
			t.Errorf("resource %d: got %d %s, want %d", i, a.code, a.body, want)
		}
	}
	for range maxPushes {
		b.mirror.pushes <- struct{}{}
	}
	r := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets0"}
	a := b.push(t, r, 0, stream.JSON, frames(t, streamtest.Widgets, wholeStream(100)...))
	if a.code != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("got %d %s", a.code, a.body)
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
				a := b.pushSlices(t, 0, wholeStream(revision, objects...)...)
				if a.code != http.StatusOK && a.code != http.StatusConflict {
					t.Errorf("got %d %s", a.code, a.body)
				}
			}
		})
	}
	group.Wait()
	if got := b.content(t, sliceResource); len(got) != 24 || b.mirror.get(sliceResource).Position() != 1193 {
		t.Errorf("%d objects at %d, want 24 at 1193", len(got), b.mirror.get(sliceResource).Position())
	}
}

func TestMirrorIndexAndUnpushed(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	get := func(path string) answer {
		return do(t, b.server.Client(), http.MethodGet, b.server.URL+path, "", nil, "system:node:n2")
	}
	a := get(mirrorPath + "/discovery.k8s.io/v1/endpointslices")
	if a.code != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("before the first push: %d %s", a.code, a.body)
	}
	if a := b.pushSlices(t, 0, wholeStream(200, slice("c", 150))...); a.code != 200 {
		t.Fatal(a.body)
	}
	var found index
	if err := json.Unmarshal([]byte(get(mirrorPath).body), &found); err != nil {
		t.Fatal(err)
	}
	want := indexedEntry{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Applied: "200", Objects: 1}
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
		"POST /mirror/v1/core/v1/endpoints?watch=1":    false,
		"GET /mirror/v1?watch=1":                       false,
		"GET /version?watch=1":                         false,
	} {
		method, url, _ := strings.Cut(target, " ")
		if got := isMirrorWatch(httptest.NewRequest(method, url, nil)); got != want {
			t.Errorf("%s: %v", target, got)
		}
	}
}

// TestMutatedPushes: whatever comes, nothing panics, and what is refused has changed nothing. Not a fuzz target: with all of
// kube-apiserver linked, building one takes ten minutes; what parses the bytes has its own in package stream.
func TestMutatedPushes(t *testing.T) {
	whole := frames(t, streamtest.EndpointSlices, wholeStream(200, slice("c", 150), slice("d", 160))...).Bytes()
	changes := frames(t, streamtest.EndpointSlices, stream.Event{Type: stream.Added, Object: slice("e", 300)},
		stream.Event{Type: stream.Deleted, Object: slice("c", 310)}).Bytes()
	random := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 5_000 {
		etcd := &fakeEtcd{keys: map[string]string{}}
		b := pushable()[sliceResource]
		b.prefix = "/registry/endpointslices/"
		each, err := newMirrored(sliceResource, etcd.write, b)
		if err != nil {
			t.Fatal(err)
		}
		try := func(from edge.Revision, body []byte) error {
			p := &pushed{from: from, encoding: stream.Protobuf, take: func(int64) error { return nil }}
			if err := each.readPush(bytes.NewReader(body), p); err != nil {
				return err
			}
			_, err := each.apply(t.Context(), p, time.Now(), func(context.Context) error { return nil })
			return err
		}
		body, from, want := whole, edge.Revision(0), 0
		if random.IntN(2) == 0 {
			if err := try(0, whole); err != nil {
				t.Fatal(err)
			}
			body, from, want = changes, 200, 2
		}
		body = slices.Clone(body)
		for range 1 + random.IntN(3) {
			at := random.IntN(len(body))
			switch random.IntN(4) {
			case 0:
				body = body[:at]
			case 1:
				body[at] = byte(random.Uint32())
			case 2:
				body[at] ^= 1 << random.IntN(8)
			case 3:
				body = slices.Insert(body, at, byte(random.Uint32()))
			}
			if len(body) == 0 {
				break
			}
		}
		if err := try(from, body); err == nil {
			accepted++
		} else if len(etcd.keys) != want || each.Position() != from {
			t.Fatalf("refused (%v), and yet etcd has %v at %d", err, etcd.keys, each.Position())
		}
		for key := range etcd.keys {
			if strings.Count(key, "/") != 4 || strings.Contains(key, "..") {
				t.Errorf("wrote %q", key)
			}
		}
		each.replica.Close()
	}
	t.Logf("%d of 5000 were accepted", accepted)
}
