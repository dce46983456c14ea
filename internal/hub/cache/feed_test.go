package cache

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"yurtcoordinator/internal/doubt"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

func TestAloneAHubListsAtOnceAndKeepsWhatItHas(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.alone = true
		w.begin()
		w.want(None, 0)
		w.links(link.Up, link.Down)
		w.want(Cloud, 1)
		w.has(w.cloud)
		w.links(link.Down, link.Down)
		w.want(None, 1)
		w.cloud.put("d")
		w.links(link.Up, link.Down)
		w.want(Cloud, 1)
		w.has(w.cloud)
	})
}

func TestAnOrderlyEndCostsNothing(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.alone = true
		w.begin()
		w.links(link.Up, link.Down)
		for range 20 {
			w.pass(5 * time.Minute)
			w.cloud.put("d")
			w.cloud.end(errEOF)
			w.cloud.put("e")
			w.want(Cloud, 1)
			w.has(w.cloud)
		}
	})
}

// TestAPoolListsOnce is the purpose: leader, follower, new leader, hub restarted: one list over the WAN.
func TestAPoolListsOnce(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.begin()
		w.standing.Set(lead.Standing{Role: lead.Leader, Leader: "n1"})
		w.links(link.Up, link.Up)
		w.want(Cloud, 1) // the mirror had nothing
		w.mirror.copy(w.cloud)
		w.cloud.put("d")
		w.has(w.cloud)
		w.mirror.relay(w.cloud)
		// Another one leads.
		w.is(lead.Follower, "n2")
		w.cover(true)
		w.want(Coordinator, 1)
		w.cloud.put("e")
		w.mirror.relay(w.cloud)
		w.has(w.cloud)
		// The leader dies; before it pushed its last.
		w.cloud.put("f")
		w.is(lead.Leader, "n1")
		w.want(Cloud, 1)
		w.has(w.cloud)
		w.mirror.relay(w.cloud)
		// This hub is restarted, and fills from the pool.
		w.stop()
		w.sink.position = 0
		w.is(lead.Pending, "")
		w.links(link.Down, link.Down)
		w.begin()
		w.links(link.Up, link.Up)
		w.is(lead.Follower, "n2")
		w.has(w.cloud)
		w.pass(2 * time.Second)
		w.cover(true)
		w.want(Coordinator, 1)
		if lists, _, _ := w.mirror.counts(); lists != 2 {
			t.Errorf("%d lists of the mirror, want the one in vain and the one after the restart", lists)
		}
	})
}

func TestAFollowerWaitsForTheLeaderBeforeItLists(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.beginAs(lead.Follower, false)
		w.pass(14 * time.Second)
		if lists, _, _ := w.cloud.counts(); lists != 0 {
			t.Errorf("%d lists over the WAN while the leader may still cover it", lists)
		}
		w.mirror.copy(w.cloud)
		w.cover(true)
		w.want(Coordinator, 0)
		w.has(w.cloud)
	})
	inFeedWorld(t, func(w *feedWorld) {
		w.beginAs(lead.Follower, false)
		w.pass(20*time.Second + 100*time.Millisecond)
		w.want(Cloud, 1)
		w.has(w.cloud)
	})
}

// A coordinator that comes and goes must not make a hub wait forever.
func TestAFlappingCoordinatorDelaysNoMoreThanOneThatIsThere(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.beginAs(lead.Follower, false)
		for i := range 45 {
			w.pass(500 * time.Millisecond)
			w.mirrorLink.Set([]link.State{link.Down, link.Up}[i%2])
		}
		w.has(w.cloud)
	})
}

func TestAMirrorThatHangsIsGivenUpSoon(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.mirror.dead = true
		w.beginAs(lead.Leader, false)
		w.pass(mirrorListTimeout + time.Second)
		w.want(Cloud, 1)
		w.has(w.cloud)
	})
}

// A WAN list takes longer than a mirror is left alone. It must not be given up for another try of the mirror.
func TestASlowListIsNotGivenUpForAMirrorThatHasNothing(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.cloud.slow = 90 * time.Second
		w.beginAs(lead.Leader, false)
		w.pass(30 * time.Second)
		w.is(lead.Follower, "n2")
		w.pass(61 * time.Second)
		w.has(w.cloud)
		if lists, _, _ := w.cloud.counts(); lists != 1 {
			t.Errorf("%d lists, want one that was let end", lists)
		}
	})
	inFeedWorld(t, func(w *feedWorld) { // but for one that has everything
		w.cloud.slow = 90 * time.Second
		w.links(link.Up, link.Down)
		w.begin()
		w.pass(30 * time.Second)
		w.mirror.copy(w.cloud)
		w.standing.Set(lead.Standing{Role: lead.Follower, Leader: "n2"})
		w.links(link.Up, link.Up)
		w.cover(true)
		w.want(Coordinator, 1)
		w.has(w.cloud)
	})
}

