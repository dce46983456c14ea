package own

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

// a settled world has a Node, a Pod and a ConfigMap that the Pod uses.
func (w *world) settle() *fakeReplica {
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
	bubble(t, func(w *world) {
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
	bubble(t, func(w *world) {
		w.settle()
		time.Sleep(2*askEvery + lookEvery)
		w.asked("same?", "same?")
	})
}

// TestNothingIsGivenUpBeforeItIsKnown: a hub that starts finds what it has pushed before.
func TestNothingIsGivenUpBeforeItIsKnown(t *testing.T) {
	bubble(t, func(w *world) {
		w.coordinator.set(func() {
			w.coordinator.has = map[string]string{
				"nodes /n1": "5", "pods shop/a": "10", "pods shop/old": "9", "configmaps shop/conf": "7", "events shop/e": "3",
			}
			w.coordinator.version++
		})
		time.Sleep(time.Minute)
		w.pods.set(8) // from the disk, and nobody knows whether the node is of this pool
		time.Sleep(time.Minute)
		w.node.set(20, w.aNode("p1", 5))
		time.Sleep(time.Minute)
		w.has("configmaps shop/conf@7", "events shop/e@3", "nodes /n1@5", "pods shop/a@10", "pods shop/old@9")
		w.pods.set(20, w.aPod("a", 10))
		time.Sleep(lookEvery)
		w.has("configmaps shop/conf@7", "events shop/e@3", "nodes /n1@5", "pods shop/a@10")
		time.Sleep(eventLife)
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/a@10")
	})
}

// TestACoordinatorThatComesBackEmpty is filled again, and with what kubelet no longer follows, too.
func TestACoordinatorThatComesBackEmpty(t *testing.T) {
	bubble(t, func(w *world) {
		w.settle()
		w.follow(Selection{core(nodes), "", "metadata.name=n1", w.node}, Selection{core(pods), "", "spec.nodeName=n1", w.pods})
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

func TestTheLinkToTheCoordinator(t *testing.T) {
	bubble(t, func(w *world) {
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
	bubble(t, func(w *world) {
		w.coordinator.set(func() { w.coordinator.code = http.StatusNotFound })
		w.node.set(20, w.aNode("p1", 5))
		time.Sleep(10 * time.Minute)
		w.coordinator.set(func() {
			if n := w.coordinator.refused; n > 60 {
				t.Errorf("it was asked %d times in 10 minutes", n)
			}
			w.coordinator.code = 0
		})
		time.Sleep(refusedMax)
		w.has("nodes /n1@5")
	})
}

// TestACoordinatorThatStarts refuses for a moment what it allows then.
func TestACoordinatorThatStarts(t *testing.T) {
	bubble(t, func(w *world) {
		w.coordinator.set(func() { w.coordinator.code = http.StatusForbidden })
		w.node.set(20, w.aNode("p1", 5))
		time.Sleep(2 * time.Second)
		w.coordinator.set(func() { w.coordinator.code = 0 })
		time.Sleep(4 * time.Second)
		w.has("nodes /n1@5")
	})
}

func TestANodeThatLeaves(t *testing.T) {
	for name, leave := range map[string]func(*world){
		"for another pool": func(w *world) { w.node.set(50, w.aNode("p2", 50)) },
		"for no pool":      func(w *world) { w.node.set(50, w.aNode("", 50)) },
		"the cluster":      func(w *world) { w.node.set(50) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
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
	bubble(t, func(w *world) {
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
	bubble(t, func(w *world) {
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
	bubble(t, func(w *world) {
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

func TestWhatIsNotMine(t *testing.T) {
	bubble(t, func(w *world) {
		w.settle()
		w.mu.Lock()
		for i, s := range []Selection{
			{Resource: core(nodes), Fields: "metadata.name=n2"}, {Resource: core(nodes)}, {Resource: core(pods)},
			{Resource: core(pods), Fields: "spec.nodeName=n2"},
			{Resource: core(pods), Namespace: "shop", Fields: "spec.nodeName=n1"},
			{Resource: core(configMaps), Namespace: "shop"}, {Resource: core(configMaps), Fields: "metadata.name=conf"},
			{Resource: core("services"), Namespace: "shop", Fields: "metadata.name=web"},
		} {
			r := &fakeReplica{of: w}
			r.set(90, object(t, &corev1.Pod{}, "shop", fmt.Sprint("foreign", i), 90))
			s.Replica = r
			w.followed = append(w.followed, s)
			w.changed()
		}
		w.mu.Unlock()
		time.Sleep(time.Second)
		w.asked()
	})
}

func TestEvents(t *testing.T) {
	bubble(t, func(w *world) {
		w.settle()
		event := func(name string, revision int) (*corev1.Event, []byte) {
			e := &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "a"}}
			e.Namespace, e.Name, e.ResourceVersion = "shop", name, fmt.Sprint(revision)
			e.APIVersion, e.Kind = "v1", "Event"
			text, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			return e, text
		}
		const path = "/api/v1/namespaces/shop/events"
		e, text := event("one", 30)
		w.writesEvent(http.MethodPost, path, http.StatusCreated, text)
		inProtobuf := stream.Type{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Event"), Encoding: stream.Protobuf}
		two := stream.Envelope(inProtobuf, object(t, e, "shop", "two", 31).Raw)
		w.writesEvent(http.MethodPost, path, http.StatusCreated, two)
		for _, no := range []struct {
			method, path string
			code         int
			answer       []byte
		}{
			{http.MethodPost, path, http.StatusConflict, []byte(`{"kind":"Status","apiVersion":"v1"}`)},
			{http.MethodGet, path, http.StatusOK, text},
			{http.MethodPost, "/api/v1/namespaces/shop/pods", http.StatusCreated, text},
			{http.MethodPost, path, http.StatusCreated, []byte("no JSON")},
			{http.MethodPost, path, http.StatusCreated, []byte(`{"kind":"Event","apiVersion":"v1","metadata":{"name":"x"}}`)},
			{http.MethodPost, path, http.StatusCreated, append(make([]byte, maxEventBytes), text...)},
		} {
			w.writesEvent(no.method, no.path, no.code, no.answer)
		}
		time.Sleep(lookEvery)
		w.asked("push events MOD one MOD two")
		_, again := event("one", 40)
		w.writesEvent(http.MethodPatch, path+"/one", http.StatusOK, again)
		w.writesEvent(http.MethodPatch, path+"/one", http.StatusOK, text) // of before, late
		time.Sleep(lookEvery)
		w.has("configmaps shop/conf@7", "events shop/one@40", "events shop/two@31", "nodes /n1@5", "pods shop/a@10")
		time.Sleep(eventLife)
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/a@10")
		for i := range maxKeptEvents + 50 {
			_, text := event(fmt.Sprintf("e%03d", i), 100+i)
			w.writesEvent(http.MethodPost, path, http.StatusCreated, text)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		w.coordinator.set(func() {
			if n := len(w.coordinator.has); n != 3+maxKeptEvents {
				t.Errorf("the coordinator has %d objects, want %d Events and three more", n, maxKeptEvents)
			}
			last := fmt.Sprintf("events shop/e%03d", maxKeptEvents+49)
			if w.coordinator.has["events shop/e000"] != "" || w.coordinator.has[last] == "" {
				t.Error("not the oldest have gone")
			}
		})
	})
}
