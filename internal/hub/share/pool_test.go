package share

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/stream"
)

func TestAnEmptyMirrorGetsEverythingThenChanges(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.wantPosted("full 2")
		w.pass(time.Second)
		w.declared(`{"things.example.com":"110"}`)
		w.things.put("c")
		w.wantPosted("1 changes")
		w.things.remove("a")
		w.wantPosted("1 changes")
		w.same(w.things)
		w.pass(2 * time.Second)
		w.declared(`{"things.example.com":"112"}`)
	})
}

// While a replica has nothing of the cloud's, the coordinator is asked by what declares alone.
func TestAReplicaWithNothingToPushAsksNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		nothing, filled := newSource(t, others), newSource(t, things)
		filled.renew(filled.History().Filled(), 50, "a")
		w.set.become(nothing, filled)
		w.begin()
		w.coordinator.set(func() { w.coordinator.requests = 0 })
		w.pass(time.Minute)
		w.coordinator.set(func() {
			if n, most := w.coordinator.requests, int(time.Minute/declareEvery); n > most {
				t.Errorf("%d requests in a minute, of at most %d", n, most)
			}
		})
		nothing.fill("a")
		w.pass(emptyPause)
		w.wantPosted("full 1")
	})
}

// A new leader goes on where the mirror stands.
func TestAMirrorThatHasSomethingGetsWhatFollows(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.stop()
		w.posted()
		w.things.put("c", "d")
		w.begin()
		w.wantPosted("2 changes")
		w.same(w.things)
	})
}

func TestTheReplicaHasForgottenWhereTheMirrorStands(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.posted()
		w.things.fill("a", "z")
		w.wantPosted("full 2")
		w.same(w.things)
		w.pass(declareEvery + declareGap)
		w.declared(`{"things.example.com":"120"}`)
	})
}

func TestTheCoordinatorCameBackEmpty(t *testing.T) {
	empty := func(w *world) {
		w.coordinator.set(func() {
			w.coordinator.instance++
			clear(w.coordinator.stores)
		})
	}
	t.Run("while nothing changes", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.begin()
			w.posted()
			empty(w)
			w.pass(declareEvery + lookEvery)
			w.wantPosted("full 2")
			w.same(w.things)
		})
	})
	t.Run("while a push is under way", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.begin()
			w.posted()
			w.coordinator.set(func() {
				w.coordinator.before = onPosts(func(r *http.Request) error {
					empty(w)
					w.coordinator.set(func() { w.coordinator.before = nil })
					return nil
				})
			})
			w.things.put("c")
			w.wantPosted("full 3")
			w.same(w.things)
		})
	})
	t.Run("and was filled by another leader meanwhile", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.begin()
			w.posted()
			w.coordinator.set(func() {
				w.coordinator.instance++
				w.coordinator.stores["/mirror/v1/example.com/v1/things"].applied = 105
			})
			w.pass(declareEvery + lookEvery)
			w.same(w.things)
		})
	})
	t.Run("and is not declared until it is full again", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.begin()
			w.pass(time.Second)
			w.coordinator.set(func() { w.coordinator.before = onPosts(hang) })
			empty(w)
			w.pass(declareEvery + lookEvery)
			w.declared(`{}`)
		})
	})
}

func TestBehindAnotherLeadersPush(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.posted()
		// Somebody else brought two changes which the replica learns of later.
		w.coordinator.set(func() { w.coordinator.stores["/mirror/v1/example.com/v1/things"].applied = 112 })
		w.things.put("c") // 409
		w.wantPosted()
		w.things.put("d")
		w.wantPosted()
		w.things.put("e")
		w.wantPosted("1 changes")
		w.pass(3 * time.Second)
		w.declared(`{"things.example.com":"113"}`)
	})
}

// A mirror that stays ahead is one whose cloud was set back; nobody may take it for complete.
func TestAMirrorThatStaysAheadIsNotDeclared(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.stop()
		w.coordinator.set(func() { w.coordinator.stores["/mirror/v1/example.com/v1/things"].applied = 900 })
		w.begin()
		w.pass(time.Second)
		w.declared(`{"things.example.com":"900"}`)
		w.pass(stillAcked + declareEvery)
		w.declared(`{}`)
	})
}

