package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		seen, held, current, object edge.Revision
		want                        Verdict
	}{
		"unchanged":                       {100, 120, 130, 100, Same},
		"the cloud's revision is earlier": {100, 120, 119, 100, Changed},
		"and before the witness":          {100, 0, 99, 0, Changed},
		"the object's is earlier":         {100, 120, 500, 90, Changed},
		"it has changed since":            {100, 120, 130, 125, Ask},
		"it is gone":                      {100, 120, 130, 0, Ask},
		"nothing happened":                {100, 120, 120, 100, Same},
		"it was empty, and is":            {0, 120, 130, 0, Same},
		"it was empty, and had been not":  {0, 120, 130, 110, Changed},
		"it was empty, and now is not":    {0, 120, 130, 125, Unknown},
	} {
		if got := Compare(test.seen, test.held, Answer{test.current, test.object}); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// prover tells of a witness that has changed, now and as of a revision.
type prover struct {
	object edge.Revision
	err    error
}

func (p prover) Look(_ context.Context, _ stream.Key, at edge.Revision) (current, object edge.Revision, err error) {
	if at == 0 {
		return 130, 125, nil
	}
	return 130, p.object, p.err
}

// What a witness that has changed since was at the revision at which it was seen.
func TestQueryWitness(t *testing.T) {
	ahead := apierrors.NewTimeoutError("Too large resource version", 1)
	ahead.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		then prover
		want Verdict
		err  error
	}{
		"as it was seen":     {prover{object: 100}, Same, nil},
		"not there":          {prover{}, Changed, nil},
		"another":            {prover{object: 90}, Changed, nil},
		"forgotten":          {prover{err: fmt.Errorf("%w: compacted", stream.ErrExpired)}, Unknown, nil},
		"ahead of the cloud": {prover{err: ahead}, Changed, nil},
		"no answer":          {prover{err: broken}, Ask, broken},
	} {
		got, _, err := queryWitness(t.Context(), Witness{From: test.then, Revision: 100}, 120)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %s, %v; want %s, %v", name, got, err, test.want, test.err)
		}
	}
}

var (
	podsOfAll   = schema.GroupResource{Resource: "pods"}
	eventsOfAll = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
)

// cloud is a cloud with an object x, which remembers all revisions of it.
type cloud struct {
	mu        sync.Mutex
	revision  edge.Revision
	writes    []edge.Revision // of x
	compacted edge.Revision
	fault     error
	looks     int
}

func (c *cloud) do(act func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	act()
}

func (c *cloud) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks
}

func (c *cloud) Look(_ context.Context, _ stream.Key, at edge.Revision) (current, object edge.Revision, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	switch {
	case c.fault != nil:
		return 0, 0, c.fault
	case at != 0 && at < c.compacted:
		return 0, 0, fmt.Errorf("%w: compacted", stream.ErrExpired)
	case at == 0:
		at = c.revision
	}
	for _, w := range c.writes {
		if w <= at {
			object = w
		}
	}
	return c.revision, object, nil
}

func (c *cloud) witness(h edge.History) Witness {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := Witness{From: c, Key: stream.Key{Name: "x"}, Held: c.revision, History: h}
	if n := len(c.writes); n > 0 {
		w.Revision = c.writes[n-1]
	}
	return w
}

type historyDisk map[string][]byte

func (d historyDisk) Blob(key string) ([]byte, error) {
	if v, ok := d[key]; ok {
		return v, nil
	}
	return nil, errors.New("a miss")
}
func (d historyDisk) PutBlob(key string, v []byte) error { d[key] = v; return nil }

type historyWorld struct {
	t     *testing.T
	cloud *cloud
	link  *live.Value[link.State]
	k     *HistoryKeeper
	h     *ResourceHistory // by Pods, as the node reads them
	disk  historyDisk
	stop  func()
}

// inHistoryWorld begins with a cloud at revision 100, in which x was written at 90, and the link up.
func inHistoryWorld(t *testing.T, test func(w *historyWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &historyWorld{
			t: t, cloud: &cloud{revision: 100, writes: []edge.Revision{90}}, link: live.NewValue(link.Up), disk: historyDisk{},
		}
		w.begin()
		test(w)
		w.stop()
	})
}