func TestNobodyCoversItAnyLonger(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.mirror.copy(w.cloud)
		w.beginAs(lead.Follower, true)
		w.want(Coordinator, 0)
		// For a moment only.
		w.cover(false)
		w.pass(2 * time.Second)
		w.cover(true)
		w.want(Coordinator, 0)
		if _, watches, _ := w.cloud.counts(); watches != 0 {
			t.Error("went to the cloud for a moment's silence of the leader")
		}
		// For good.
		w.cover(false)
		w.pass(uncoverWait + uncoverJitter)
		w.want(Cloud, 0)
		w.cloud.put("d")
		w.has(w.cloud)
		// The mirror is behind now; what is missing there comes in order.
		w.cover(true)
		w.want(Coordinator, 0)
		w.mirror.relay(w.cloud)
		w.cloud.put("e")
		w.mirror.relay(w.cloud)
		w.has(w.cloud)
	})
}

// A coordinator came back empty and was filled at a later revision than this hub stands at.
func TestTheMirrorBeganLater(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.mirror.copy(w.cloud)
		w.beginAs(lead.Follower, true)
		w.want(Coordinator, 0)
		w.cloud.put("d")
		w.cloud.put("e")
		w.mirror.copy(w.cloud)
		w.pass(time.Second)
		w.want(Cloud, 0)
		w.has(w.cloud)
		w.pass(2 * mirrorPause)
		w.want(Coordinator, 0)
		if _, replaced := w.sink.counts(); replaced != 1 {
			t.Errorf("%d lists applied, want the first only: the rest was to be resumed", replaced)
		}
		// The same while the cloud can't be reached: the mirror's snapshot, which is newer.
		w.links(link.Down, link.Up)
		w.cloud.put("f")
		w.mirror.copy(w.cloud)
		w.pass(time.Second)
		w.want(Coordinator, 0)
		w.has(w.mirror)
	})
}

// A mirror that was filled a little after our revision can be resumed once we have reached its revision. An earlier attempt would
// cancel the watch that brings us there, which in a quiet cluster takes a minute.
func TestAMirrorThatBeganLaterIsLeftAloneWhileWeStandStill(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.mirror.copy(w.cloud)
		w.beginAs(lead.Follower, true)
		w.cloud.do(func() { w.cloud.revision += 5 }) // another resource's
		w.mirror.copy(w.cloud)
		w.pass(time.Second)
		w.want(Cloud, 0)
		_, before, _ := w.cloud.counts()
		w.pass(50 * time.Second)
		w.want(Cloud, 0)
		if _, watches, _ := w.cloud.counts(); watches != before {
			t.Errorf("%d more watches at the cloud while nothing happened", watches-before)
		}
		w.pass(time.Minute) // the cloud's bookmark comes
		w.want(Coordinator, 0)
		w.has(w.cloud)
	})
}

func TestTheCloudForgot(t *testing.T) {
	t.Run("and the pool goes on", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.mirror.copy(w.cloud)
			w.sink.position, w.sink.objects = 101, map[stream.Key]stream.Object{}
			w.cloud.compact()
			w.beginAs(lead.Follower, false)
			w.pass(10 * time.Second)
			w.want(Cloud, 0)
			w.has(w.cloud)
		})
	})
	t.Run("and the pool is older", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.mirror.copy(w.cloud)
			for range 3 {
				w.cloud.put("d")
			}
			w.sink.position = 104
			w.cloud.compact()
			w.beginAs(lead.Follower, false)
			w.pass(uncoverWait + doubt.Shown().For + coverWait - time.Second)
			if lists, _, _ := w.cloud.counts(); lists != 0 {
				t.Errorf("%d lists over the WAN before the leader has had the time to make one", lists)
			}
			w.pass(uncoverJitter + time.Second + coverJitter + mirrorPause)
			w.want(Cloud, 1)
			w.has(w.cloud)
		})
	})
	t.Run("a leader", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.mirror.copy(w.cloud)
			w.cloud.put("d")
			w.sink.position = 102
			w.cloud.compact()
			w.beginAs(lead.Leader, false)
			w.pass(2 * time.Second)
			w.want(Cloud, 1) // the mirror's is newer than ours, and forgotten too
			w.has(w.cloud)
		})
	})
	t.Run("alone", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.alone = true
			w.sink.position = 101
			w.cloud.compact()
			w.links(link.Up, link.Down)
			w.begin()
			w.pass(expiredJitter + time.Second)
			w.want(Cloud, 1)
			w.has(w.cloud)
		})
	})
}