func TestALostAnswerIsAskedFor(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.posted()
		w.coordinator.set(func() {
			w.coordinator.after = onPosts(func(*http.Request) error {
				w.coordinator.set(func() { w.coordinator.after = nil })
				return errors.New("connection reset")
			})
		})
		w.things.put("c")
		w.pass(time.Second)
		w.wantPosted("1 changes")
		w.things.put("d")
		w.wantPosted("1 changes")
		w.same(w.things)
	})
}

func TestALiarsAcknowledgementIsAskedFor(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.pass(time.Second)
		w.posted()
		w.coordinator.set(func() { w.coordinator.lie = 900 })
		w.things.put("c")
		w.pass(time.Second)
		w.coordinator.set(func() { w.coordinator.lie = 0 })
		w.wantPosted("1 changes")
		w.things.put("d")
		w.pass(time.Second)
		w.wantPosted("1 changes")
		w.same(w.things)
		w.pass(declareEvery)
		w.declared(`{"things.example.com":"112"}`)
	})
}

// A mirror that acknowledges before it has been sent anything gets no further.
func TestAnAcknowledgementOfNothing(t *testing.T) {
	f := &following{ctx: t.Context(), out: make(chan []stream.Event, 1), told: make(chan edge.Taken, 1)}
	f.told <- edge.Taken{Applied: "111"}
	c := &carrier{duty: &duty{term: edge.Term{Valid: func() bool { return true }}}}
	for range 2 { // the first is still on its way
		if err := c.post(f, nil, 110, time.Time{}); !errors.Is(err, errMoved) {
			t.Errorf("took it: %v", err)
		}
	}
}

func TestThePushBreaksOff(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.things.put("c")
		w.posted()
		w.coordinator.cut()
		w.pass(time.Second)
		w.things.put("d")
		w.wantPosted("1 changes")
		w.same(w.things)
		// The coordinator is gone, and comes back where it stood.
		w.coordinator.set(func() {
			w.coordinator.before = func(*http.Request) error { return errors.New("connection refused") }
		})
		w.coordinator.cut()
		w.things.put("e")
		w.pass(time.Minute)
		w.coordinator.set(func() { w.coordinator.before = nil })
		w.things.put("f")
		w.pass(backoffMax)
		w.wantPosted("2 changes")
		w.same(w.things)
	})
}

// All batches of a round are one request.
func TestOneRequestForManyBatches(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.things.put("c")
		synctest.Wait()
		asked := 0
		w.coordinator.set(func() { w.coordinator.before = onPosts(func(*http.Request) error { asked++; return nil }) })
		w.coordinator.set(func() { w.coordinator.requests = 0 })
		for range 100 {
			w.things.put("d")
			synctest.Wait()
		}
		if asked != 100 || w.coordinator.requests > 1 { // one more may be the declaration's question
			t.Errorf("%d batches in %d more requests, want 100 in none", asked, w.coordinator.requests)
		}
		w.same(w.things)
	})
}

// A mirror waits 30 s for a pusher that says nothing.
func TestSilenceIsNotLong(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.pass(time.Second)
		heard := 0
		w.coordinator.set(func() { w.coordinator.before = onPosts(func(*http.Request) error { heard++; return nil }) })
		w.pass(time.Minute)
		if heard < 5 || heard > 7 {
			t.Errorf("heard %d times in a minute, want once in %s", heard, idlePush)
		}
		w.same(w.things)
	})
}

// The process was stopped for a minute: its term is over before it does anything else.
func TestStoppedForAMinute(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.pass(time.Second)
		w.posted()
		renewed := w.lease().ResourceVersion
		w.valid.Store(false)
		w.coordinator.set(func() { w.coordinator.requests = 0 })
		w.things.put("c")
		w.pass(time.Minute)
		w.wantPosted()
		if w.coordinator.requests != 0 || w.lease().ResourceVersion != renewed {
			t.Errorf("%d requests, Lease at %s, was at %s: acted without a term", w.coordinator.requests,
				w.lease().ResourceVersion, renewed)
		}
	})
}