func (w *historyWorld) begin() {
	w.t.Helper()
	k := NewHistory(HistoryConfig{Link: w.link, Disk: w.disk})
	w.k, w.h = k, k.Of("", podsOfAll)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := k.Run(ctx); err != nil {
			w.t.Errorf("Run = %v", err)
		}
	}()
	w.stop = func() { cancel(); <-done }
	synctest.Wait()
}

func (w *historyWorld) flap() {
	w.link.Set(link.Down)
	synctest.Wait()
	if w.h.State().Get().Sure {
		w.t.Error("sure while the link is down")
	}
	w.link.Set(link.Up)
	synctest.Wait()
}

func (w *historyWorld) want(want HistoryState) {
	w.t.Helper()
	synctest.Wait()
	got := w.h.State().Get()
	if got.Alone = (time.Time{}); got != want {
		w.t.Errorf("State() = %+v, want %+v", got, want)
	}
}

func TestNothingToVerifyCostsNothing(t *testing.T) {
	inHistoryWorld(t, func(w *historyWorld) {
		w.want(HistoryState{Sure: true})
		w.flap()
		w.want(HistoryState{Sure: true})
		if w.cloud.asked() != 0 {
			t.Errorf("%d questions", w.cloud.asked())
		}
	})
}

func TestOneQuestionAfterEachLoss(t *testing.T) {
	inHistoryWorld(t, func(w *historyWorld) {
		w.h.Saw(w.cloud.witness(0))
		w.want(HistoryState{Sure: true})
		time.Sleep(time.Hour)
		if w.cloud.asked() != 0 {
			t.Errorf("%d questions while all was well", w.cloud.asked())
		}
		w.flap()
		w.want(HistoryState{Sure: true})
		if w.cloud.asked() != 1 {
			t.Errorf("%d questions after a loss", w.cloud.asked())
		}
		w.cloud.do(func() { w.cloud.revision, w.cloud.writes = 110, append(w.cloud.writes, 105) })
		for range 30 { // all streams break at once
			w.h.Shaken()
		}
		w.want(HistoryState{Sure: true})
		if n := w.cloud.asked(); n < 3 || n > 5 {
			t.Errorf("%d questions after two losses, the second with a witness that has changed", n)
		}
	})
}

func TestTheHistoryChanged(t *testing.T) {
	for name, set := range map[string]func(*cloud){
		"and is behind": func(c *cloud) { c.revision, c.writes = 80, []edge.Revision{70} },
		"and has passed the witness": func(c *cloud) {
			c.revision, c.writes = 400, []edge.Revision{70}
		},
		"and has passed it with other writes": func(c *cloud) {
			c.revision, c.writes = 400, []edge.Revision{70, 85, 91, 300}
		},
		"and has no such object": func(c *cloud) { c.revision, c.writes = 400, nil },
	} {
		t.Run(name, func(t *testing.T) {
			inHistoryWorld(t, func(w *historyWorld) {
				w.h.Saw(w.cloud.witness(0))
				w.link.Set(link.Down)
				synctest.Wait()
				w.cloud.do(func() { set(w.cloud) })
				w.link.Set(link.Up)
				w.want(HistoryState{Number: 1, Sure: true})
				w.h.Saw(w.cloud.witness(0)) // a witness of the old history proves nothing
				w.h.Saw(w.cloud.witness(1))
				w.flap()
				w.want(HistoryState{Number: 1, Sure: true})
				w.stop()
				w.begin()
				w.want(HistoryState{Number: 1, Sure: true})
			})
		})
	}
}