// A cloud that forgets all the time must not be listed all the time.
func TestACloudThatForgetsAtOnceIsListedEverLess(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.beginAlone()
		w.cloud.end(stream.ErrExpired)
		for range 600 {
			w.pass(time.Second)
			w.cloud.put("d")
			w.cloud.compact()
			w.cloud.end(stream.ErrExpired)
		}
		if lists, _, _ := w.cloud.counts(); lists > 60 {
			t.Errorf("%d lists over the WAN in 10 min", lists)
		}
	})
}

func TestAListThatRemovesMuchIsNotBelievedAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		more     int
		precious bool
		away     time.Duration // of the link to the cloud, meanwhile
		doubted  bool
	}{
		"many":                           {20, false, 0, true},
		"many, after a cut":              {20, false, time.Hour, true},
		"few":                            {0, false, 0, false},
		"few precious ones":              {0, true, 0, true},
		"few precious ones, after a cut": {0, true, preciousFor, false},
	} {
		t.Run(name, func(t *testing.T) {
			inFeedWorld(t, func(w *feedWorld) {
				w.alone, w.precious = true, test.precious
				for i := range test.more {
					w.cloud.put(fmt.Sprint(i))
				}
				w.links(link.Up, link.Down)
				w.begin()
				w.want(Cloud, 1)
				w.pass(10 * time.Second)
				left, _ := w.sink.counts()
				w.cloud.do(func() { w.cloud.objects = map[stream.Key]stream.Object{}; w.cloud.revision++ })
				w.cloud.compact()
				w.cloud.end(stream.ErrExpired)
				if test.away > 0 {
					w.links(link.Down, link.Down)
					w.pass(test.away)
					w.links(link.Up, link.Down)
				}
				w.pass(28 * time.Second)
				if !test.doubted {
					left = 0
				}
				if n, _ := w.sink.counts(); n != left {
					t.Errorf("%d objects, want %d", n, left)
				}
				if r := w.feed.Status().Get().Refused; strings.Contains(r, "not believed") != test.doubted {
					t.Errorf("Status().Refused = %q", r)
				}
				w.pass(40 * time.Second)
				w.has(w.cloud)
			})
		})
	}
}

// A hub that starts with what its disk has of a node's Pods believes a cloud that has them no more.
func TestWhatIsFromTheDiskIsNotPrecious(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.alone, w.precious = true, true
		w.sink.setLocked(stream.Snapshot{Revision: 50, Objects: []stream.Object{{Key: stream.Key{Name: "old"}, Revision: 50}}})
		w.cloud.compact()
		w.links(link.Up, link.Down)
		w.begin()
		w.pass(doubt.Shown().For - 10*time.Second)
		w.has(w.cloud)
	})
}

func TestTheCloudsHistoryWasSetBack(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.beginAlone()
		w.has(w.cloud)
		w.cloud.do(func() {
			w.cloud.revision, w.cloud.oldest, w.cloud.history, w.cloud.ticks = 50, 50, nil, false
			clear(w.cloud.objects)
		})
		w.cloud.put("z")
		w.cloud.end(stream.ErrExpired)
		w.pass(20 * time.Second)
		if w.sink.History() != 0 || w.sink.Position() != 103 {
			t.Error("set back by one list")
		}
		w.pass(40 * time.Second)
		if _, replaced := w.sink.counts(); replaced != 2 || w.sink.History() != 1 {
			t.Errorf("%d lists applied, history %s: want it set back once", replaced, w.sink.History())
		}
		w.has(w.cloud)
		w.cloud.put("y")
		w.has(w.cloud)
	})
}

var errSilent = errors.New("no event and no bookmark for 5m0s") // as stream/remote ends a watch