func TestABodyBreaksOffWithItsTerm(t *testing.T) {
	inWorld(t, func(w *world) {
		big := strings.Repeat("x", buffered)
		asked := 0
		valid := func() bool { asked++; return asked < 3 }
		b := newBody(t.Context(), edge.Term{Valid: valid}, w.things.Type(), []stream.Event{
			{Type: stream.Added, Object: stream.Object{Revision: 1, Raw: []byte(`{"a":"` + big + `"}`)}},
			{Type: stream.Added, Object: stream.Object{Revision: 2, Raw: []byte(`{"a":"` + big + `"}`)}},
		}, nil)
		read, err := 0, error(nil)
		for err == nil {
			var n int
			n, err = b.Read(make([]byte, buffered/2))
			read += n
		}
		if !errors.Is(err, errDeposed) || read != buffered {
			t.Errorf("read %d bytes, then %v; want two reads, then the end of the term", read, err)
		}
	})
}

func TestAnotherLeads(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.posted()
		w.coordinator.set(func() { w.coordinator.term = "8"; w.coordinator.requests = 0 })
		w.things.put("c")
		w.pass(20 * time.Second)
		w.wantPosted()
		if n := w.coordinator.requests; n > 70 {
			t.Errorf("%d requests in 20 s while another leads", n)
		}
		w.declared(`{}`)
		// The mirror had not heard yet: it goes on.
		w.coordinator.set(func() { w.coordinator.term = "7" })
		w.pass(backoffMax)
		w.wantPosted("1 changes")
		w.same(w.things)
	})
}

func TestAMirrorThatStalls(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.pass(time.Second)
		w.posted()
		w.coordinator.set(func() { w.coordinator.before = onPosts(hang) })
		w.things.put("c")
		w.pass(4 * time.Second)
		w.declared(`{"things.example.com":"110"}`)
		w.pass(2 * time.Second)
		w.declared(`{}`)
		for i := range 1000 {
			w.things.put(fmt.Sprint(i % 10))
		}
		w.pass(time.Minute)
		w.coordinator.set(func() { w.coordinator.before = nil })
		w.pass(batchTimeout + backoffMax)
		w.wantPosted("256 changes", "256 changes", "256 changes", "233 changes")
		w.same(w.things)
		w.pass(declareEvery)
		w.declared(`{"things.example.com":"1111"}`)
	})
}

func TestWhileAPushIsUnderWayTheNextGathers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.posted()
		slow := make(chan struct{})
		w.coordinator.set(func() {
			w.coordinator.before = onPosts(func(r *http.Request) error {
				<-slow
				return nil
			})
		})
		for _, name := range []string{"c", "d", "e"} {
			w.things.put(name)
			synctest.Wait()
		}
		close(slow)
		w.wantPosted("1 changes", "2 changes")
		w.same(w.things)
	})
}

func TestLargeObjectsMakeSmallBatches(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.posted()
		var events []stream.Event
		for range 5 {
			w.things.revision++
			o := w.things.object("big", w.things.revision)
			o.Raw = append(o.Raw[:len(o.Raw)-1], fmt.Appendf(nil, `,"data":%q}`, strings.Repeat("x", 400<<10))...)
			events = append(events, stream.Event{Type: stream.Modified, Object: o})
		}
		w.things.tell(events...)
		w.wantPosted("2 changes", "2 changes", "1 changes")
	})
}

func TestBookmarksMoveThePositionNowAndThen(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.posted()
		for range 40 {
			w.pass(time.Second)
			w.things.bookmark()
		}
		w.pass(idlePush)
		w.wantPosted("bookmark", "bookmark", "bookmark", "bookmark", "bookmark")
		w.things.put("c")
		w.wantPosted("1 changes")
		w.pass(time.Minute)
		w.wantPosted()
		w.same(w.things)
	})
}

