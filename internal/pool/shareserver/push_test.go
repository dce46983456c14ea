package shareserver

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

func (b *mirrorBench) follow(t testing.TB, r schema.GroupVersionResource, from edge.Revision) *pooltest.Following {
	t.Helper()
	return pooltest.Follow(t, b.server.Client(), b.server.URL+pooltest.Target(r, from, b.leader.term),
		b.leader.node.User(), stream.Protobuf)
}

func batchOf(t testing.TB, end edge.Revision, objects ...stream.Object) []byte {
	t.Helper()
	var events []stream.Event
	for _, o := range objects {
		events = append(events, stream.Event{Type: stream.Modified, Object: o})
	}
	events = append(events, stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: end}})
	return pooltest.Frames(t, streamtest.EndpointSlices, events...).Bytes()
}

// at100 is a mirror that has two EndpointSlices at revision 100.
func at100(t *testing.T) *mirrorBench {
	t.Helper()
	b := newMirrorBench(t, 8<<20)
	if a := b.pushSlices(t, 0, pooltest.WholeStream(100, slice("a", 10), slice("b", 20))...); a.Code != http.StatusOK {
		t.Fatal(a.Body)
	}
	return b
}

func (b *mirrorBench) standsAt(t testing.TB, want edge.Revision, objects int) {
	t.Helper()
	if got := b.content(t,
		pooltest.SliceResource); len(got) != objects || b.mirror.get(pooltest.SliceResource).Position() != want {
		t.Errorf("it holds %d objects at %d, want %d at %d", len(got), b.mirror.get(pooltest.SliceResource).Position(),
			objects, want)
	}
	b.mirror.mu.Lock()
	defer b.mirror.mu.Unlock()
	if b.mirror.reading != 0 {
		t.Errorf("%d bytes stay reserved", b.mirror.reading)
	}
}

// TestReadersAreNoBookmarkBehind: whoever leads next must have come as far as the mirror, by changes or without.
func TestReadersAreNoBookmarkBehind(t *testing.T) {
	b := at100(t)
	f := b.follow(t, pooltest.SliceResource, 100)
	f.Send(batchOf(t, 120))
	f.Acknowledged(120)
	target := b.server.URL + edge.PathMirror + "/discovery.k8s.io/v1/endpointslices"
	a := pooltest.Do(t, b.server.Client(), http.MethodGet, // a second is too short for the bookmark before the end
		target+"?watch=1&allowWatchBookmarks=1&resourceVersion=100&timeoutSeconds=1", "", nil, "x")
	if a.Code != http.StatusOK || strings.Count(a.Body, `"BOOKMARK"`) != 1 ||
		!strings.Contains(a.Body, `"resourceVersion":"120"`) {
		t.Errorf("%d %s", a.Code, a.Body)
	}
}

// TestChangesGoOn: each batch is acknowledged while the push goes on.
func TestChangesGoOn(t *testing.T) {
	b := at100(t)
	f := b.follow(t, pooltest.SliceResource, 100)
	f.Send(batchOf(t, 110, slice("c", 105), slice("d", 110)))
	f.Acknowledged(110)
	b.standsAt(t, 110, 4)
	f.Send(batchOf(t, 110))
	f.Acknowledged(110)
	f.Send(batchOf(t, 120))
	f.Acknowledged(120)
	text := batchOf(t, 130, slice("d", 130))
	f.Send(text[:20])
	f.Send(text[20:])
	f.Acknowledged(130)
	f.Send(pooltest.Frames(t, streamtest.EndpointSlices, stream.Event{Type: stream.Deleted, Object: slice("a", 140)}).Bytes())
	if err := f.Body.Close(); err != nil { // an end does for a bookmark
		t.Error(err)
	}
	f.Acknowledged(140)
	f.Ended(0)
	b.standsAt(t, 140, 3)
	if code := <-f.Code; code != http.StatusOK {
		t.Errorf("answered %d", code)
	}
}

