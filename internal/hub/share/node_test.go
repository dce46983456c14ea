package share

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

// a settled world has a Node, a Pod and a ConfigMap that the Pod uses.
func (w *nodeWorld) settle() *fakeReplica {
	w.t.Helper()
	m := w.alsoFollow(configMaps, "conf")
	w.node.set(20, w.aNode("p1", 5))
	w.pods.set(20, w.aPod("a", 10))
	m.set(20, w.aMap("conf", 7))
	time.Sleep(lookEvery)
	w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/a@10")
	w.asked("ask", "push nodes MOD n1", "push pods MOD a", "push configmaps MOD conf")
	return m
}

func TestItFollowsTheReplicas(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		m := w.settle()
		w.pods.set(31, w.aPod("a", 30), w.aPod("b", 31))
		time.Sleep(lookEvery)
		w.asked("push pods MOD a MOD b")
		w.pods.set(40, w.aPod("b", 31))
		m.set(41)
		time.Sleep(lookEvery)
		w.asked("push configmaps DEL conf", "push pods DEL a")
		w.has("nodes /n1@5", "pods shop/b@31")
		w.pods.set(60, w.aPod("b", 31)) // a bookmark
		time.Sleep(lookEvery)
		w.asked()
	})
}

// TestItIsHeardOf: also when nothing changes.
func TestItIsHeardOf(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.settle()
		time.Sleep(2*askEvery + lookEvery)
		w.asked("same?", "same?")
	})
}

// TestNothingIsGivenUpBeforeItIsKnown: a hub that starts finds what it has pushed before.
func TestNothingIsGivenUpBeforeItIsKnown(t *testing.T) {
	inNodeWorldWith(t, func(w *nodeWorld) {
		w.coordinator.has = map[string]string{
			"nodes /n1": "5", "pods shop/a": "10", "pods shop/old": "9", "configmaps shop/conf": "7", "events shop/e": "3",
		}
	}, func(w *nodeWorld) {
		time.Sleep(time.Minute)
		w.pods.set(8) // from the disk, and nobody knows whether the node is of this pool
		time.Sleep(time.Minute)
		w.node.set(20, w.aNode("p1", 5))
		time.Sleep(time.Minute)
		w.has("configmaps shop/conf@7", "events shop/e@3", "nodes /n1@5", "pods shop/a@10", "pods shop/old@9")
		w.pods.set(20, w.aPod("a", 10))
		time.Sleep(lookEvery)
		w.has("configmaps shop/conf@7", "events shop/e@3", "nodes /n1@5", "pods shop/a@10")
		w.overlay.set(func() {
			if len(w.overlay.adopted) != 1 || w.overlay.adopted[stream.Key{Namespace: "shop", Name: "e"}] != 3 {
				t.Errorf("the overlay is told of %v", w.overlay.adopted)
			}
			w.overlay.adopted = nil
		})
		w.changed()
		time.Sleep(lookEvery)
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/a@10")
	})
}

// TestACoordinatorThatComesBackEmpty is filled again, and with what kubelet no longer follows, too.
func TestACoordinatorThatComesBackEmpty(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.settle()
		w.follow(Selection{node1, w.node}, Selection{stream.ID{Resource: pods}, w.pods})
		time.Sleep(lookEvery)
		w.coordinator.restart()
		time.Sleep(askEvery + lookEvery)
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/a@10")
		w.asked("ask", "push nodes MOD n1", "push pods MOD a", "push configmaps MOD conf")

		w.coordinator.restart()
		w.coordinator.set(func() { w.coordinator.refuses = map[string]string{"configmaps shop/conf": "no Pod uses it"} })
		w.pods.set(50, w.aPod("b", 50))
		time.Sleep(lookEvery) // it is told that something else is there
		time.Sleep(lookEvery)
		w.asked("else", "ask", "push nodes MOD n1", "push pods MOD b", "push configmaps MOD conf")
		time.Sleep(2 * refusedPause)
		w.has("nodes /n1@5", "pods shop/b@50")
		w.coordinator.set(func() {
			for _, each := range w.coordinator.log {
				if each != "same?" {
					t.Errorf("what is refused and not followed is pushed again: %s", each)
				}
			}
		})
	})
}

