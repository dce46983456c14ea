package cache

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

// noDisk keeps nothing.
type noDisk struct{}

func (noDisk) Blob(string) ([]byte, error)  { return nil, errors.New("nothing is kept") }
func (noDisk) PutBlob(string, []byte) error { return nil }

// follows makes the world's hub one that follows the cloud's history.
func (w *feedWorld) follows() {
	w.t.Helper()
	w.history = NewHistory(HistoryConfig{Link: w.cloudLink, Disk: noDisk{}})
}

// soon is the time within which all must agree with a cloud that is back.
const soon = time.Minute

func TestTheCloudIsRestoredFromABackup(t *testing.T) {
	names := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint(i))
		}
		return all
	}
	for name, test := range map[string]struct {
		before, after int // objects written before the backup was lost, and after it was restored
		heal          func(w *feedWorld)
	}{
		"and stays below our revision, and the link is cut":   {60, 5, (*feedWorld).cut},
		"and passes our revision, and the link is cut":        {60, 80, (*feedWorld).cut},
		"and stays below our revision, and the streams break": {60, 5, (*feedWorld).broken},
		"and passes our revision, and the streams break":      {60, 80, (*feedWorld).broken},
		"and passes our revision, while the hub is off":       {60, 80, (*feedWorld).restarted},
		"and stays below our revision, while the hub is off":  {60, 5, (*feedWorld).restarted},
		"and few of many objects are left":                    {200, 1, (*feedWorld).cut},
	} {
		t.Run(name, func(t *testing.T) {
			inFeedWorld(t, func(w *feedWorld) {
				w.follows()
				w.beginAlone()
				for _, n := range names(test.before) {
					w.cloud.put(n)
				}
				w.has(w.cloud)
				after := names(test.after)
				for i := range after {
					after[i] = "after" + after[i]
				}
				w.cloud.do(func() { w.cloud.dead = true })
				w.cloud.restore(103, append([]string{"a", "b", "c"}, after...)...)
				w.cloud.do(func() { w.cloud.revision = 103 + edge.Revision(test.after) })
				shift(w.cloud, 103)
				test.heal(w)
				w.pass(soon)
				w.has(w.cloud)
				if w.sink.History() != 1 {
					t.Errorf("history %s", w.sink.History())
				}
				w.cloud.put("later")
				w.has(w.cloud)
				if lists, _, _ := w.cloud.counts(); lists > 4 {
					t.Errorf("%d lists over the WAN", lists)
				}
			})
		})
	}
}

// shift renumbers a store's content, so that what was restored first has the revisions up to one.
func shift(s *feedStore, last edge.Revision) {
	s.do(func() {
		first := s.history[0].Object.Revision
		s.history, s.oldest = nil, 0
		objects := s.objects
		s.objects = map[stream.Key]stream.Object{}
		for k, o := range objects {
			o.Revision = o.Revision - first + last - 2
			s.objects[k] = o
		}
	})
}

func (w *feedWorld) cut() {
	w.links(link.Down, link.Down)
	w.cloud.do(func() { w.cloud.dead = false })
	w.links(link.Up, link.Down)
}

func (w *feedWorld) broken() { w.cloud.do(func() { w.cloud.dead = false }) }

func (w *feedWorld) restarted() {
	w.stop()
	w.cloud.do(func() { w.cloud.dead = false })
	w.follows()
	w.begin()
}

func TestTheSameHistoryCostsOneQuestion(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.follows()
		w.beginAlone()
		for range 10 {
			w.cloud.put("d")
			w.cut()
			w.cloud.put("e")
			w.has(w.cloud)
		}
		w.want(Cloud, 1)
		if w.cloud.looks != 10 {
			t.Errorf("%d questions after 10 cuts", w.cloud.looks)
		}
		w.pass(time.Hour)
		if w.cloud.looks != 10 {
			t.Errorf("%d questions while all was well", w.cloud.looks-10)
		}
	})
}

// The cloud has forgotten the revision that would tell: what is here may belong to another history.
func TestAHistoryThatCantBeProvenIsListed(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.follows()
		w.beginAlone()
		w.links(link.Down, link.Down)
		w.cloud.put("c")
		w.cloud.compact()
		w.cloud.do(func() { w.cloud.oldest = 104 })
		w.cloud.put("d")
		w.links(link.Up, link.Down)
		w.pass(expiredJitter + time.Second)
		w.want(Cloud, 2)
		w.has(w.cloud)
		if w.sink.History() != 0 {
			t.Errorf("history %s", w.sink.History())
		}
	})
}