// TestChangesNeedHTTP2, or a refusal would wait for the end of the body, which does not come.
func TestChangesNeedHTTP2(t *testing.T) {
	b := at100(t)
	server := httptest.NewServer(b.server.Config.Handler)
	defer server.Close()
	a := pooltest.Do(t, server.Client(), http.MethodPost, server.URL+pooltest.Target(pooltest.SliceResource, 100, b.leader.term),
		stream.Protobuf.ContentType(true), bytes.NewReader(batchOf(t, 110, slice("c", 110))), b.leader.node.User())
	if a.Code != http.StatusHTTPVersionNotSupported {
		t.Errorf("got %d %s", a.Code, a.Body)
	}
	b.standsAt(t, 100, 2)
}

// TestWhatIsMalformedEndsAPush: what came before stays, and nothing of the bad batch comes in.
func TestWhatIsMalformedEndsAPush(t *testing.T) {
	pods := stream.Type{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), Encoding: stream.Protobuf}
	good := slice("d", 120)
	foreign := slice("c", 150)
	foreign.Raw = append(foreign.Raw, 2<<3, 1) // endpoints, as a number
	var many []stream.Object
	for i := range 9 {
		many = append(many, streamtest.Object(streamtest.EndpointSlices, "default", fmt.Sprint(i), edge.Revision(150+i),
			strings.Repeat("x", 1<<20)))
	}
	for _, c := range []struct {
		name string
		body []byte
		code int
	}{
		{"random bytes", []byte("\x00\x00\x00\x08garbage!"), 422},
		{"a frame of 4 GB", []byte("\xff\xff\xff\xffx"), 413},
		{"an end inside a frame", batchOf(t, 130, good)[:40], 422},
		{"a change at the position", batchOf(t, 130, good, slice("c", 110)), 422},
		{"changes in disorder", batchOf(t, 130, good, slice("c", 119)), 422},
		{"a bookmark that goes back", batchOf(t, 119, good), 422},
		{"a bookmark before the position", batchOf(t, 109), 422},
		{"a marker", pooltest.Frames(t, streamtest.EndpointSlices, pooltest.WholeStream(200, slice("c", 150))...).Bytes(), 422},
		{"another type", pooltest.Frames(t, pods, stream.Event{Type: stream.Added, Object: good}).Bytes(), 422},
		{"bytes that do not decode", batchOf(t, 200, good, foreign), 422},
		{"a way out by the name", batchOf(t, 200, good, slice("../../secrets/default/x", 150)), 422},
		{"more than the quota", batchOf(t, 200, many...), 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := at100(t)
			f := b.follow(t, pooltest.SliceResource, 100)
			f.Send(batchOf(t, 110, slice("c", 105)))
			f.Acknowledged(110)
			go func() {
				f.Send(c.body)
				_ = f.Body.Close()
			}()
			f.Ended(c.code)
			b.standsAt(t, 110, 3)
		})
	}
}

func TestDeposedBetweenTwoBatches(t *testing.T) {
	b := at100(t)
	var asked, deposed atomic.Int32
	b.mirror.leads = func(_ context.Context, n edge.NodeName, term int32) error {
		asked.Add(1)
		return pusher{"n1", 7 + deposed.Load()}.refuse(n, term)
	}
	f := b.follow(t, pooltest.SliceResource, 100)
	for revision := edge.Revision(101); revision <= 105; revision++ {
		f.Send(batchOf(t, revision, slice("c", revision)))
		f.Acknowledged(revision)
	}
	if n := asked.Load(); n != 6 {
		t.Errorf("asked %d times who leads, want once before all and once for each batch", n)
	}
	deposed.Store(1)
	f.Send(batchOf(t, 106, slice("c", 106)))
	f.Ended(http.StatusForbidden)
	b.standsAt(t, 105, 3)
}

func TestTheMirrorMovesUnderAPush(t *testing.T) {
	b := at100(t)
	f := b.follow(t, pooltest.SliceResource, 100)
	f.Send(batchOf(t, 110))
	f.Acknowledged(110)
	if a := b.pushSlices(t, 0, pooltest.WholeStream(200, slice("a", 10), slice("b", 20), slice("x", 150))...); a.Code != 200 {
		t.Fatal(a.Body)
	}
	f.Send(batchOf(t, 120, slice("c", 120)))
	if last := f.Ended(http.StatusConflict); last.Applied != "200" {
		t.Errorf("told %+v, want where it stands", last)
	}
	b.standsAt(t, 200, 3)
}