// A cloud that was set back waits in silence until its history has reached ours.
func TestACloudThatWasSetBackSaysNothing(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.follows()
		w.beginAlone()
		w.has(w.cloud)
		w.cloud.do(func() {
			w.cloud.revision, w.cloud.oldest, w.cloud.history, w.cloud.ticks = 50, 50, nil, false
			clear(w.cloud.objects)
		})
		w.cloud.put("z")
		w.pass(5 * time.Minute)
		w.cloud.end(errSilent)
		w.pass(time.Minute)
		w.has(w.cloud)
		if w.sink.History() != 1 {
			t.Errorf("history %s", w.sink.History())
		}
	})
}

// A server without bookmarks of which nothing changes says nothing either. Its history is proven, and nothing is listed.
func TestAServerThatSaysNothingIsNotListed(t *testing.T) {
	for _, end := range []error{errSilent, errEOF} {
		inFeedWorld(t, func(w *feedWorld) {
			w.follows()
			w.beginAlone()
			w.has(w.cloud)
			w.cloud.do(func() { w.cloud.ticks = false })
			for range 6 {
				w.pass(5 * time.Minute)
				w.cloud.end(end)
			}
			w.pass(time.Minute)
			if lists, _, _ := w.cloud.counts(); lists != 1 {
				t.Errorf("%v: %d lists, want one", end, lists)
			}
			w.cloud.put("y")
			w.has(w.cloud)
		})
	}
}

// Changes that the sink always refuses would be resumed for ever.
func TestAStreamThatNeverFitsIsBegunAnew(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.beginAlone()
		w.sink.mu.Lock()
		w.sink.unfit = pastPatience
		w.sink.mu.Unlock()
		w.cloud.put("d")
		w.pass(expiredJitter + 2*time.Second)
		w.want(Cloud, 2)
		w.has(w.cloud)
	})
}

func TestDeniedIsTriedSlowlyAndSaid(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.alone = true
		w.cloud.fault = apierrors.NewForbidden(slices1.GroupResource(), "", errors.New("no role"))
		w.links(link.Up, link.Down)
		w.begin()
		w.pass(5 * time.Minute)
		if lists, _, _ := w.cloud.counts(); lists < 8 || lists > 19 {
			t.Errorf("%d tries in 5 min, want three soon, then one in 20 to 30 s", lists)
		}
		if s := w.feed.Status().Get(); !strings.Contains(s.Refused, "no role") || !s.Denied || s.Live {
			t.Errorf("Status() = %+v", s)
		}
		w.cloud.do(func() { w.cloud.fault = nil })
		w.pass(31 * time.Second)
		w.has(w.cloud)
		if s := w.feed.Status().Get(); s.Refused != "" || s.Denied || !s.Live {
			t.Errorf("Status() = %+v", s)
		}
	})
}

// A time of 403s is over: a hub for which a pool or a program waits asks again soon.
func TestWhoIsWaitedForAsksAgainSoonAfterADenial(t *testing.T) {
	for name, wait := range map[string]func(*feedWorld){
		"a leader": func(w *feedWorld) { w.is(lead.Leader, "n1") },
		"a program": func(w *feedWorld) {
			w.feed.Refresh()
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFeedWorld(t, func(w *feedWorld) {
				w.restored(101, "a")
				w.cloud.fault = apierrors.NewForbidden(slices1.GroupResource(), "", errors.New("no role"))
				w.links(link.Up, link.Down)
				w.begin()
				w.pass(5 * time.Minute)
				lists, watches, _ := w.cloud.counts()
				before := lists + watches
				wait(w)
				w.pass(5 * time.Minute)
				lists, watches, _ = w.cloud.counts()
				if n := lists + watches; n > 5*60/4+30 {
					t.Errorf("%d tries in 10 min", n)
				}
				if n := lists + watches - before; n < 5*60/5-1 {
					t.Errorf("%d tries in the last 5 min, want one each 5 s", n)
				}
				w.cloud.do(func() { w.cloud.fault = nil })
				w.pass(promptPause + promptPause/4)
				w.has(w.cloud)
			})
		})
	}
}

// An expired certificate says nothing about permissions: what the node knows stays.
func TestWhoIsNotKnownIsNotDenied(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.alone = true
		w.cloud.fault = apierrors.NewUnauthorized("the certificate has expired")
		w.links(link.Up, link.Down)
		w.begin()
		w.pass(5 * time.Minute)
		if lists, _, _ := w.cloud.counts(); lists < 8 || lists > 19 {
			t.Errorf("%d tries in 5 min, want three soon, then one in 20 to 30 s", lists)
		}
		if s := w.feed.Status().Get(); !strings.Contains(s.Refused, "expired") || s.Denied || s.Live || !s.Stranger {
			t.Errorf("Status() = %+v", s)
		}
		w.cloud.do(func() { w.cloud.fault = nil })
		w.pass(31 * time.Second)
		if s := w.feed.Status().Get(); s.Stranger || s.Refused != "" || !s.Live {
			t.Errorf("Status() = %+v with a new certificate", s)
		}
	})
}

