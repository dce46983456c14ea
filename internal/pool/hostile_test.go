package pool

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
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

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
	b.mirror.stalled = 50 * time.Millisecond
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
			if _, err := each.read(stream.NewFrameReader(bytes.NewReader(body), p.encoding, maxFrame), p); err != nil {
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