func TestWhatTheCloudForgotIsUnknown(t *testing.T) {
	inHistoryWorld(t, func(w *historyWorld) {
		w.h.Saw(w.cloud.witness(0))
		w.link.Set(link.Down)
		synctest.Wait()
		w.cloud.do(func() { w.cloud.revision, w.cloud.compacted, w.cloud.writes = 200, 150, []edge.Revision{90, 180} })
		w.link.Set(link.Up)
		w.want(HistoryState{Floor: 200, Sure: true})
		w.h.Prove(Witness{From: w.cloud, Key: stream.Key{Name: "x"}, Revision: 95, Held: 100}) // it cannot be resumed
		w.want(HistoryState{Floor: 200, Sure: true})
		w.h.Raise(1) // what was held is of another history anyway
		w.want(HistoryState{Number: 1, Sure: true})
	})
}

func TestWhatCameFromElsewhereIsProvenFirst(t *testing.T) {
	inHistoryWorld(t, func(w *historyWorld) {
		w.cloud.do(func() { w.cloud.fault = errors.New("no answer") })
		w.h.Prove(w.cloud.witness(0))
		synctest.Wait()
		w.want(HistoryState{Failing: true})
		w.cloud.do(func() { w.cloud.fault = nil })
		time.Sleep(historyPauseMax)
		w.want(HistoryState{Sure: true})
		n := w.cloud.asked()
		w.h.Prove(w.cloud.witness(0)) // another collection, as old
		w.want(HistoryState{Sure: true})
		if w.cloud.asked() != n {
			t.Error("asked for what is proven")
		}
		late := w.cloud.witness(0)
		late.Revision = 99 // the cloud has x at 90
		w.h.Prove(late)
		w.want(HistoryState{Number: 1, Sure: true})
	})
}

func TestAWitnessThatMayNotBeReadIsNone(t *testing.T) {
	inHistoryWorld(t, func(w *historyWorld) {
		forbidden := apierrors.NewForbidden(schema.GroupResource{}, "x", nil)
		refused := &cloud{revision: 100, writes: []edge.Revision{95}, fault: forbidden}
		w.h.Prove(refused.witness(0))
		w.h.Prove(w.cloud.witness(0))
		w.want(HistoryState{Sure: true})
	})
}

func TestALaterNumberIsTaken(t *testing.T) {
	inHistoryWorld(t, func(w *historyWorld) {
		w.h.Saw(w.cloud.witness(0))
		w.k.Raise(3)
		w.want(HistoryState{Number: 3, Sure: true})
		w.k.Raise(2)
		w.want(HistoryState{Number: 3, Sure: true})
		w.h.Prove(w.cloud.witness(5))
		w.want(HistoryState{Number: 5, Sure: true})
		w.flap()
		w.want(HistoryState{Number: 5, Sure: true})
		w.k.Raise(1 << 61) // a leader that lies
		w.want(HistoryState{Number: 5, Sure: true})
		if kept := string(w.disk[blobKey]); kept != "5" {
			t.Errorf("the disk keeps %s", kept)
		}
		w.k.Raise(1 << 20) // the last that is believed
		w.h.Raise(1<<20 + 1)
		w.want(HistoryState{Number: 1<<20 + 1, Sure: true}) // what a feed has seen itself has no bound
	})
}

// TestAHistoryThatChangesEverAgain: whoever names ever later histories, or has the hub see ever lower revisions, makes it read
// anew six times, and then four times a day. While the cloud is away for long, a word counts: it costs nothing there.
func TestAHistoryThatChangesEverAgain(t *testing.T) {
	inHistoryWorld(t, func(w *historyWorld) {
		const hours = 48
		for range hours * 12 {
			w.k.Raise(w.k.Number() + 1)
			time.Sleep(5 * time.Minute)
		}
		if entered := w.k.Number(); entered != changesAtOnce+hours/6-1 {
			t.Errorf("in two days the hub entered %s histories", entered)
		}
		at := w.k.Number()
		w.k.Raise(at + 1)
		if alone := w.k.Of("", eventsOfAll).State().Get().Alone; !alone.After(time.Now()) {
			t.Errorf("a resource that comes later is not alone, until %v", alone)
		}
		w.h.Raise(at + 1) // its own sight
		w.want(HistoryState{Number: at + 1, Sure: true})
		for _, away := range []time.Duration{trustAfter - time.Minute, trustAfter} {
			w.link.Set(link.Down)
			time.Sleep(away)
			synctest.Wait()
			if took := w.k.Raise(at + 2); took != (away == trustAfter) {
				t.Errorf("the cloud is away for %v: the word counts: %t", away, took)
			}
			w.link.Set(link.Up)
			synctest.Wait()
		}
		w.want(HistoryState{Number: at + 2, Sure: true})
		time.Sleep(changesEvery)
		w.k.Raise(at + 3)
		w.want(HistoryState{Number: at + 3, Sure: true})
	})
}