func TestRefusals(t *testing.T) {
	// refuse has the coordinator answer the next pushes so.
	refuse := func(w *world, times int, why *answered) {
		w.coordinator.set(func() {
			w.coordinator.answer = func(*http.Request, []stream.Event) *answered {
				if times--; times >= 0 {
					return why
				}
				return nil
			}
		})
	}
	t.Run("too large", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.begin()
			w.posted()
			w.coordinator.set(func() {
				w.coordinator.answer = func(_ *http.Request, events []stream.Event) *answered {
					if len(events) > 30 {
						return &answered{code: http.StatusRequestEntityTooLarge, message: "too large"}
					}
					return nil
				}
			})
			w.things.put(strings.Split(strings.Repeat("c,", 99)+"c", ",")...)
			w.pass(30 * time.Second)
			w.same(w.things)
		})
	})
	t.Run("malformed", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.begin()
			w.posted()
			refuse(w, 1, &answered{code: http.StatusUnprocessableEntity, message: "what is this"})
			w.things.put("c")
			w.pass(time.Second)
			w.wantPosted("full 3")
		})
	})
	t.Run("malformed for good", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.begin()
			w.pass(time.Second)
			w.coordinator.set(func() { w.coordinator.requests = 0 })
			refuse(w, 1000, &answered{code: http.StatusUnprocessableEntity, message: "what is this"})
			w.things.put("c")
			w.pass(5 * time.Minute)
			if n := w.coordinator.requests; n > 2*30+5*60/2+20 { // two a round, one a renewal
				t.Errorf("%d requests in 5 min, want few", n)
			}
			w.declared(`{}`)
		})
	})
	t.Run("suspicious", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.begin()
			w.posted()
			refuse(w, 2, &answered{code: http.StatusConflict, applied: 110, retryAfter: 12 * time.Second})
			w.things.fill()
			w.pass(23 * time.Second)
			w.wantPosted()
			w.pass(2 * time.Second)
			w.wantPosted("full 0")
			w.same(w.things)
		})
	})
	t.Run("busy", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.begin()
			w.posted()
			refuse(w, 1, &answered{code: http.StatusTooManyRequests, message: "busy", retryAfter: 3 * time.Second})
			w.things.put("c")
			w.pass(2900 * time.Millisecond)
			w.wantPosted()
			w.pass(200 * time.Millisecond)
			w.wantPosted("1 changes")
		})
	})
	t.Run("nonsense", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.begin()
			w.posted()
			refuse(w, 1, &answered{code: http.StatusConflict, applied: 110}) // where it is told to go on from
			w.things.put("c")
			w.pass(time.Second)
			w.wantPosted("1 changes")
		})
	})
}

func TestTheSetOfResourcesChanges(t *testing.T) {
	inWorld(t, func(w *world) {
		more := newSource(t, others, "x")
		w.begin()
		w.posted()
		w.set.become(w.things, more)
		w.wantPosted("full 1")
		w.pass(time.Second)
		w.declared(`{"others":"110","things.example.com":"110"}`)
		w.set.become(more)
		w.things.put("c")
		w.wantPosted()
		w.pass(time.Second)
		w.declared(`{"others":"110"}`)
		more.put("y")
		w.same(more)
		// The same resource, another replica.
		w.set.become()
		again := newSource(t, others, "x", "y", "z")
		again.fill("z")
		w.set.become(again)
		w.same(again)
	})
}

func TestAReplicaThatHasNothingYet(t *testing.T) {
	inWorld(t, func(w *world) {
		late := newSource(t, others)
		w.set.become(late)
		w.begin()
		w.pass(time.Minute)
		w.wantPosted()
		w.declared(`{}`)
		late.fill("x")
		w.pass(emptyPause)
		w.wantPosted("full 1")
	})
}

// TestWhatIsBeingRead: others hear how far a list from the cloud has come.
func TestWhatIsBeingRead(t *testing.T) {
	inWorld(t, func(w *world) {
		late := newSource(t, others)
		late.filling.Store(3)
		w.set.become(late, w.things)
		w.begin()
		says := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := w.lease().Annotations[edge.AnnotationFilling]; got != want {
				t.Errorf("it says that %q is being read, want %q", got, want)
			}
		}
		w.pass(time.Second)
		says(`{"others":3}`)
		late.filling.Store(4)
		w.pass(declareEvery)
		says(`{"others":4}`)
		w.things.filling.Store(-1) // waits for its turn: it comes on as what is before it does
		w.pass(declareEvery)
		says(`{"others":4,"things.example.com":5}`)
		late.filling.Store(5)
		w.pass(declareEvery)
		says(`{"others":5,"things.example.com":6}`)
		w.things.filling.Store(0)
		late.filling.Store(0)
		late.fill("x")
		w.pass(emptyPause + declareEvery)
		says(`{}`)
	})
}

func TestWhatIsNotLiveIsNotDeclared(t *testing.T) {
	inWorld(t, func(w *world) {
		w.things.live.Store(false)
		w.begin()
		w.pass(10 * time.Second)
		w.wantPosted("full 2")
		w.declared(`{}`)
		w.things.live.Store(true)
		w.pass(declareGap + lookEvery)
		w.declared(`{"things.example.com":"110"}`)
		w.things.live.Store(false)
		w.pass(4 * time.Second)
		w.declared(`{"things.example.com":"110"}`)
		w.pass(2 * time.Second)
		w.declared(`{}`)
	})
}