// TestACloudThatWasRestored: what it does not have any more goes, and what it has as it was before comes back.
func TestACloudThatWasRestored(t *testing.T) {
	for what, former := range map[string]bool{"present": false, "of before": true} {
		t.Run("a coordinator "+what, func(t *testing.T) {
			inNodeWorld(t, func(w *nodeWorld) {
				w.coordinator.set(func() { w.coordinator.former = former })
				m := w.settle()
				w.pods.set(30, w.aPod("a", 28), w.aPod("lost", 30))
				m.set(31, w.aMap("conf", 31))
				time.Sleep(lookEvery)
				w.asked("push pods MOD a MOD lost", "push configmaps MOD conf")

				w.node.restore(15, w.aNode("p1", 5))
				w.pods.restore(15, w.aPod("a", 10))
				m.restore(31, w.aMap("conf", 7)) // at the very position of before
				time.Sleep(lookEvery)
				w.asked("push nodes MOD n1", "push pods MOD a", "push configmaps MOD conf", "push pods DEL lost")
				if former {
					w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/a@10")
				} else {
					w.has("configmaps shop/conf@7h1", "nodes /n1@5h1", "pods shop/a@10h1")
				}
				w.pods.set(16, w.aPod("a", 16))
				w.coordinator.restart()
				time.Sleep(askEvery)
				time.Sleep(lookEvery)
				if !former {
					w.has("configmaps shop/conf@7h1", "nodes /n1@5h1", "pods shop/a@16h1")
				}
			})
		})
	}
}

// TestADiskThatWasLost: the coordinator knows of a later history than a hub that begins from nothing.
func TestADiskThatWasLost(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.coordinator.set(func() {
			w.coordinator.has = map[string]string{"nodes /n1": "5h1", "pods shop/a": "10h1"}
			w.coordinator.version++
		})
		w.node.set(20, w.aNode("p1", 5))
		w.pods.set(20, w.aPod("a", 12))
		time.Sleep(lookEvery)
		w.has("nodes /n1@5h1", "pods shop/a@10h1")
		w.mu.Lock()
		if w.history != 1 {
			t.Errorf("the hub is in history %s, and was told of 1", w.history)
		}
		w.mu.Unlock()
		w.pods.restore(20, w.aPod("a", 12))
		time.Sleep(lookEvery)
		w.has("nodes /n1@5h1", "pods shop/a@12h1")
	})
}

// TestEventsOfARestoredCloud: one of the same name has another revision there, and is not older.
func TestEventsOfARestoredCloud(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.settle()
		w.says(events, object(t, &corev1.Event{}, "shop", "e", 70), 0)
		time.Sleep(lookEvery)
		w.has("configmaps shop/conf@7", "events shop/e@70", "nodes /n1@5", "pods shop/a@10")
		w.overlay.set(func() { w.overlay.in = 1 })
		w.says(events, object(t, &corev1.Event{}, "shop", "e", 44), 0)
		time.Sleep(lookEvery)
		w.has("configmaps shop/conf@7", "events shop/e@44h1", "nodes /n1@5", "pods shop/a@10")
	})
}

func TestTheLinkToTheCoordinator(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.settle()
		w.link.Set(link.Down)
		w.coordinator.set(func() { w.coordinator.fails = errors.New("down") })
		w.pods.set(30, w.aPod("a", 30))
		time.Sleep(time.Minute)
		w.coordinator.set(func() { w.coordinator.fails = nil })
		time.Sleep(time.Minute)
		w.asked()
		w.link.Set(link.Up)
		time.Sleep(lookEvery)
		w.asked("ask", "push pods MOD a")
	})
}

