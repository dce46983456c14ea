package shareserver

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// fill pushes EndpointSlices as a filler has them, in the first history.
func (b *mirrorBench) fill(
	t *testing.T, c pusher, in edge.History, revision edge.Revision, objects ...stream.Object,
) pooltest.Answer {
	t.Helper()
	return b.pushAs(t, c, in.Filled(), 0, pooltest.WholeStream(revision, objects...)...)
}

func (b *mirrorBench) pushAs(
	t *testing.T, c pusher, in edge.History, from edge.Revision, events ...stream.Event,
) pooltest.Answer {
	t.Helper()
	client := &http.Client{Transport: historian{b.server.Client().Transport, in}}
	return pooltest.Do(t, client, http.MethodPost, b.server.URL+pooltest.Target(pooltest.SliceResource, from, c.term),
		stream.Protobuf.ContentType(true), pooltest.Frames(t, streamtest.EndpointSlices, events...), c.node.User())
}

// watch asks what follows a revision of a history, and returns how it is answered.
func (b *mirrorBench) watch(t *testing.T, in edge.History, after edge.Revision) pooltest.Answer {
	t.Helper()
	client := &http.Client{Transport: historian{b.server.Client().Transport, in}}
	return pooltest.Do(t, client, http.MethodGet, b.server.URL+edge.PathMirror+fmt.Sprintf(
		"/discovery.k8s.io/v1/endpointslices?watch=1&timeoutSeconds=1&resourceVersion=%d", after), "", nil, "x")
}

// changed is an object with another content at the same revision.
func changed(name string, revision edge.Revision) stream.Object {
	o := slice(name, revision)
	o.Raw = streamtest.Object(streamtest.EndpointSlices, "default", name, revision, "another content").Raw
	return o
}

func TestWhoMayFill(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	code := func(what string, want int, a pooltest.Answer) {
		t.Helper()
		if a.Code != want {
			t.Errorf("%s: %d %s, want %d", what, a.Code, a.Body, want)
		}
	}
	me := pusher{"n5", 3}
	code("nobody may", 403, b.fill(t, me, 0, 100, slice("a", 10)))
	code("the leader as a filler", 403, b.fill(t, b.leader, 0, 100, slice("a", 10)))
	b.filler = &me
	code("another", 403, b.fill(t, pusher{"n4", 3}, 0, 100, slice("a", 10)))
	code("another turn", 403, b.fill(t, pusher{"n5", 2}, 0, 100, slice("a", 10)))
	code("the filler as a leader", 403, b.pushAs(t, me, 0, 0, pooltest.WholeStream(100, slice("a", 10))...))
	code("the filler", 200, b.fill(t, me, 0, 100, slice("a", 10)))
	code("its changes", 422, b.pushAs(t, me, edge.History(0).Filled(), 100, stream.Event{
		Type: stream.Modified, Object: slice("a", 110),
	}))
	b.standsAt(t, 100, 1)
	code("a leader with what a filler has", 403, b.fill(t, b.leader, 0, 120, slice("a", 10)))
	if all, in := b.mirror.FromLeader(pooltest.SliceResource); len(all) != 0 {
		t.Errorf("the filler's pass for a leader's: %v of %s", all, in)
	}
	code("the leader", 200, b.pushAs(t, b.leader, 0, 0, pooltest.WholeStream(130, slice("a", 10))...))
	if all, _ := b.mirror.FromLeader(pooltest.SliceResource); len(all) != 1 {
		t.Errorf("the leader brought one object: %v", all)
	}
}

