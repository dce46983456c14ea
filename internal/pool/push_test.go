package pool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// line is one of an answer.
type line struct {
	Applied string
	Code    int
	Message string
	Details struct{ RetryAfterSeconds int }
}

// following is a push of changes under way.
type following struct {
	t    testing.TB
	body *io.PipeWriter
	told chan line // closed at the end of the answer
	code chan int  // that of the answer, once it has begun
}

// follow begins a push of changes. It ends with the test.
func follow(t testing.TB, client *http.Client, url, user string, e stream.Encoding) *following {
	t.Helper()
	content, body := io.Pipe()
	f := &following{t: t, body: body, told: make(chan line, 100), code: make(chan int, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, content)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", e.ContentType(true))
	r.Header.Set("X-User", user)
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		_ = body.CloseWithError(context.Canceled) // a client that waits for its body does not see its context end
		<-done
	})
	go func() {
		defer close(done)
		defer close(f.told)
		defer content.Close() //nolint:errcheck // never fails
		response, err := client.Do(r)
		if err != nil {
			f.code <- 0
			return
		}
		defer response.Body.Close()
		defer cancel() // before Close, which would wait for the body
		f.code <- response.StatusCode
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			var l line
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				t.Errorf("%s: %v", lines.Bytes(), err)
			}
			f.told <- l
		}
	}()
	return f
}

func (f *following) send(content []byte) {
	f.t.Helper()
	if _, err := f.body.Write(content); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		f.t.Error(err)
	}
}

// next is the next line; nil at the end.
func (f *following) next() *line {
	f.t.Helper()
	select {
	case l, open := <-f.told:
		if open {
			return &l
		}
	case <-time.After(20 * time.Second):
		f.t.Error("nothing is told")
	}
	return nil
}

func (f *following) acknowledged(want edge.Revision) {
	f.t.Helper()
	if got := f.next(); got == nil || *got != (line{Applied: want.String()}) {
		f.t.Fatalf("told %+v, want that %d is applied", got, want)
	}
}

// ended waits for the last line, which has a code, or for an end without one.
func (f *following) ended(code int) line {
	f.t.Helper()
	got := f.next()
	if got == nil {
		got = &line{}
	}
	if got.Code != code {
		f.t.Errorf("told %+v, want %d", got, code)
	}
	if code != 0 && got.Message == "" {
		f.t.Errorf("%d says nothing", code)
	}
	if after := f.next(); after != nil {
		f.t.Errorf("it goes on: %+v", after)
	}
	return *got
}

func (b *mirrorBench) follow(t testing.TB, r schema.GroupVersionResource, from edge.Revision) *following {
	t.Helper()
	return follow(t, b.server.Client(), b.server.URL+target(r, from, b.leader.term), b.leader.node.User(), stream.Protobuf)
}

func batchOf(t testing.TB, end edge.Revision, objects ...stream.Object) []byte {
	t.Helper()
	var events []stream.Event
	for _, o := range objects {
		events = append(events, stream.Event{Type: stream.Modified, Object: o})
	}
	events = append(events, stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: end}})
	return frames(t, streamtest.EndpointSlices, events...).Bytes()
}

// at100 is a mirror that has two EndpointSlices at revision 100.
func at100(t *testing.T) *mirrorBench {
	t.Helper()
	b := newMirrorBench(t, 8<<20)
	if a := b.pushSlices(t, 0, wholeStream(100, slice("a", 10), slice("b", 20))...); a.code != http.StatusOK {
		t.Fatal(a.body)
	}
	return b
}

func (b *mirrorBench) standsAt(t testing.TB, want edge.Revision, objects int) {
	t.Helper()
	if got := b.content(t, sliceResource); len(got) != objects || b.mirror.get(sliceResource).Position() != want {
		t.Errorf("it holds %d objects at %d, want %d at %d", len(got), b.mirror.get(sliceResource).Position(), objects, want)
	}
	b.mirror.mu.Lock()
	defer b.mirror.mu.Unlock()
	if b.mirror.reading != 0 {
		t.Errorf("%d bytes stay reserved", b.mirror.reading)
	}
}