// TestACoordinatorOfBefore does not know these paths; it is not asked all the time.
func TestACoordinatorOfBefore(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.coordinator.set(func() { w.coordinator.code = http.StatusNotFound })
		w.node.set(20, w.aNode("p1", 5))
		time.Sleep(10 * time.Minute)
		w.coordinator.set(func() {
			if n := w.coordinator.refused; n > 60 {
				t.Errorf("it was asked %d times in 10 minutes", n)
			}
			w.coordinator.code = 0
		})
		time.Sleep(hopelessPause)
		w.has("nodes /n1@5")
	})
}

// TestACoordinatorThatStarts refuses for a moment what it allows then.
func TestACoordinatorThatStarts(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.coordinator.set(func() { w.coordinator.code = http.StatusForbidden })
		w.node.set(20, w.aNode("p1", 5))
		time.Sleep(2 * time.Second)
		w.coordinator.set(func() { w.coordinator.code = 0 })
		time.Sleep(4 * time.Second)
		w.has("nodes /n1@5")
	})
}

func TestANodeThatLeaves(t *testing.T) {
	for name, leave := range map[string]func(*nodeWorld){
		"for another pool": func(w *nodeWorld) { w.node.set(50, w.aNode("p2", 50)) },
		"for no pool":      func(w *nodeWorld) { w.node.set(50, w.aNode("", 50)) },
		"the cluster":      func(w *nodeWorld) { w.node.set(50) },
	} {
		t.Run(name, func(t *testing.T) {
			inNodeWorld(t, func(w *nodeWorld) {
				w.settle()
				leave(w)
				time.Sleep(lookEvery)
				w.has()
				w.asked("push configmaps DEL conf", "push pods DEL a", "push nodes DEL n1")
				w.node.set(60, w.aNode("p1", 60))
				time.Sleep(lookEvery)
				w.has("configmaps shop/conf@7", "nodes /n1@60", "pods shop/a@10")
			})
		})
	}
}

func TestRefusedObjects(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.coordinator.set(func() { w.coordinator.refuses = map[string]string{"pods shop/a": "node n2 has it"} })
		w.node.set(20, w.aNode("p1", 5))
		w.pods.set(20, w.aPod("a", 10), w.aPod("b", 11))
		time.Sleep(lookEvery)
		w.asked("ask", "push nodes MOD n1", "push pods MOD a MOD b")
		time.Sleep(5 * time.Second)
		w.asked()
		w.pods.set(30, w.aPod("a", 30), w.aPod("b", 11))
		time.Sleep(lookEvery)
		w.asked("push pods MOD a") // another content may be taken
		w.coordinator.set(func() { w.coordinator.refuses = nil })
		time.Sleep(refusedPause + lookEvery)
		w.has("nodes /n1@5", "pods shop/a@30", "pods shop/b@11")
	})
}

// TestASurprise: a push had effects that the hub does not know of, so it asks before it goes on.
func TestASurprise(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.settle()
		w.coordinator.set(func() {
			w.coordinator.surprise = true
			delete(w.coordinator.has, "configmaps shop/conf")
		})
		w.pods.set(30, w.aPod("a", 30))
		time.Sleep(2 * lookEvery)
		w.asked("push pods MOD a", "ask", "push configmaps MOD conf")
	})
}

// TestLooksWhenSomethingHasChanged: an idle node looks when it asks the coordinator, and no more.
func TestLooksWhenSomethingHasChanged(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.settle()
		looks := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.looks
		}
		before := looks()
		time.Sleep(10 * askEvery)
		if n := looks() - before; n > 12 {
			t.Errorf("%d looks at what does not change, want one for each of 10 questions", n)
		}
		w.asked(slices.Repeat([]string{"same?"}, 10)...)
		w.pods.set(30, w.aPod("a", 10), w.aPod("b", 30))
		time.Sleep(lookEvery)
		w.asked("push pods MOD b")
	})
}