func TestTheLeaseIsAsTheCoordinatorWantsIt(t *testing.T) {
	inWorld(t, func(w *world) {
		other, count := "n2", int32(4)
		w.leases.Edit(edge.NamespaceSystem, edge.LeaseInformerSync, func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity, l.Spec.LeaseTransitions = &other, &count
		})
		w.begin()
		w.pass(time.Second)
		first := w.lease()
		if *first.Spec.HolderIdentity != "n1" || *first.Spec.LeaseTransitions != 5 || *first.Spec.LeaseDurationSeconds != 10 {
			t.Errorf("spec %v", first.Spec)
		}
		w.leases.Calls()
		w.pass(20 * time.Second)
		writes := 0
		for _, call := range w.leases.Calls() {
			if call.Verb == "get" {
				t.Error("read what it knows")
			}
			writes++
			if *call.Lease.Spec.LeaseTransitions != 5 {
				t.Errorf("a renewal counts %d transitions", *call.Lease.Spec.LeaseTransitions)
			}
		}
		if writes < 9 || writes > 11 {
			t.Errorf("%d renewals in 20 s, want one in 2 s", writes)
		}
		// Somebody else's write, then one that fails.
		w.leases.Edit(edge.NamespaceSystem, edge.LeaseInformerSync, func(l *coordinationv1.Lease) {
			l.Labels = map[string]string{"a": "b"}
		})
		w.pass(3 * time.Second)
		if l := w.lease(); time.Since(l.Spec.RenewTime.Time) > 2*time.Second || l.Labels["a"] != "b" {
			t.Errorf("after a conflict: %v", l)
		}
		w.leases.Before(hubtest.Hang)
		w.pass(10 * time.Second)
		w.leases.Before(nil)
		w.pass(3 * time.Second)
		if l := w.lease(); time.Since(l.Spec.RenewTime.Time) > 2*time.Second {
			t.Errorf("after an outage: renewed %s ago", time.Since(l.Spec.RenewTime.Time))
		}
	})
}

// Nothing is declared by what this hub remembers alone.
func TestAMirrorThatDoesNotAnswerIsNotDeclared(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.pass(time.Second)
		w.coordinator.set(func() { w.coordinator.before = hang })
		w.pass(4 * time.Second)
		before := w.lease().ResourceVersion
		w.pass(30 * time.Second)
		if w.lease().ResourceVersion != before {
			t.Error("the Lease is renewed though the mirror does not answer")
		}
	})
}

func TestRunReturnsAtOnce(t *testing.T) {
	for name, fault := range map[string]func(*world){
		"idle":    func(*world) {},
		"asking":  func(w *world) { w.coordinator.before = hang },
		"pushing": func(w *world) { w.coordinator.before = onPosts(hang) },
		"renewing": func(w *world) {
			w.leases.Before(func(ctx context.Context, _ hubtest.LeaseCall) error { <-ctx.Done(); return ctx.Err() })
		},
		"refused":   func(w *world) { w.coordinator.term = "8" },
		"not valid": func(w *world) { w.valid.Store(false) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				fault(w)
				w.begin()
				w.things.put("c")
				w.pass(1500 * time.Millisecond)
				w.things.put("d")
				synctest.Wait()
				before, began := w.coordinator.requests, time.Now()
				w.stop()
				if d := time.Since(began); d > 0 || w.coordinator.requests != before {
					t.Errorf("took %s and %d more requests", d, w.coordinator.requests-before)
				}
			})
		})
	}
}

func FuzzRefusal(f *testing.F) {
	f.Add(409, "12", `{"applied":"7"}`)
	f.Add(503, "-1", `{"applied":7,"message":["x"]}`)
	f.Fuzz(func(t *testing.T, code int, after, text string) {
		r := &http.Response{StatusCode: code, Header: http.Header{"Retry-After": {after}}}
		why := refusalOf(r, []byte(text))
		if why.retryAfter < 0 || why.retryAfter > maxRetryAfter || why.Error() == "" {
			t.Errorf("%+v", why)
		}
	})
}