// The cloud has forgotten the revision that would tell, but its list tells: within one history, no object goes back.
func TestAnObjectThatWentBackProvesAnotherHistory(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.alone = true
		w.follows()
		w.links(link.Up, link.Down)
		w.begin()
		w.cloud.put("a")
		w.cloud.put("b")
		w.has(w.cloud)
		w.links(link.Down, link.Down)
		w.cloud.restore(103, "a", "b", "c")
		for _, n := range []string{"c", "c", "b"} { // b is the witness, and has passed what was seen of it
			w.cloud.put(n)
		}
		w.cloud.compact()
		w.links(link.Up, link.Down)
		w.pass(soon)
		w.has(w.cloud)
		if w.sink.History() != 1 {
			t.Errorf("history %s", w.sink.History())
		}
		w.want(Cloud, 2)
	})
}

// A mirror restarted and was filled with less than a follower has: it must not wait there in silence.
func TestAFollowerAheadOfTheMirrorDoesNotWaitThere(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.follows()
		for _, n := range []string{"d", "e", "f"} {
			w.cloud.put(n)
		}
		had, err := w.cloud.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.sink.setLocked(had)
		w.mirror.copy(newStore(100, "a"))
		w.mirror.ticks, w.mirror.tells = false, true
		w.beginAs(lead.Follower, true)
		w.want(Coordinator, 1)
		w.cloud.put("g")
		w.pass(soon)
		w.has(w.cloud)
	})
}

// Somebody else in the pool has seen that the history has changed.
func TestThePoolKnowsOfALaterHistory(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.follows()
		w.declared = &live.Value[edge.History]{}
		w.mirror.copy(w.cloud)
		w.beginAs(lead.Follower, true)
		w.want(Coordinator, 0)
		w.has(w.cloud)
		w.cloud.restore(60, "x", "y")
		w.mirror.copy(w.cloud)
		w.mirror.do(func() { w.mirror.in = 1 })
		w.pass(time.Second)
		w.declared.Set(1)
		w.pass(soon)
		w.want(Coordinator, 0)
		w.has(w.cloud)
		if w.sink.History() != 1 || w.history.Number() != 1 {
			t.Errorf("the sink is in history %s, the hub in %s", w.sink.History(), w.history.Number())
		}
	})
}

// A mirror of an earlier history than ours is neither listed nor resumed.
func TestAMirrorOfAnEarlierHistoryIsOfNoUse(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.follows()
		w.history.Raise(2)
		w.declared = live.NewValue(edge.History(1))
		w.mirror.copy(newStore(500, "ghost"))
		w.mirror.do(func() { w.mirror.in = 1 })
		w.standing.Set(lead.Standing{Role: lead.Follower, Leader: "n2"})
		had, err := w.cloud.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		had.History = 2
		w.sink.setLocked(had)
		w.sink.history = 2
		w.covered.Set(true)
		w.links(link.Up, link.Up)
		w.begin()
		w.pass(soon)
		w.cloud.put("d")
		w.want(Cloud, 1)
		w.has(w.cloud)

		// Nor is it waited for longer than for one that might be of use, once the cloud has forgotten our revision.
		w.links(link.Down, link.Up)
		w.cloud.put("e")
		w.cloud.compact()
		w.pass(time.Minute)
		asked, _, _ := w.mirror.counts()
		w.links(link.Up, link.Up)
		w.pass(2 * time.Minute)
		w.want(Cloud, 2)
		w.has(w.cloud)
		if now, _, _ := w.mirror.counts(); now-asked > 10 {
			t.Errorf("%d lists of the mirror after the cut", now-asked)
		}
	})
}

func TestNothingIsResumedBeforeTheHistoryIsKnown(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.alone = true
		w.follows()
		had, err := w.cloud.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.sink.setLocked(had)
		w.cloud.lists = 0
		w.cloud.fault = errors.New("broken pipe")
		w.links(link.Up, link.Down)
		w.begin()
		w.pass(10 * time.Second)
		if _, watches, _ := w.cloud.counts(); watches != 0 {
			t.Error("resumed")
		}
		w.failing(true)
		w.cloud.do(func() { w.cloud.fault = nil })
		w.pass(5 * time.Second)
		w.want(Cloud, 0)
		w.failing(false)
		synctest.Wait()
	})
}