// TestWhatTheNodeSaysItself is pushed as such, on top of what the cloud had, until it is said no more.
func TestWhatTheNodeSaysItself(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.settle()
		said := w.aPod("a", 10)
		said.Raw = append(slices.Clone(said.Raw), 0x18, 1)
		w.cut()
		w.says(pods, said, 71)
		time.Sleep(lookEvery)
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/a@10+")
		w.asked("push pods MOD a")
		w.coordinator.set(func() {
			if got := w.coordinator.contents["pods shop/a"]; !slices.Equal(got, said.Raw) {
				t.Errorf("%x is shown, want %x", got, said.Raw)
			}
		})
		w.says(pods, said, 71)
		time.Sleep(2 * lookEvery)
		w.asked() // the same again
		w.says(pods, said, 72)
		time.Sleep(lookEvery)
		w.asked("push pods MOD a")

		w.coordinator.restart()
		time.Sleep(askEvery + lookEvery)
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/a@10+")

		w.says(pods, stream.Object{Key: said.Key}, 0)
		w.heal()
		time.Sleep(lookEvery)
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/a@10")
	})
}

// TestAHubThatRestartsInACut leaves what it has shown before until kubelet says it again, or the cut is over.
func TestAHubThatRestartsInACut(t *testing.T) {
	inNodeWorldWith(t, func(w *nodeWorld) {
		w.coordinator.has = map[string]string{"nodes /n1": "5+", "pods shop/a": "10+"}
		w.cut()
	}, func(w *nodeWorld) {
		w.node.set(20, w.aNode("p1", 5))
		w.pods.set(20, w.aPod("a", 10))
		time.Sleep(time.Minute)
		w.has("nodes /n1@5+", "pods shop/a@10+")
		w.asked(append([]string{"ask"}, slices.Repeat([]string{"same?"}, 6)...)...)
		w.says(pods, w.aPod("a", 10), 71)
		time.Sleep(lookEvery)
		w.asked("push pods MOD a")
		w.has("nodes /n1@5+", "pods shop/a@10+")
		w.says(pods, stream.Object{Key: w.aPod("a", 10).Key}, 0)
		w.heal()
		time.Sleep(lookEvery)
		w.has("nodes /n1@5", "pods shop/a@10")
	})
}

// TestEvents are pushed as the overlay has them, and given up when it has them no more.
func TestEvents(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.settle()
		event := func(name string, revision edge.Revision) stream.Object {
			return object(t, &corev1.Event{}, "shop", name, revision)
		}
		w.says(events, event("one", 30), 0)
		w.says(events, event("two", 1), 71)
		time.Sleep(lookEvery)
		w.asked("push events MOD one", "push events MOD two")
		w.says(events, event("one", 40), 0)
		time.Sleep(lookEvery)
		w.has("configmaps shop/conf@7", "events shop/one@40", "events shop/two@1+", "nodes /n1@5", "pods shop/a@10")
		w.says(events, stream.Object{Key: event("one", 0).Key}, 0)
		time.Sleep(lookEvery)
		w.has("configmaps shop/conf@7", "events shop/two@1+", "nodes /n1@5", "pods shop/a@10")

		w.coordinator.set(func() { w.coordinator.refuses = map[string]string{"events shop/three": "it is about nothing here"} })
		w.says(events, event("three", 50), 0)
		time.Sleep(lookEvery)
		w.has("configmaps shop/conf@7", "events shop/two@1+", "nodes /n1@5", "pods shop/a@10")
		w.overlay.set(func() {
			if want := []stream.Key{{Namespace: "shop", Name: "three"}}; !slices.Equal(w.overlay.dropped, want) {
				t.Errorf("%v are given up, want %v", w.overlay.dropped, want)
			}
		})
	})
}