// TestARevisionThatFalls: the witness has not changed since the backup was made, and the node's Lease has.
func TestARevisionThatFalls(t *testing.T) {
	at := func(h edge.History, r edge.Revision) edge.Moment { return edge.Moment{History: h, Revision: r} }
	inHistoryWorld(t, func(w *historyWorld) {
		w.k.Raise(1)
		w.h.Saw(w.cloud.witness(1))
		for _, went := range [][2]edge.Moment{
			{{}, at(1, 7)}, {at(1, 95), at(1, 95)}, {at(1, 95), at(1, 100)}, // it did not fall
			{at(0, 95), at(1, 93)}, {at(0, 95), at(0, 93)}, // in a history that is over
		} {
			w.k.Went(t.Context(), went[0], went[1])
			w.want(HistoryState{Number: 1, Sure: true})
		}
		w.k.Went(t.Context(), at(1, 95), at(1, 93))
		w.want(HistoryState{Number: 2, Sure: true})
		w.k.Went(t.Context(), at(1, 95), at(1, 93)) // somebody else saw it as well
		w.want(HistoryState{Number: 2, Sure: true})
	})
}

func TestManyWitnesses(t *testing.T) {
	inHistoryWorld(t, func(w *historyWorld) {
		for i := range 3 * maxWitnesses {
			c := &cloud{revision: 100, writes: []edge.Revision{edge.Revision(i + 1)}}
			w.h.Saw(c.witness(0))
		}
		if n := len(w.h.witnesses); n > maxWitnesses {
			t.Errorf("%d witnesses", n)
		}
		if best, _, _ := w.h.newest(); best.Revision != 3*maxWitnesses {
			t.Errorf("the newest is of revision %s", best.Revision)
		}
	})
}

func TestWhatTheDiskHasMayBeNonsense(t *testing.T) {
	for text, want := range map[string]edge.History{"": 0, "x": 0, "1 2": 0, "-1": 0, "7": 7} {
		disk := historyDisk{blobKey: []byte(text)}
		if n := NewHistory(HistoryConfig{Disk: disk}).Number(); n != want {
			t.Errorf("%q: %s", text, n)
		}
	}
}

// A conversion webhook is down, so the API server answers 500 about one resource for a day.
func TestAResourceThatFailsStopsNoOther(t *testing.T) {
	inHistoryWorld(t, func(w *historyWorld) {
		broken := &cloud{revision: 100, writes: []edge.Revision{95}}
		other := w.k.Of("", eventsOfAll)
		defer other.Leave()
		synctest.Wait()
		w.h.Saw(w.cloud.witness(0))
		other.Saw(broken.witness(0))
		broken.do(func() { broken.fault = apierrors.NewInternalError(errors.New("conversion webhook failed")) })
		w.flap()
		w.want(HistoryState{Sure: true})
		for name, test := range map[string]struct {
			err     error
			failing bool
		}{
			"an API server's 500": {apierrors.NewInternalError(errors.New("conversion webhook failed")), false},
			"a balancer's 503":    {apierrors.NewServiceUnavailable("no server"), true},
			"nobody":              {errors.New("connection refused"), true},
		} {
			broken.do(func() { broken.fault = test.err })
			time.Sleep(2 * historyPauseMax)
			if s := other.State().Get(); s.Sure || s.Failing != test.failing || (s.Refused == "") != test.failing {
				t.Errorf("%s: %+v", name, s)
			}
		}
		if n := w.cloud.asked(); n != 1 {
			t.Errorf("%d questions about the one that is well", n)
		}
		broken.do(func() { broken.fault = nil })
		time.Sleep(2 * historyPauseMax)
		if s := other.State().Get(); s != (HistoryState{Sure: true}) {
			t.Errorf("once it is well: %+v", s)
		}
	})
}

