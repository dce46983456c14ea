package shareserver

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/stream"
)

var (
	podA  = stream.ID{Resource: resourcePods, Key: stream.Key{Namespace: "shop", Name: "a"}}
	podC  = stream.ID{Resource: resourcePods, Key: stream.Key{Name: "c"}}
	podB  = stream.ID{Resource: resourcePods, Key: stream.Key{Namespace: "shop", Name: "b"}}
	conf  = stream.ID{Resource: resourceConfigMaps, Key: stream.Key{Namespace: "shop", Name: "conf"}}
	other = stream.ID{Resource: resourceConfigMaps, Key: stream.Key{Namespace: "shop", Name: "other"}}
	event = stream.ID{Resource: resourceEvents, Key: stream.Key{Namespace: "shop", Name: "a.1"}}
	epoch = time.Unix(1_700_000_000, 0)
)

func pod(n edge.NodeName, id stream.ID, revision edge.Revision, uses ...stream.ID) offer {
	return offer{id: id, at: edge.Moment{Revision: revision}, bytes: 100, node: n, uses: uses}
}

func used(id stream.ID, revision edge.Revision) offer {
	return offer{id: id, at: edge.Moment{Revision: revision}, bytes: 10, shared: true}
}

// later is an offer of after the cloud was restored from a backup.
func later(o offer) offer {
	o.at.History++
	return o
}

// held are the claims of two nodes whose Pods use one ConfigMap.
func held() *claims {
	l := newClaims(1 << 20)
	for _, n := range []edge.NodeName{"n1", "n2", "n3"} {
		l.ofNode(n, epoch)
	}
	l.record("n1", pod("n1", podA, 10, conf, other), true)
	l.record("n2", pod("n2", podB, 20, conf), true)
	l.record("n1", used(conf, 5), true)
	l.record("n2", used(conf, 7), true)
	return l
}

// TestWhatANodeMayHaveHere tries the opposite of each rule.
func TestWhatANodeMayHaveHere(t *testing.T) {
	about := func(o offer, id stream.ID) offer {
		o.about = &id
		return o
	}
	sized := func(o offer, bytes int64) offer {
		o.bytes = bytes
		return o
	}
	contest := func(o offer) offer {
		o.contestable = true
		return o
	}
	said := func(o offer) offer {
		o.local = true
		return o
	}
	for name, c := range map[string]struct {
		node  edge.NodeName
		offer offer
		code  int // 0: it may
		write bool
	}{
		"its Pod, changed":              {"n1", pod("n1", podA, 11, conf), 0, true},
		"its Pod, again":                {"n1", pod("n1", podA, 10, conf), 0, true},
		"its Pod, older":                {"n1", pod("n1", podA, 9, conf), 409, false},
		"another Pod of its own":        {"n1", pod("n1", podC, 1), 0, true},
		"its Pod, as it says":           {"n1", said(pod("n1", podA, 10, conf)), 0, true},
		"what its Pod uses, as it says": {"n1", said(used(conf, 8)), 403, false},
		"a Pod of another node":         {"n1", pod("n2", podB, 30), 403, false},
		"a Pod of nobody":               {"n1", pod("", podB, 30), 403, false},
		"a Pod that was another node's": {"n1", pod("n1", podB, 30), 409, false},
		"a Pod that another node has":   {"n1", contest(pod("n1", podB, 30)), 0, false},
		"what its Pod uses, newer":      {"n1", used(conf, 8), 0, true},
		"what its Pod uses, older than what another node has told": {"n1", used(conf, 6), 0, false},
		"what its Pod uses, older than what it has told itself":    {"n1", used(conf, 4), 409, false},
		"what its Pod uses, for the first time":                    {"n1", used(other, 4), 0, true},
		"what only another node's Pod uses":                        {"n2", used(other, 4), 409, false},
		"what no Pod uses":                                         {"n3", used(conf, 8), 409, false},
		"its Pod, of a restored cloud":                             {"n1", later(pod("n1", podA, 9, conf)), 0, true},
		"what its Pod uses, of a restored cloud":                   {"n1", later(used(conf, 4)), 0, true},
		"an Event about its Pod":                                   {"n1", about(pod("n1", event, 1), podA), 0, true},
		"an Event about another node's Pod":                        {"n1", about(pod("n1", event, 1), podB), 409, false},
		"an Event about something else":                            {"n1", about(pod("n1", event, 1), stream.ID{}), 409, false},
		"another node's Event":                                     {"n1", about(pod("n2", event, 1), podA), 403, false},
		"more than a node may":                                     {"n1", sized(pod("n1", podA, 11), 17<<20), 413, false},
		"more than all may":                                        {"n1", sized(pod("n1", podA, 11), 1<<20), 413, false},
	} {
		l := held()
		write, err := l.judge(c.node, c.offer)
		var why *exchange.Refusal
		_ = errors.As(err, &why)
		if write != c.write || (err == nil) != (c.code == 0) || why != nil && why.Code != c.code {
			t.Errorf("%s: %v, %v; want %v, code %d", name, write, err, c.write, c.code)
		}
	}
	l := held()
	for i := range maxObjects {
		l.record("n3", pod("n3", stream.ID{Resource: resourcePods, Key: stream.Key{Name: fmt.Sprint(i)}}, 1), true)
	}
	if _, err := l.judge("n3", pod("n3", stream.ID{Resource: resourcePods, Key: stream.Key{Name: "one more"}}, 1)); err == nil {
		t.Error("a node may have any number")
	}
	if _, err := l.judge("n3", pod("n3", stream.ID{Resource: resourcePods, Key: stream.Key{Name: "7"}}, 2)); err != nil {
		t.Errorf("what it has may change: %v", err)
	}
}