// TestTheLatestFillerWins: by its history, then by its revision; and a leader in any case, object by object.
func TestTheLatestFillerWins(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	b.filler = &pusher{"n5", 3}
	want := func(what string, a pooltest.Answer, code int, at edge.Revision, objects int) {
		t.Helper()
		if a.Code != code {
			t.Errorf("%s: %d %s, want %d", what, a.Code, a.Body, code)
		}
		b.standsAt(t, at, objects)
	}
	want("the first", b.fill(t, *b.filler, 0, 100, slice("a", 10), slice("b", 20)), 200, 100, 2)
	want("an older one", b.fill(t, *b.filler, 0, 99, slice("a", 10)), 409, 100, 2)
	for range 4 {
		b.clock.Step(20 * time.Second)
		want("an older one that insists", b.fill(t, *b.filler, 0, 99, slice("a", 10)), 409, 100, 2)
		want("one with an older object that insists", b.fill(t, *b.filler, 0, 120, slice("b", 19)), 409, 100, 2)
	}
	want("a later one", b.fill(t, *b.filler, 0, 110, slice("a", 10), slice("b", 20), slice("c", 105)), 200, 110, 3)
	want("one of a later history", b.fill(t, *b.filler, 2, 50, slice("a", 40)), 200, 50, 1)
	want("one of an earlier", b.fill(t, *b.filler, 1, 900, slice("a", 40)), 409, 50, 1)
	if r := b.mirror.state().Resources[0]; r.History != 2 || !r.Filled || r.Applied != 50 {
		t.Errorf("index: %+v", r)
	}

	lie := changed("a", 40)
	want("a lie at the true revision", b.fill(t, *b.filler, 3, 1<<40, lie), 200, 1<<40, 1)
	want("changes by a leader who follows on", b.pushAs(t, b.leader, 0, 1<<40, stream.Event{
		Type: stream.Modified, Object: slice("x", 1<<40+1),
	}), 409, 1<<40, 1)
	want("the leader", b.pushAs(t, b.leader, 0, 0, pooltest.WholeStream(60, slice("a", 40), slice("z", 50))...), 200, 60, 2)
	if o, _ := b.mirror.get(pooltest.SliceResource).replica.Get(lie.Key); bytes.Equal(o.Raw, lie.Raw) {
		t.Error("the lie was left as it was")
	}
	b.content(t, pooltest.SliceResource) // etcd has what the replica has
	want("a filler after the leader", b.fill(t, *b.filler, 9, 1<<50, lie), 409, 60, 2)
	if r := b.mirror.state().Resources[0]; r.History != 0 || r.Filled {
		t.Errorf("index: %+v", r)
	}
}

// TestAFillerIsNotBelievedThatMuchIsGone, whatever history it claims.
func TestAFillerIsNotBelievedThatMuchIsGone(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	b.filler = &pusher{"n5", 3}
	var many []stream.Object
	for i := range 30 {
		many = append(many, slice(fmt.Sprintf("s%02d", i), edge.Revision(10+i)))
	}
	if a := b.fill(t, *b.filler, 0, 100, many...); a.Code != 200 {
		t.Fatal(a.Body)
	}
	for _, in := range []edge.History{0, 7} {
		if a := b.fill(t, *b.filler, in, 120, many[0]); a.Code != 409 {
			t.Errorf("history %d: %d %s", in, a.Code, a.Body)
		}
	}
	b.standsAt(t, 100, 30)
}

// TestNobodyFollowsOnFromTheCloudInWhatWasFilled: a hub that has something of the cloud's is asked to wait; one that has it from
// here goes on.
func TestNobodyFollowsOnFromTheCloudInWhatWasFilled(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	b.filler = &pusher{"n5", 3}
	if a := b.fill(t, *b.filler, 0, 100, slice("a", 10)); a.Code != 200 {
		t.Fatal(a.Body)
	}
	filled := edge.History(0).Filled()
	for _, c := range []struct {
		in    edge.History
		after edge.Revision
		code  int
	}{{0, 90, 503}, {0, 100, 503}, {1, 100, 503}, {filled, 100, 200}, {edge.History(1).Filled(), 100, 503}} {
		if a := b.watch(t, c.in, c.after); a.Code != c.code {
			t.Errorf("history %s after %d: %d %s, want %d", c.in, c.after, a.Code, a.Body, c.code)
		}
	}
	list := pooltest.Do(t, b.server.Client(), http.MethodGet,
		b.server.URL+edge.PathMirror+"/discovery.k8s.io/v1/endpointslices", "", nil, "x")
	if list.Code != 200 || list.Header.Get(edge.HeaderHistory) != filled.String() {
		t.Errorf("list: %d %v", list.Code, list.Header)
	}
	if a := b.pushAs(t, b.leader, 0, 0, pooltest.WholeStream(100, slice("a", 10))...); a.Code != 200 {
		t.Fatal(a.Body)
	}
	for in, code := range map[edge.History]int{0: 200, filled: 410} {
		if a := b.watch(t, in, 100); a.Code != code {
			t.Errorf("after the leader came, history %s: %d %s, want %d", in, a.Code, a.Body, code)
		}
	}
}