// aFloor is a history whose past was unknown once.
type aFloor struct{ unproven }

func (aFloor) State() *live.Value[HistoryState] {
	return live.NewValue(HistoryState{Floor: 5000, Sure: true})
}

// The cloud was restored, so that its revisions are below what they were when its past was unknown.
func TestAListBelowTheFloorIsListedOnce(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.histories = func() History { return aFloor{} }
		w.beginAlone()
		w.pass(time.Minute)
		w.want(Cloud, 1)
		w.has(w.cloud)
		w.cloud.put("d")
		w.has(w.cloud)
	})
}

// What was fresh is so no longer once its stream has ended and the API server refuses another one.
func TestFreshEndsWithTheStream(t *testing.T) {
	internal := apierrors.NewInternalError(errors.New("conversion webhook failed"))
	for name, test := range map[string]struct {
		err   error
		fresh bool
	}{
		"an internal error":      {internal, false},
		"too many requests":      {apierrors.NewTooManyRequests("later", 1), false},
		"a balancer's 503":       {apierrors.NewServiceUnavailable("no server"), true},
		"nobody":                 {errors.New("connection refused"), true},
		"an expired certificate": {apierrors.NewUnauthorized("who are you?"), true},
	} {
		t.Run(name, func(t *testing.T) {
			inFeedWorld(t, func(w *feedWorld) {
				w.beginAlone()
				w.fresh(true)
				w.cloud.do(func() {
					w.cloud.fault, w.cloud.ending = test.err, errors.New("connection reset")
					w.cloud.epoch++
				})
				w.pass(time.Minute)
				w.fresh(test.fresh)
				w.cloud.do(func() { w.cloud.fault = nil })
				w.pass(2 * backoffMax)
				w.fresh(true)
				w.has(w.cloud)
			})
		})
	}
}

// TestAStrangersQuestion: the cloud answers 401 to the witness's question, so no stream is tried. The content from before counts
// for the node's programs, as it does if a stream gets 401.
func TestAStrangersQuestion(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.follows()
		w.beginAlone()
		w.cloud.do(func() { w.cloud.fault = apierrors.NewUnauthorized("the certificate has expired") })
		w.links(link.Down, link.Down)
		w.links(link.Up, link.Down)
		w.pass(time.Minute)
		if s := w.feed.Status().Get(); !s.Stranger || s.Denied || s.Fresh {
			t.Errorf("Status() = %+v", s)
		}
		w.cloud.do(func() { w.cloud.fault = apierrors.NewInternalError(errors.New("conversion webhook failed")) })
		w.pass(2 * historyPauseMax)
		if s := w.feed.Status().Get(); s.Stranger || s.Refused == "" {
			t.Errorf("once another answer has come, Status() = %+v", s)
		}
		w.cloud.do(func() { w.cloud.fault = apierrors.NewUnauthorized("the certificate has expired") })
		w.pass(2 * historyPauseMax)
		w.cloud.do(func() { w.cloud.fault = nil })
		w.pass(2 * historyPauseMax)
		if s := w.feed.Status().Get(); s.Stranger || !s.Fresh {
			t.Errorf("once the node is known again, Status() = %+v", s)
		}
		w.has(w.cloud)
	})
}

// The witness's question is refused, so no stream is open and none is asked for.
func TestFreshEndsWithARefusedQuestion(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.follows()
		w.beginAlone()
		w.fresh(true)
		w.cloud.do(func() { w.cloud.fault = apierrors.NewInternalError(errors.New("conversion webhook failed")) })
		w.links(link.Down, link.Down)
		w.fresh(true)
		w.links(link.Up, link.Down)
		w.pass(time.Minute)
		w.fresh(false)
		if s := w.feed.Status().Get(); s.Refused == "" || s.Failing {
			t.Errorf("Status() = %+v", s)
		}
		w.cloud.do(func() { w.cloud.fault = nil })
		w.pass(2 * historyPauseMax)
		w.fresh(true)
		w.has(w.cloud)
	})
}