// TestClaims: an object stays as long as one node claims it, and a claim as long as a Pod uses it.
func TestClaims(t *testing.T) {
	l := held()
	l.record("n1", used(other, 3), true)
	if gone := l.release("n1", podA); !slices.Equal(gone, []stream.ID{podA, other}) {
		t.Errorf("with n1's Pod %v went, want what it alone used", gone)
	}
	if l.objects[conf] == nil || l.nodes["n1"].claims[conf] != nil || l.nodes["n2"].claims[conf].at.Revision != 7 {
		t.Error("what n2 uses, too, must stay, as n2's")
	}
	if gone := l.release("n2", podB); !slices.Equal(gone, []stream.ID{podB, conf}) {
		t.Errorf("with n2's Pod %v went", gone)
	}
	if l.bytes != 0 || len(l.objects) != 0 || len(l.nodes["n1"].used)+len(l.nodes["n2"].used) != 0 {
		t.Errorf("it is not empty: %+v", l)
	}
	if gone := l.release("n2", podB); gone != nil {
		t.Errorf("twice: %v", gone)
	}
}

// TestAHubIsToldOfWhatItDidNotDo: its version tells that it must ask.
func TestAHubIsToldOfWhatItDidNotDo(t *testing.T) {
	l := held()
	before := l.nodes["n1"].version
	l.release("n1", podB) // not its own: nothing
	l.record("n1", pod("n1", podA, 11, conf), true)
	if l.nodes["n1"].version != before {
		t.Error("another version for what the hub itself has done")
	}
	l.record("n1", pod("n1", podA, 12), true) // uses nothing any more
	if l.nodes["n1"].version == before || l.nodes["n1"].claims[conf] != nil {
		t.Error("a claim that no Pod bears out must go, and the hub must hear of it")
	}
}

// TestALiarsContentGoesWithItsClaim: whoever tells the highest revision decides the content, but only while it stands for it.
func TestALiarsContentGoesWithItsClaim(t *testing.T) {
	l := held()
	l.record("n3", pod("n3", stream.ID{Resource: resourcePods, Key: stream.Key{Namespace: "shop", Name: "liar"}}, 1, conf), true)
	if write, err := l.judge("n3", used(conf, 1<<60)); !write || err != nil {
		t.Fatal(write, err)
	}
	l.record("n3", used(conf, 1<<60), true)
	if write, _ := l.judge("n2", used(conf, 8)); write {
		t.Fatal("an older content was written over a newer one")
	}
	before := l.nodes["n2"].version
	if gone := l.release("n3", conf); gone != nil {
		t.Errorf("%v went", gone)
	}
	want := []edge.NodeObject{
		{Resource: "configmaps", Namespace: "shop", Name: "conf"},
		{Resource: "pods", Namespace: "shop", Name: "b", Revision: 20},
	}
	if got := l.of("n2"); !reflect.DeepEqual(got, want) || l.nodes["n2"].version == before {
		t.Errorf("n2 is told %v, want %v", got, want)
	}
	if write, err := l.judge("n2", used(conf, 7)); !write || err != nil {
		t.Errorf("n2 can't put it right: %v, %v", write, err)
	}
}

// TestTheCloudWasRestored, and of two nodes whose Pods use one ConfigMap only the first has noticed.
func TestTheCloudWasRestored(t *testing.T) {
	l := held()
	offers := func(n edge.NodeName, o offer, code int, written bool) {
		t.Helper()
		write, err := l.judge(n, o)
		var why *exchange.Refusal
		if _ = errors.As(err, &why); write != written || (err == nil) != (code == 0) || why != nil && why.Code != code {
			t.Fatalf("%s offers it at %s: %v, %v", n, o.at, write, err)
		}
		if err == nil {
			l.record(n, o, write)
		}
	}
	offers("n1", later(used(conf, 4)), 0, true)
	offers("n2", used(conf, 8), 0, false) // late, and without harm
	offers("n1", used(conf, 9), 409, false)
	offers("n1", pod("n1", podA, 11, conf), 0, true) // nothing was said of it in the new history yet
	if l.objects[conf].at != later(used(conf, 4)).at || l.nodes["n2"].claims[conf].at != used(conf, 8).at {
		t.Errorf("it is here at %s, and n2's at %s", l.objects[conf].at, l.nodes["n2"].claims[conf].at)
	}
	before := l.nodes["n2"].version
	if gone := l.release("n1", conf); gone != nil || l.nodes["n2"].version == before {
		t.Errorf("%v went, and n2 is to be asked for what nobody else vouches for", gone)
	}
	offers("n2", later(used(conf, 4)), 0, true)
}

func TestSilentNodes(t *testing.T) {
	l := held()
	l.ofNode("n2", epoch.Add(maxSilence-time.Second))
	l.ofNode("n3", epoch.Add(maxSilence-time.Second))
	silent := func(now time.Time) map[edge.NodeName][]stream.ID {
		return l.expel(func(_ edge.NodeName, heard time.Time) bool { return now.Sub(heard) >= maxSilence })
	}
	if gone := silent(epoch.Add(maxSilence - 1)); len(gone) != 0 {
		t.Errorf("too early: %v", gone)
	}
	gone := silent(epoch.Add(maxSilence))
	if want := map[edge.NodeName][]stream.ID{"n1": {podA}}; !reflect.DeepEqual(gone, want) || l.nodes["n1"] != nil {
		t.Errorf("got %v, want %v", gone, want)
	}
	if l.objects[conf] == nil || l.objects[podB] == nil {
		t.Error("another node's are gone, too")
	}
	if l.bytes != 110 {
		t.Errorf("%d bytes are counted, want n2's 110", l.bytes)
	}
}