// TestChangesGoOn: each batch is acknowledged while the push goes on.
func TestChangesGoOn(t *testing.T) {
	b := at100(t)
	f := b.follow(t, sliceResource, 100)
	f.send(batchOf(t, 110, slice("c", 105), slice("d", 110)))
	f.acknowledged(110)
	b.standsAt(t, 110, 4)
	f.send(batchOf(t, 110))
	f.acknowledged(110)
	f.send(batchOf(t, 120))
	f.acknowledged(120)
	text := batchOf(t, 130, slice("d", 130))
	f.send(text[:20])
	f.send(text[20:])
	f.acknowledged(130)
	f.send(frames(t, streamtest.EndpointSlices, stream.Event{Type: stream.Deleted, Object: slice("a", 140)}).Bytes())
	if err := f.body.Close(); err != nil { // an end does for a bookmark
		t.Error(err)
	}
	f.acknowledged(140)
	f.ended(0)
	b.standsAt(t, 140, 3)
	if code := <-f.code; code != http.StatusOK {
		t.Errorf("answered %d", code)
	}
}

// TestChangesNeedHTTP2, or a refusal would wait for the end of the body, which does not come.
func TestChangesNeedHTTP2(t *testing.T) {
	b := at100(t)
	server := httptest.NewServer(b.server.Config.Handler)
	defer server.Close()
	a := do(t, server.Client(), http.MethodPost, server.URL+target(sliceResource, 100, b.leader.term),
		stream.Protobuf.ContentType(true), bytes.NewReader(batchOf(t, 110, slice("c", 110))), b.leader.node.User())
	if a.code != http.StatusHTTPVersionNotSupported {
		t.Errorf("got %d %s", a.code, a.body)
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
		{"a frame of 4 GB", []byte("\xff\xff\xff\xffx"), 422},
		{"an end inside a frame", batchOf(t, 130, good)[:40], 422},
		{"a change at the position", batchOf(t, 130, good, slice("c", 110)), 422},
		{"changes in disorder", batchOf(t, 130, good, slice("c", 119)), 422},
		{"a bookmark that goes back", batchOf(t, 119, good), 422},
		{"a bookmark before the position", batchOf(t, 109), 422},
		{"a marker", frames(t, streamtest.EndpointSlices, wholeStream(200, slice("c", 150))...).Bytes(), 422},
		{"another type", frames(t, pods, stream.Event{Type: stream.Added, Object: good}).Bytes(), 422},
		{"bytes that do not decode", batchOf(t, 200, good, foreign), 422},
		{"a way out by the name", batchOf(t, 200, good, slice("../../secrets/default/x", 150)), 422},
		{"more than the quota", batchOf(t, 200, many...), 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := at100(t)
			f := b.follow(t, sliceResource, 100)
			f.send(batchOf(t, 110, slice("c", 105)))
			f.acknowledged(110)
			go func() {
				f.send(c.body)
				_ = f.body.Close()
			}()
			f.ended(c.code)
			b.standsAt(t, 110, 3)
		})
	}
}

func TestDeposedBetweenTwoBatches(t *testing.T) {
	b := at100(t)
	var asked, deposed atomic.Int32
	b.mirror.leads = func(_ context.Context, n edge.NodeName, term int32) error {
		asked.Add(1)
		return claim{"n1", 7 + deposed.Load()}.refuse(n, term)
	}
	f := b.follow(t, sliceResource, 100)
	for revision := edge.Revision(101); revision <= 105; revision++ {
		f.send(batchOf(t, revision, slice("c", revision)))
		f.acknowledged(revision)
	}
	if n := asked.Load(); n != 6 {
		t.Errorf("asked %d times who leads, want once before all and once for each batch", n)
	}
	deposed.Store(1)
	f.send(batchOf(t, 106, slice("c", 106)))
	f.ended(http.StatusForbidden)
	b.standsAt(t, 105, 3)
}