// Events have an etcd of their own, whose revisions are lower.
func TestRevisionsOfTwoStoresAreNotCompared(t *testing.T) {
	inHistoryWorld(t, func(w *historyWorld) {
		events := &cloud{revision: 20, writes: []edge.Revision{15}}
		other := w.k.Of("", eventsOfAll)
		defer other.Leave()
		synctest.Wait()
		w.h.Saw(w.cloud.witness(0))
		other.Saw(events.witness(0))
		w.flap()
		w.want(HistoryState{Sure: true})
		if s := other.State().Get(); s != (HistoryState{Sure: true}) {
			t.Errorf("events: %+v", s)
		}
		w.link.Set(link.Down)
		synctest.Wait()
		w.cloud.do(func() { w.cloud.revision, w.cloud.compacted, w.cloud.writes = 200, 150, []edge.Revision{90, 180} })
		w.link.Set(link.Up)
		w.want(HistoryState{Floor: 200, Sure: true})
		if s := other.State().Get(); s != (HistoryState{Sure: true}) {
			t.Errorf("events, once the other's past is unknown: %+v", s)
		}
		events.do(func() { events.revision, events.writes = 12, []edge.Revision{11} }) // only this etcd is restored
		w.flap()
		w.want(HistoryState{Number: 1, Sure: true}) // all is read anew: that costs a list
		if s := other.State().Get(); s != (HistoryState{Number: 1, Sure: true}) {
			t.Errorf("events, restored: %+v", s)
		}
	})
}

func TestAnEmptyCollectionIsAWitness(t *testing.T) {
	for name, test := range map[string]struct {
		revision edge.Revision
		writes   []edge.Revision
		want     HistoryState
	}{
		"it is still empty":        {130, nil, HistoryState{Sure: true}},
		"the cloud is behind":      {99, nil, HistoryState{Number: 1, Sure: true}},
		"it was not empty then":    {130, []edge.Revision{70}, HistoryState{Number: 1, Sure: true}},
		"it has something by now":  {130, []edge.Revision{120}, HistoryState{Floor: 130, Sure: true}},
		"it got something at once": {130, []edge.Revision{101}, HistoryState{Floor: 130, Sure: true}},
	} {
		t.Run(name, func(t *testing.T) {
			inHistoryWorld(t, func(w *historyWorld) {
				w.cloud.do(func() { w.cloud.writes = nil })
				empty := w.cloud.witness(0)
				empty.Key = stream.Key{}
				w.h.Saw(empty)
				w.link.Set(link.Down)
				synctest.Wait()
				w.cloud.do(func() { w.cloud.revision, w.cloud.writes = test.revision, test.writes })
				w.link.Set(link.Up)
				w.want(test.want)
				if n := w.cloud.asked(); n != 1 {
					t.Errorf("%d questions", n)
				}
			})
		})
	}
}

func TestAHistoryGoesWithItsLastUser(t *testing.T) {
	inHistoryWorld(t, func(w *historyWorld) {
		again := w.k.Of("", podsOfAll)
		if again != w.h || len(w.k.of) != 1 {
			t.Errorf("%d histories of one resource", len(w.k.of))
		}
		again.Leave()
		w.cloud.do(func() { w.cloud.fault = errors.New("no answer") })
		w.h.Saw(w.cloud.witness(0))
		w.flap()
		w.want(HistoryState{Failing: true})
		w.h.Leave()
		time.Sleep(2 * historyPauseMax)
		n := w.cloud.asked()
		time.Sleep(time.Hour)
		if len(w.k.of) != 0 || w.cloud.asked() != n {
			t.Errorf("%d histories without users, and %d questions", len(w.k.of), w.cloud.asked()-n)
		}
	})
}
