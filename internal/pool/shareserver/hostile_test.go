package shareserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// TestWhatIsMalformedChangesNothing tries, on a mirror that holds something, all that a broken or hostile leader may send.
func TestWhatIsMalformedChangesNothing(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	start := []stream.Object{slice("a", 10), slice("b", 20)}
	widgets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
	if a := b.pushSlices(t, 0, pooltest.WholeStream(100, start...)...); a.Code != 200 {
		t.Fatal(a.Body)
	}
	whole := pooltest.Frames(t, streamtest.EndpointSlices, pooltest.WholeStream(200, slice("c", 150))...).Bytes()
	added := func(o stream.Object) []stream.Event { return []stream.Event{{Type: stream.Added, Object: o}} }
	body := func(events ...stream.Event) []byte {
		return pooltest.Frames(t, streamtest.EndpointSlices, events...).Bytes()
	}
	foreign := slice("c", 150)
	foreign.Raw = append(foreign.Raw, 2<<3, 1) // endpoints, as a number
	huge := streamtest.Object(streamtest.EndpointSlices, "default", "huge", 150, strings.Repeat("x", 1700<<10))
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
		{"half a frame", pooltest.SliceResource, 0, whole[:len(whole)/2], 422},
		{"no marker", pooltest.SliceResource, 0, body(added(slice("c", 150))...), 422},
		{"empty", pooltest.SliceResource, 0, nil, 422},
		{"random bytes", pooltest.SliceResource, 0, []byte("\x00\x00\x00\x08garbage!"), 422},
		{"a frame of 4 GB", pooltest.SliceResource, 0, []byte("\xff\xff\xff\xffx"), 413},
		{"a frame of 9 MB", pooltest.SliceResource, 0, append([]byte{0, 0x90, 0, 0}, make([]byte, 9<<20)...), 413},
		{"an object that etcd would not take", pooltest.SliceResource, 0, body(pooltest.WholeStream(200, huge)...), 413},
		{"more than the quota", pooltest.SliceResource, 0, body(pooltest.WholeStream(200, many...)...), 413},
		{"goes on after the marker", pooltest.SliceResource, 0,
			body(append(pooltest.WholeStream(200, slice("c", 150)), added(slice("d", 210))...)...), 422},
		{"twice the same", pooltest.SliceResource, 0, body(pooltest.WholeStream(200, slice("c", 150), slice("c", 160))...), 422},
		{"newer than its end", pooltest.SliceResource, 0, body(pooltest.WholeStream(200, slice("c", 250))...), 422},
		{"an object older than the one held", pooltest.SliceResource, 0, body(pooltest.WholeStream(200, slice("a", 5),
			slice("b", 20))...), 409},
		{"an error in it", pooltest.SliceResource, 0, failed.Bytes(), 422},
		{"a deletion in a full stream", pooltest.SliceResource, 0,
			body(append([]stream.Event{{Type: stream.Deleted, Object: slice("a", 150)}}, pooltest.WholeStream(200)...)...), 422},
		{"another type", pooltest.SliceResource, 0, pooltest.Frames(t, pods, pooltest.WholeStream(200, slice("c",
			150))...).Bytes(), 422},
		{"bytes that do not decode", pooltest.SliceResource, 0, body(pooltest.WholeStream(200, foreign)...), 422},
		{"a way out by the name", pooltest.SliceResource, 0, body(pooltest.WholeStream(200,
			slice("../../secrets/default/x", 150))...), 422},
		{"the name ..", pooltest.SliceResource, 0, body(pooltest.WholeStream(200, slice("..", 150))...), 422},
		{"a way out by the namespace", pooltest.SliceResource, 0, body(pooltest.WholeStream(200,
			streamtest.Object(streamtest.EndpointSlices, "../secrets", "x", 150, ""))...), 422},
		{"no namespace", pooltest.SliceResource, 0,
			body(pooltest.WholeStream(200, streamtest.Object(streamtest.EndpointSlices, "", "x", 150, ""))...), 422},
		{"an older snapshot", pooltest.SliceResource, 0, body(pooltest.WholeStream(99, start...)...), 409},
		{"from where the mirror is not yet", pooltest.SliceResource, 101, body(added(slice("c", 150))...), 409},
		{"from where the mirror has been", pooltest.SliceResource, 99, body(added(slice("c", 150))...), 409},
		{"changes to what was never pushed", widgets, 99, nil, 409},
		{"a change at the position", pooltest.SliceResource, 100, body(added(slice("c", 100))...), 422},
		{"changes in disorder", pooltest.SliceResource, 100,
			body(append(added(slice("c", 150)), added(slice("d", 140))...)...), 422},
		{"a bookmark that goes back", pooltest.SliceResource, 100,
			body(append(added(slice("c", 150)), bookmark)...), 422},
		{"a marker among changes", pooltest.SliceResource, 100, body(pooltest.WholeStream(200, slice("c", 150))...), 422},
		{"half of the changes", pooltest.SliceResource, 100,
			body(append(added(slice("c", 150)), added(slice("d", 160))...)...)[:100], 422},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := b.push(t, c.resource, c.from, stream.Protobuf, bytes.NewReader(c.body))
			if a.Code != c.code || a.Body == "" {
				t.Errorf("got %d %s, want %d", a.Code, a.Body, c.code)
			}
			if got := b.content(t,
				pooltest.SliceResource); len(got) != 2 || b.mirror.get(pooltest.SliceResource).Position() != 100 {
				t.Errorf("it holds %d objects at %d", len(got), b.mirror.get(pooltest.SliceResource).Position())
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
				b.server.URL+pooltest.Target(pooltest.SliceResource, 0, b.leader.term), bytes.NewReader(whole))
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
			if response.StatusCode < 400 || response.StatusCode >= 500 || len(b.content(t, pooltest.SliceResource)) != 2 {
				t.Errorf("got %d", response.StatusCode)
			}
		})
	}
}