func TestTheMirrorMovesUnderAPush(t *testing.T) {
	b := at100(t)
	f := b.follow(t, sliceResource, 100)
	f.send(batchOf(t, 110))
	f.acknowledged(110)
	if a := b.pushSlices(t, 0, wholeStream(200, slice("a", 10), slice("b", 20), slice("x", 150))...); a.code != 200 {
		t.Fatal(a.body)
	}
	f.send(batchOf(t, 120, slice("c", 120)))
	if last := f.ended(http.StatusConflict); last.Applied != "200" {
		t.Errorf("told %+v, want where it stands", last)
	}
	b.standsAt(t, 200, 3)
}

func TestAPushOfChangesThatStalls(t *testing.T) {
	for name, sent := range map[string]int{"between batches": 0, "inside of one": 40} {
		t.Run(name, func(t *testing.T) {
			b := at100(t)
			b.mirror.stalled = 50 * time.Millisecond
			f := b.follow(t, sliceResource, 100)
			f.send(batchOf(t, 104))
			f.acknowledged(104)
			f.send(batchOf(t, 110, slice("c", 110))[:sent])
			f.ended(http.StatusRequestTimeout)
			b.standsAt(t, 104, 2)
		})
	}
}

// deadlines notes what is set.
type deadlines struct {
	http.ResponseWriter
	read, write []time.Duration // from when each was set; 0 is none
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.read = append(d.read, until(at))
	return nil
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.write = append(d.write, until(at))
	return nil
}

func until(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return time.Until(at)
}

func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := func(p *patient, after time.Duration) error {
			time.Sleep(after) // of the bubble's clock
			_, err := p.Read(make([]byte, 1))
			return err
		}
		d := &deadlines{}
		p := newPatient(d, strings.NewReader("abcd"), 30*time.Second)
		for _, after := range []time.Duration{0, time.Second, time.Second, time.Second, 25 * time.Second} {
			if err := read(p, after); err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
		p.cut() // too late
		want := []time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second, 0}
		if !slices.Equal(d.read, want) || len(d.write) != 0 {
			t.Errorf("read deadlines %v, want %v; write %v", d.read, want, d.write)
		}
		d = &deadlines{}
		p = newPatient(d, strings.NewReader("abcd"), 30*time.Second)
		p.cut()
		if err := read(p, 0); !errors.Is(err, os.ErrDeadlineExceeded) || len(d.read) != 1 || d.read[0] >= 0 {
			t.Errorf("after a cut: %v, deadlines %v", err, d.read)
		}
		if !slices.Equal(d.write, []time.Duration{lastWord}) {
			t.Errorf("write deadlines %v, want %s", d.write, lastWord)
		}
	})
}

func TestEtcdFailsUnderAPush(t *testing.T) {
	b := at100(t)
	f := b.follow(t, sliceResource, 100)
	f.send(batchOf(t, 110, slice("c", 110)))
	f.acknowledged(110)
	b.etcd.mu.Lock()
	b.etcd.fail = func() (failed, applied bool) { return true, false }
	b.etcd.mu.Unlock()
	f.send(batchOf(t, 120, slice("d", 120)))
	if last := f.ended(http.StatusServiceUnavailable); last.Details.RetryAfterSeconds != 1 {
		t.Errorf("told %+v, want when to try again", last)
	}
	b.standsAt(t, 110, 3)
}