func TestAMirrorThatRefusesIsNoReasonToStandStill(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.mirror.copy(w.cloud)
		w.beginAs(lead.Follower, true)
		w.want(Coordinator, 0)
		broken := errors.New("broken pipe")
		w.mirror.do(func() { w.mirror.fault = broken })
		w.mirror.end(broken)
		w.pass(2 * time.Second)
		w.want(Cloud, 0)
		w.cloud.put("d")
		w.has(w.cloud)
		w.mirror.relay(w.cloud)
		w.mirror.do(func() { w.mirror.fault = nil })
		w.pass(2 * mirrorPause)
		w.want(Coordinator, 0)
	})
}

func TestListsOverTheWANOneAtATime(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.alone = true
		w.lists = make(chan struct{}, 1)
		w.cloud.slow = 10 * time.Second
		w.links(link.Up, link.Down)
		var stops []func()
		for range 3 {
			w.sink = &sink{t: t, objects: map[stream.Key]stream.Object{}}
			w.begin()
			stops = append(stops, w.stop)
		}
		w.pass(31 * time.Second)
		if lists, _, together := w.cloud.counts(); together != 1 || lists != 3 {
			t.Errorf("%d lists, %d of them at a time, want 3, one at a time", lists, together)
		}
		w.has(w.cloud)
		for _, stop := range stops {
			stop()
		}
		w.stop = nil
		if len(w.lists) != 0 {
			t.Error("a turn was not given back")
		}
	})
}

func TestRunEndsWithAllThatItStarted(t *testing.T) {
	for name, prepare := range map[string]func(*feedWorld){
		"listing":   func(w *feedWorld) { w.cloud.dead = true },
		"refused":   func(w *feedWorld) { w.cloud.fault = errors.New("no") },
		"following": func(*feedWorld) {},
	} {
		t.Run(name, func(t *testing.T) {
			inFeedWorld(t, func(w *feedWorld) {
				w.alone = true
				w.lists = make(chan struct{}, 1)
				prepare(w)
				w.links(link.Up, link.Down)
				w.begin()
				w.pass(time.Second)
				began := time.Now()
				w.stop()
				if time.Since(began) > 0 || len(w.lists) != 0 || (w.feed.Status().Get() != FeedStatus{}) {
					t.Errorf("after Run: %v, %d turns held, %+v", time.Since(began), len(w.lists), w.feed.Status().Get())
				}
			})
		})
	}
}

func TestMetrics(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.mirror.copy(w.cloud)
		w.beginAs(lead.Follower, true)
		w.is(lead.Leader, "n1")
		const want = `
# HELP yurthub_replica_lists_total Lists begun to fill a replica, by where; those at the cloud cross the WAN.
# TYPE yurthub_replica_lists_total counter
yurthub_replica_lists_total{resource="endpointslices.discovery.k8s.io",source="cloud"} 0
yurthub_replica_lists_total{resource="endpointslices.discovery.k8s.io",source="coordinator"} 1
# HELP yurthub_replica_source 1 for the source that feeds a replica.
# TYPE yurthub_replica_source gauge
yurthub_replica_source{resource="endpointslices.discovery.k8s.io",source="cloud"} 1
yurthub_replica_source{resource="endpointslices.discovery.k8s.io",source="coordinator"} 0
yurthub_replica_source{resource="endpointslices.discovery.k8s.io",source="none"} 0
# HELP yurthub_replica_source_switches_total Changes of a replica's source.
# TYPE yurthub_replica_source_switches_total counter
yurthub_replica_source_switches_total{resource="endpointslices.discovery.k8s.io"} 1
`
		if err := testutil.GatherAndCompare(w.registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}

// TestAnyWeather feeds a sink in random weather. It checks the sink's rules (in sink.Apply and Replace), that few lists cross the
// WAN, and that the sink ends with the cloud's content.
func TestAnyWeather(t *testing.T) {
	for seed := range uint64(100) {
		inFeedWorld(t, func(w *feedWorld) {
			weather(w, seed)
		})
	}
}