func TestAStalledPushIsCutAndHoldsUpNobody(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	b.mirror.stalled = 50 * time.Millisecond
	whole := pooltest.Frames(t, streamtest.EndpointSlices, pooltest.WholeStream(200, slice("c", 150))...).Bytes()
	a := b.push(t, pooltest.SliceResource, 0, stream.Protobuf, &pooltest.Slowly{First: whole[:len(whole)/2],
		Until: t.Context().Done()})
	if a.Code != http.StatusRequestTimeout {
		t.Errorf("got %d %s", a.Code, a.Body)
	}
	// With one stalled, another goes through: the next leader does not wait for the last one.
	done := make(chan pooltest.Answer, 1)
	entered := make(chan struct{})
	b.mirror.stalled = time.Hour
	until := make(chan struct{})
	stalled := &pooltest.Slowly{First: whole[:len(whole)/2], Until: until}
	go func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			b.server.URL+pooltest.Target(pooltest.SliceResource, 0, b.leader.term),
			&notice{stalled, entered, sync.Once{}})
		if err == nil {
			r.Header.Set("Content-Type", stream.Protobuf.ContentType(true))
			r.Header.Set("X-User", b.leader.node.User())
			var response *http.Response
			if response, err = b.server.Client().Do(r); err == nil {
				response.Body.Close()
			}
		}
		done <- pooltest.Answer{Body: fmt.Sprint(err)}
	}()
	<-entered
	if a := b.push(t, pooltest.SliceResource, 0, stream.Protobuf, bytes.NewReader(whole)); a.Code != http.StatusOK {
		t.Errorf("got %d %s", a.Code, a.Body)
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

// TestMutatedPushes: whatever comes, nothing panics, and what is refused has changed nothing. Not a fuzz target: with all of
// kube-apiserver linked, building one takes ten minutes; what parses the bytes has its own in package stream.
func TestMutatedPushes(t *testing.T) {
	whole := pooltest.Frames(t, streamtest.EndpointSlices, pooltest.WholeStream(200, slice("c", 150), slice("d", 160))...).Bytes()
	changes := pooltest.Frames(t, streamtest.EndpointSlices, stream.Event{Type: stream.Added, Object: slice("e", 300)},
		stream.Event{Type: stream.Deleted, Object: slice("c", 310)}).Bytes()
	random := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 5_000 {
		etcd := &pooltest.FakeEtcd{Keys: map[string]string{}}
		b := pushable()[pooltest.SliceResource]
		b.Prefix = "/registry/endpointslices/"
		each := newMirrored(pooltest.SliceResource, pooltest.SliceResource, etcd.Write, b)
		try := func(from edge.Revision, body []byte) error {
			p := &pushed{
				to: each, from: from, encoding: stream.Protobuf, take: func(int64) error { return nil }, give: func(int64) {},
				holds: func(context.Context) error { return nil }, batch: batch{revision: from},
			}
			frames := stream.NewFrameReader(bytes.NewReader(body), p.encoding, exchange.MaxFrame)
			if _, err := readBatch(frames, p); err != nil {
				return err
			}
			_, err := p.apply(t.Context(), frames.Type())
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
		} else if len(etcd.Keys) != want || each.Position() != from {
			t.Fatalf("refused (%v), and yet etcd has %v at %d", err, etcd.Keys, each.Position())
		}
		for key := range etcd.Keys {
			if strings.Count(key, "/") != 4 || strings.Contains(key, "..") {
				t.Errorf("wrote %q", key)
			}
		}
		each.replica.Close()
	}
	t.Logf("%d of 5000 were accepted", accepted)
}