// TestTheNextPushEndsTheLast at once, whatever that is doing.
func TestTheNextPushEndsTheLast(t *testing.T) {
	b := at100(t)
	first := b.follow(t, sliceResource, 100)
	first.send(batchOf(t, 110))
	first.acknowledged(110)
	first.send(batchOf(t, 120, slice("c", 120))[:40])
	second := b.follow(t, sliceResource, 110)
	second.send(batchOf(t, 115))
	first.ended(http.StatusConflict)
	second.acknowledged(115)
	// One that does not get as far ends nothing.
	third := b.follow(t, sliceResource, 110)
	third.ended(http.StatusConflict)
	second.send(batchOf(t, 130, slice("d", 130)))
	second.acknowledged(130)
	b.standsAt(t, 130, 3)
}

func TestAPushEndsWithTheMirror(t *testing.T) {
	b := at100(t)
	f := b.follow(t, sliceResource, 100)
	f.send(batchOf(t, 110))
	f.acknowledged(110)
	if err := b.mirror.Close(); err != nil {
		t.Error(err)
	}
	if last := f.ended(http.StatusServiceUnavailable); last.Details.RetryAfterSeconds != 1 {
		t.Errorf("told %+v, want when to try again", last)
	}
	late := b.follow(t, sliceResource, 110)
	late.ended(http.StatusServiceUnavailable)
}

// TestAllResourcesAreFollowedAtOnce, and leave room for pushes of everything.
func TestAllResourcesAreFollowedAtOnce(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	var all []*following
	for i := range maxMirrored {
		r := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: fmt.Sprintf("widgets%d", i)}
		if a := b.push(t, r, 0, stream.JSON, frames(t, streamtest.Widgets, wholeStream(100)...)); a.code != 200 {
			t.Fatal(a.body)
		}
		f := follow(t, b.server.Client(), b.server.URL+target(r, 100, b.leader.term), b.leader.node.User(), stream.JSON)
		all = append(all, f)
	}
	bookmark := stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: 110}}
	for _, f := range slices.Backward(all) {
		f.send(frames(t, streamtest.Widgets, bookmark).Bytes())
	}
	for _, f := range all {
		f.acknowledged(110)
	}
	r := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets0"}
	if a := b.push(t, r, 0, stream.JSON, frames(t, streamtest.Widgets, wholeStream(120)...)); a.code != 200 {
		t.Error(a.body)
	}
}

// TestAPushOfChangesToACoordinator goes through the whole chain of kube-apiserver's filters.
func TestAPushOfChangesToACoordinator(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	c.lead(t, "n1", 1)
	leader := c.http(t, c.certificate(t, node("n1")))
	leader.Timeout = 0
	whole := frames(t, protobufType(sliceKind), wholeStream(2000)...)
	if a := c.push(t, leader, sliceResource, 0, 1, whole); a.code != 200 {
		t.Fatal(a.body)
	}
	begin := func(from edge.Revision, term int32) *following {
		return follow(t, leader, "https://"+c.address+target(sliceResource, from, term), "", stream.Protobuf)
	}
	batch := func(revision int) []byte {
		var text bytes.Buffer
		text.Write(frames(t, protobufType(sliceKind),
			stream.Event{Type: stream.Modified, Object: asObject(t, cloudSlice("web-a", revision, "10.0.0.1"))},
			stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: edge.Revision(revision)}}).Bytes())
		return text.Bytes()
	}
	f := begin(2000, 1)
	for revision := 2001; revision < 2010; revision++ {
		f.send(batch(revision))
		f.acknowledged(edge.Revision(revision))
	}
	c.clock.Step(10 * time.Second)
	c.lead(t, "n2", 2)
	f.send(batch(2010))
	f.ended(http.StatusForbidden)

	c.clock.Step(10 * time.Second)
	c.lead(t, "n1", 3)
	f = begin(2009, 3)
	f.send(batch(2011))
	f.acknowledged(2011)
	began := time.Now()
	if err := c.stop(t); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping took %s with a push under way", took)
	}
	if last := f.next(); last != nil && last.Code != http.StatusServiceUnavailable {
		t.Errorf("told %+v", last)
	}
}