func TestAPushOfChangesThatStalls(t *testing.T) {
	for name, sent := range map[string]int{"between batches": 0, "inside of one": 40} {
		t.Run(name, func(t *testing.T) {
			b := at100(t)
			b.mirror.stalled = 50 * time.Millisecond
			f := b.follow(t, pooltest.SliceResource, 100)
			f.Send(batchOf(t, 104))
			f.Acknowledged(104)
			f.Send(batchOf(t, 110, slice("c", 110))[:sent])
			f.Ended(http.StatusRequestTimeout)
			b.standsAt(t, 104, 2)
		})
	}
}

func TestEtcdFailsUnderAPush(t *testing.T) {
	b := at100(t)
	f := b.follow(t, pooltest.SliceResource, 100)
	f.Send(batchOf(t, 110, slice("c", 110)))
	f.Acknowledged(110)
	b.etcd.Mu.Lock()
	b.etcd.Fail = func() (failed, applied bool) { return true, false }
	b.etcd.Mu.Unlock()
	f.Send(batchOf(t, 120, slice("d", 120)))
	if last := f.Ended(http.StatusServiceUnavailable); last.Details.RetryAfterSeconds != 1 {
		t.Errorf("told %+v, want when to try again", last)
	}
	b.standsAt(t, 110, 3)
}

// TestTheNextPushEndsTheLast at once, whatever that is doing.
func TestTheNextPushEndsTheLast(t *testing.T) {
	b := at100(t)
	first := b.follow(t, pooltest.SliceResource, 100)
	first.Send(batchOf(t, 110))
	first.Acknowledged(110)
	first.Send(batchOf(t, 120, slice("c", 120))[:40])
	second := b.follow(t, pooltest.SliceResource, 110)
	second.Send(batchOf(t, 115))
	first.Ended(http.StatusConflict)
	second.Acknowledged(115)
	// One that does not get as far ends nothing.
	third := b.follow(t, pooltest.SliceResource, 110)
	third.Ended(http.StatusConflict)
	second.Send(batchOf(t, 130, slice("d", 130)))
	second.Acknowledged(130)
	b.standsAt(t, 130, 3)
}

func TestAPushEndsWithTheMirror(t *testing.T) {
	b := at100(t)
	f := b.follow(t, pooltest.SliceResource, 100)
	f.Send(batchOf(t, 110))
	f.Acknowledged(110)
	if err := b.mirror.Close(); err != nil {
		t.Error(err)
	}
	if last := f.Ended(http.StatusServiceUnavailable); last.Details.RetryAfterSeconds != 1 {
		t.Errorf("told %+v, want when to try again", last)
	}
	late := b.follow(t, pooltest.SliceResource, 110)
	late.Ended(http.StatusServiceUnavailable)
}

// TestAllResourcesAreFollowedAtOnce, and leave room for pushes of everything.
func TestAllResourcesAreFollowedAtOnce(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	var all []*pooltest.Following
	for i := range maxMirrored {
		r := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: fmt.Sprintf("widgets%d", i)}
		if a := b.push(t, r, 0, stream.JSON, pooltest.Frames(t, streamtest.Widgets,
			pooltest.WholeStream(100)...)); a.Code != 200 {
			t.Fatal(a.Body)
		}
		f := pooltest.Follow(t, b.server.Client(), b.server.URL+pooltest.Target(r, 100, b.leader.term),
			b.leader.node.User(), stream.JSON)
		all = append(all, f)
	}
	bookmark := stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: 110}}
	for _, f := range slices.Backward(all) {
		f.Send(pooltest.Frames(t, streamtest.Widgets, bookmark).Bytes())
	}
	for _, f := range all {
		f.Acknowledged(110)
	}
	r := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets0"}
	if a := b.push(t, r, 0, stream.JSON, pooltest.Frames(t, streamtest.Widgets, pooltest.WholeStream(120)...)); a.Code != 200 {
		t.Error(a.Body)
	}
}