// TestPeopleAreToldOfAFiller: what it brought is complete, and not current.
func TestPeopleAreToldOfAFiller(t *testing.T) {
	b := newMirrorBench(t, 8<<20)
	b.filler = &pusher{"n5", 3}
	if s := b.mirror.standing(pooltest.SliceResource); s.complete {
		t.Errorf("%+v", s)
	}
	b.fill(t, *b.filler, 0, 100, slice("a", 10))
	s := b.mirror.standing(pooltest.SliceResource)
	if text := s.warns(pooltest.SliceResource.GroupResource(), b.mirror.began); !s.complete || s.current ||
		!strings.Contains(text, "a node that can't reach the cloud has brought them") {
		t.Errorf("%+v: %q", s, text)
	}
}

// TestFillersAndLeadersByAModel: fillers and leaders push at random moments of random histories. The mirror has at any time what
// was taken last; a leader's is never older than what a leader brought before, and nothing of a filler's stays after it.
func TestFillersAndLeadersByAModel(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := newMirrorBench(t, 8<<20)
		b.filler = &pusher{"n5", 3}
		var has edge.Moment // in the order of edge.History, which has all that a filler brings below all else
		var lied map[string]bool
		for step := range 60 {
			in, revision := edge.History(random.IntN(3)), edge.Revision(100+random.IntN(50))
			c, fills := b.leader, random.IntN(2) == 0
			if fills {
				c, in = *b.filler, in.Filled()
			}
			content := map[string]bool{}
			var objects []stream.Object
			for i := range 3 {
				if name := fmt.Sprint("s", i); random.IntN(4) > 0 {
					o := slice(name, 10) // never older, never suspicious: few
					if content[name] = fills && random.IntN(2) == 0; content[name] {
						o = changed(name, 10)
					}
					objects = append(objects, o)
				}
			}
			a := b.pushAs(t, c, in, 0, pooltest.WholeStream(revision, objects...)...)
			now := edge.Moment{History: in, Revision: revision}
			taken := has == (edge.Moment{}) || !now.Before(has)
			if (a.Code == 200) != taken {
				t.Fatalf("seed %d, step %d: %s on top of %s: %d %s", seed, step, now, has, a.Code, a.Body)
			}
			if !taken {
				continue
			}
			if in.IsFilled() && has.History == in {
				for name, was := range lied { // an object at the same revision of the same history stays as it is
					if _, still := content[name]; still {
						content[name] = was
					}
				}
			}
			has, lied = now, content
			for name, lie := range lied {
				o, there := b.mirror.get(pooltest.SliceResource).replica.Get(slice(name, 10).Key)
				if !there || bytes.Equal(o.Raw, changed(name, 10).Raw) != lie {
					t.Fatalf("seed %d, step %d: %s is there: %v, want a lie: %v", seed, step, name, there, lie)
				}
			}
			if got := len(b.content(t, pooltest.SliceResource)); got != len(lied) {
				t.Fatalf("seed %d, step %d: %d objects, want %d", seed, step, got, len(lied))
			}
		}
	}
}
