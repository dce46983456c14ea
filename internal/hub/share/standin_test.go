package share

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

const (
	strategic  = string(types.StrategicMergePatchType)
	podStatus  = "/api/v1/namespaces/shop/pods/a/status"
	nodeStatus = "/api/v1/nodes/n1/status"
	shopEvents = "/api/v1/namespaces/shop/events"
	reviews    = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

// restarted is what kubelet sends when a container was restarted.
func restarted(count int) []byte {
	return fmt.Appendf(nil, `{"metadata":{"uid":"u1"},"status":{"$setElementOrder/conditions":[{"type":"Ready"}],`+
		`"conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[{"name":"c","restartCount":%d}]}}`, count)
}

func (w *takerWorld) aPodWithUID(revision edge.Revision) stream.Object {
	return object(w.t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u1"}, Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}, "shop", "a", revision)
}

// shownRestarts is the number of restarts that the coordinator shows for the Pod's container.
func (w *takerWorld) shownRestarts() int32 {
	w.t.Helper()
	p := &corev1.Pod{}
	w.mu.Lock()
	defer w.mu.Unlock()
	shown := w.shown[stream.ID{Resource: pods, Key: stream.Key{Namespace: "shop", Name: "a"}}]
	if err := p.Unmarshal(shown.Raw); err != nil {
		w.t.Error(err)
	}
	if len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

func (w *takerWorld) shows(restarts int32, has ...string) {
	w.t.Helper()
	w.has(has...)
	if got := w.shownRestarts(); got != restarts {
		w.t.Errorf("%d restarts are shown, want %d", got, restarts)
	}
}

func (w *takerWorld) settleWithUID(events ...string) {
	w.t.Helper()
	w.set(nodes, object(w.t, &corev1.Node{}, "", "n1", 5))
	w.set(pods, w.aPodWithUID(10))
	time.Sleep(lookAfter)
	w.has(append(events, "nodes /n1@5", "pods shop/a@10")...)
}

// TestWhatKubeletSaysInACut: it is shown until the cloud says something newer, or the cut is over.
func TestWhatKubeletSaysInACut(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
		w.cut()
		told := &corev1.Pod{}
		w.answers(w.sends(http.MethodPatch, podStatus, strategic, restarted(1), "application/json"), http.StatusOK, told)
		if told.ResourceVersion != "10" || told.UID != "u1" || told.Kind != "Pod" ||
			told.Status.ContainerStatuses[0].RestartCount != 1 || told.Status.Phase != corev1.PodRunning ||
			told.Status.Conditions[0].Status != corev1.ConditionFalse {
			t.Errorf("kubelet is told %+v", told)
		}
		time.Sleep(lookAfter)
		w.shows(1, "nodes /n1@5", "pods shop/a@10+")

		w.answers(w.sends(http.MethodPatch, podStatus, strategic, restarted(1), "application/json"), http.StatusOK, nil)
		w.answers(w.sends(http.MethodPatch, podStatus, strategic, restarted(2), "application/json"), http.StatusOK, nil)
		time.Sleep(lookAfter)
		w.shows(2, "nodes /n1@5", "pods shop/a@10+")

		w.heal()
		time.Sleep(settling / 2)
		w.shows(2, "nodes /n1@5", "pods shop/a@10+") // kubelet has not come to it yet
		time.Sleep(settling)
		w.shows(0, "nodes /n1@5", "pods shop/a@10")

		w.cut()
		w.answers(w.sends(http.MethodPatch, podStatus, strategic, restarted(3), "application/json"), http.StatusOK, nil)
		time.Sleep(lookAfter)
		w.shows(3, "nodes /n1@5", "pods shop/a@10+")
		w.heal()
		w.set(pods, w.aPodWithUID(50))
		time.Sleep(lookAfter)
		w.shows(0, "nodes /n1@5", "pods shop/a@50")
		w.cloudAsked()
	})
}

func TestWhatIsNotTaken(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
		good, labels := restarted(1), []byte(`{"metadata":{"labels":{"a":"b"}},"status":{"phase":"Failed"}}`)
		w.answers(w.sends(http.MethodPatch, podStatus, strategic, good, ""), http.StatusOK, nil)
		w.cloudAsked("PATCH " + podStatus) // it is the cloud's
		w.cut()
		for name, c := range map[string]struct {
			method, path, contentType string
			body                      []byte
			code                      int
		}{
			"labels, too":     {http.MethodPatch, podStatus, strategic, labels, 0},
			"JSON patch":      {http.MethodPatch, podStatus, string(types.JSONPatchType), []byte(`[]`), 0},
			"no JSON":         {http.MethodPatch, podStatus, strategic, []byte(`{`), 0},
			"no Content-Type": {http.MethodPatch, podStatus, "", good, 0},
			"of another Pod":  {http.MethodPatch, "/api/v1/namespaces/shop/pods/b/status", strategic, good, 0},
			"a deletion":      {http.MethodDelete, "/api/v1/namespaces/shop/pods/a", "", nil, 0},
			"a mirror Pod":    {http.MethodPost, "/api/v1/namespaces/shop/pods", "application/json", good, 0},
			"another uid":     {http.MethodPatch, podStatus, strategic, []byte(`{"metadata":{"uid":"u2"}}`), http.StatusConflict},
			"another revision": {http.MethodPatch, podStatus, strategic, []byte(`{"metadata":{"resourceVersion":"9"}}`),
				http.StatusConflict},
			"an Event elsewhere":  {http.MethodPost, shopEvents, "application/json", anEvent(t, "other", "e", 1), 0},
			"an Event unnamed":    {http.MethodPost, shopEvents, "application/json", anEvent(t, "shop", "", 1), 0},
			"no Event":            {http.MethodPost, shopEvents, "application/json", []byte(`{"kind":"Pod"}`), 0},
			"an Event by a merge": {http.MethodPatch, shopEvents + "/e", string(types.MergePatchType), []byte(`{}`), 0},
		} {
			response := w.sends(c.method, c.path, c.contentType, c.body, "application/json")
			if (response == nil) != (c.code == 0) || response != nil && response.StatusCode != c.code {
				t.Errorf("%s: %+v, want %d", name, response, c.code)
			}
		}
		w.link.Set(link.Down)
		if response := w.sends(http.MethodPatch, podStatus, strategic, good, ""); response == nil ||
			response.StatusCode != http.StatusOK || len(w.taker.Said()) != 1 {
			t.Errorf("without a coordinator: %+v", response)
		}
		w.cloudLink.Set(link.Failing)
		if response := w.sends(http.MethodPatch, podStatus, strategic, good, ""); response != nil {
			t.Errorf("without a coordinator, of a cloud that fails: %+v", response)
		}
	})
}

// TestWhatKubeletSaidGoesWithoutACoordinator: what was said in one cut says nothing in the next, though nobody was there to be
// shown the Pod in between.
func TestWhatKubeletSaidGoesWithoutACoordinator(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
		w.link.Set(link.Down)
		said := func(when string, want int) {
			t.Helper()
			if n := len(w.taker.Said()); n != want {
				t.Errorf("%s: %d statuses count, want %d", when, n, want)
			}
		}
		for range 2 {
			w.cut()
			time.Sleep(time.Hour)
			w.answers(w.sends(http.MethodPatch, podStatus, strategic, restarted(1), ""), http.StatusOK, nil)
			time.Sleep(time.Hour)
			said("in the cut", 1)
			w.heal()
			time.Sleep(settling / 2)
			said("kubelet has not come to it yet", 1)
			w.cut()
			time.Sleep(time.Hour)
			said("in the cut that goes on", 1)
			w.heal()
			time.Sleep(2 * settling)
			said("after the cut", 0)
		}
	})
}

// TestEventsGoWithoutACoordinator: those that the cloud has, too.
func TestEventsGoWithoutACoordinator(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
		w.link.Set(link.Down)
		w.creates("e", 1)
		key := stream.Key{Namespace: "shop", Name: "e"}
		if time.Sleep(eventLife / 2); !w.taker.HasEvent(key) {
			t.Error("it is forgotten too early")
		}
		if time.Sleep(eventLife); w.taker.HasEvent(key) {
			t.Error("it is still remembered")
		}
	})
}

// TestTheCloudFails: the answer of, say, a balancer without servers is no answer, nor is that of a server without etcd.
func TestTheCloudFails(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
		w.cloudLink.Set(link.Failing)
		for _, code := range []int{
			http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		} {
			w.cloud.set(func() { w.cloud.code = code })
			w.answers(w.sends(http.MethodPatch, podStatus, strategic, restarted(1), "application/json"), http.StatusOK, nil)
			w.answers(w.sends(http.MethodPost, shopEvents, "application/json", anEvent(t, "shop", fmt.Sprint("e", code), 1), ""),
				http.StatusCreated, nil)
			w.answers(w.sends(http.MethodPost, reviews, "application/json", []byte(`{}`), ""), code, nil)
		}
		time.Sleep(lookAfter)
		w.shows(1, "events shop/e500@1+", "events shop/e502@1+", "events shop/e503@1+", "events shop/e504@1+", "nodes /n1@5",
			"pods shop/a@10+")
		w.cloudLink.Set(link.Up) // its core reads are answered, so 500 is about this one
		w.cloud.set(func() { w.cloud.code = http.StatusInternalServerError })
		w.answers(w.sends(http.MethodPatch, podStatus, strategic, restarted(2), ""), http.StatusInternalServerError, nil)
	})
}

// TestBeforeTheLinkIsJudged: a write that fails on its way is taken, and shown for a while.
func TestBeforeTheLinkIsJudged(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
		w.cloud.set(func() { w.cloud.fails = errors.New("broken pipe") })
		w.answers(w.sends(http.MethodPatch, podStatus, strategic, restarted(1), "application/json"), http.StatusOK, nil)
		if response := w.sends(http.MethodPost, reviews, "application/json", []byte(`{}`), ""); response != nil {
			t.Errorf("a review: %d", response.StatusCode)
		}
		time.Sleep(lookAfter)
		w.shows(1, "nodes /n1@5", "pods shop/a@10+")
		time.Sleep(settling)
		w.shows(0, "nodes /n1@5", "pods shop/a@10")
	})
}

func anEvent(t *testing.T, namespace, name string, count int32) []byte {
	t.Helper()
	e := &corev1.Event{
		TypeMeta:       metav1.TypeMeta{Kind: "Event", APIVersion: "v1"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "a"}, Count: count, Message: "first",
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// creates creates an Event as a program of the node, which must succeed.
func (w *takerWorld) creates(name string, count int32) {
	w.t.Helper()
	response := w.sends(http.MethodPost, shopEvents, "application/json", anEvent(w.t, "shop", name, count), "")
	w.answers(response, http.StatusCreated, nil)
}

func againEvent(count int32) []byte {
	return fmt.Appendf(nil, `{"count":%d,"lastTimestamp":"2026-01-01T00:00:00Z","message":"again"}`, count)
}

// TestTakenEvents: Events that the cloud has are shown for their time, the newest of them.
func TestTakenEvents(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
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
		time.Sleep(lookAfter)
		w.has("events shop/one@30", "events shop/two@31", "nodes /n1@5", "pods shop/a@10")
		_, again := event("one", 40)
		w.writesEvent(http.MethodPatch, path+"/one", http.StatusOK, again)
		w.writesEvent(http.MethodPatch, path+"/one", http.StatusOK, text) // of before, late
		time.Sleep(lookAfter)
		w.has("events shop/one@40", "events shop/two@31", "nodes /n1@5", "pods shop/a@10")
		time.Sleep(eventLife)
		w.has("nodes /n1@5", "pods shop/a@10")
		for i := range maxKeptEvents + 50 {
			_, text := event(fmt.Sprintf("e%03d", i), 100+i)
			w.writesEvent(http.MethodPost, path, http.StatusCreated, text)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.shown); n != 2+maxKeptEvents {
			t.Errorf("%d objects are shown, want %d Events and two more", n, maxKeptEvents)
		}
		last := stream.Key{Namespace: "shop", Name: fmt.Sprintf("e%03d", maxKeptEvents+49)}
		if w.taker.HasEvent(stream.Key{Namespace: "shop", Name: "e000"}) || !w.taker.HasEvent(last) {
			t.Error("not the oldest have gone")
		}
	})
}

// TestTakenEventsOfARestoredCloud checks that an Event of the same name in another history is not older, whatever its revision. A
// waiting Event is on the disk with its revision's history.
func TestTakenEventsOfARestoredCloud(t *testing.T) {
	in := edge.History(1)
	history := func() edge.History { return in }
	l := newEventLog(newFakeDisk(), ends.Ends{}, history, func() {}, func() {})
	key := stream.Key{Namespace: "shop", Name: "e"}
	for _, c := range []struct {
		in         edge.History
		told, want edge.Revision
	}{{1, 70, 70}, {1, 60, 70}, {2, 44, 44}, {1, 80, 44}, {2, 45, 45}} {
		in = c.in
		l.add(object(t, &corev1.Event{}, "shop", "e", c.told), time.Now())
		if got := l.events[key].object.Revision; got != c.want {
			t.Errorf("after revision %d of history %d it has %d, want %d", c.told, c.in, got, c.want)
		}
	}
	in = 3 // it is changed before the hub knows
	if _, err := l.change(key, []byte(`{"count":2}`), time.Now()); err != nil {
		t.Fatal(err)
	}
	again := newEventLog(l.disk, ends.Ends{}, history, func() {}, func() {})
	again.restore()
	for _, l := range []*eventLog{l, again} {
		objects, histories, said := map[stream.ID]stream.Object{}, map[stream.ID]edge.History{}, map[stream.ID]uint64{}
		l.addTo(objects, histories, said)
		if i := (stream.ID{Resource: events, Key: key}); objects[i].Revision != 45 || histories[i] != 2 || said[i] == 0 {
			t.Errorf("it is shown at revision %d of history %d, said %d", objects[i].Revision, histories[i], said[i])
		}
	}
}

func firstHistory() edge.History { return 0 }

// TestEventsOfAnEarlierRun checks that Events that are still shown expire in due time. A waiting Event on the disk is not
// mistaken for one of these.
func TestEventsOfAnEarlierRun(t *testing.T) {
	l := newEventLog(newFakeDisk(), ends.Ends{}, firstHistory, func() {}, func() {})
	event := &corev1.Event{}
	event.Namespace, event.Name = "shop", "waits"
	if _, err := l.create(event, time.Now()); err != nil {
		t.Fatal(err)
	}
	again := newEventLog(l.disk, ends.Ends{}, firstHistory, func() {}, func() {})
	waits, old := stream.Key{Namespace: "shop", Name: "waits"}, stream.Key{Namespace: "shop", Name: "old"}
	again.adopt(waits, edge.Moment{Revision: 1})
	again.adopt(old, edge.Moment{Revision: 7})
	again.restore()
	if !again.waits(waits) || again.waits(old) || !again.has(old) {
		t.Errorf("it has %v", again.events)
	}
	if o := again.events[old].object; o.Revision != 7 || o.Raw != nil {
		t.Errorf("of the other it has %v", o)
	}
}

// TestEventsOfACut: each reaches the cloud once, in its last form.
func TestEventsOfACut(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
		post := func(name string, count int32) *http.Response {
			time.Sleep(time.Millisecond)
			return w.sends(http.MethodPost, shopEvents, "application/json", anEvent(t, "shop", name, count), "application/json")
		}
		patch := func(name string, count int32) *http.Response {
			time.Sleep(time.Millisecond)
			return w.sends(http.MethodPatch, shopEvents+"/"+name, strategic, againEvent(count), "application/json")
		}
		w.answers(post("before", 1), http.StatusCreated, nil)
		w.cloud.set(func() { // of an earlier run of the hub, which does not know it
			w.cloud.events["earlier"] = w.cloud.events["before"].DeepCopy()
			w.cloud.events["earlier"].Name = "earlier"
		})
		time.Sleep(lookAfter)
		w.has("events shop/before@101", "nodes /n1@5", "pods shop/a@10")
		w.cut()
		told := &corev1.Event{}
		w.answers(post("new", 1), http.StatusCreated, told)
		if told.Name != "new" || told.UID == "" || told.Message != "first" {
			t.Errorf("told %+v", told)
		}
		w.answers(post("new", 1), http.StatusConflict, nil)
		w.answers(patch("new", 2), http.StatusOK, told)
		w.answers(patch("before", 2), http.StatusOK, nil)
		w.answers(patch("earlier", 7), http.StatusNotFound, nil)
		w.answers(post("earlier", 7), http.StatusCreated, nil)
		time.Sleep(lookAfter)
		w.has("events shop/before@101+", "events shop/earlier@1+", "events shop/new@1+", "nodes /n1@5", "pods shop/a@10")
		w.cloudHas("before×1", "earlier×1")
		w.cloudAsked("create before")

		w.heal()
		time.Sleep(2 * lookAfter)
		w.cloudHas("before×2", "earlier×7", "new×2")
		w.cloudAsked("create new", "create before", "patch before", "create earlier", "patch earlier")
		w.has("events shop/before@103", "events shop/earlier@104", "events shop/new@102", "nodes /n1@5", "pods shop/a@10")
		if told := testutil.ToFloat64(w.taker.metrics.told); told != 3 {
			t.Errorf("the cloud was told of %v", told)
		}
		w.answers(patch("new", 3), http.StatusOK, nil)
		w.cloudAsked("patch new")
		time.Sleep(time.Minute)
		w.cloudAsked()
		if left := w.disk.Blobs(""); len(left) != 0 {
			t.Errorf("on the disk is still %q", left)
		}
	})
}

// TestAnEventIsWrittenWhileTheCloudIsTold: what was written last wins.
func TestAnEventIsWrittenWhileTheCloudIsTold(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
		w.cut()
		w.creates("e", 1)
		w.cloud.set(func() {
			w.cloud.before = func() {
				w.answers(w.sends(http.MethodPatch, shopEvents+"/e", strategic, againEvent(2), ""), http.StatusOK, nil)
			}
		})
		w.heal()
		time.Sleep(2 * lookAfter)
		w.cloudAsked("create e", "create e", "patch e")
		w.cloudHas("e×2")
		w.has("events shop/e@102", "nodes /n1@5", "pods shop/a@10")
	})
}

// TestWaitingEventsOutliveTheHub: they also outlive a coordinator that does not take them.
func TestWaitingEventsOutliveTheHub(t *testing.T) {
	disk := newFakeDisk()
	bubbleOn(t, disk, (*takerWorld).cut, func(w *takerWorld) {
		w.settleWithUID()
		w.creates("e", 5)
		w.taker.DropEvent(stream.Key{Namespace: "shop", Name: "e"}) // the coordinator does not take it
		time.Sleep(time.Minute)
	})
	if len(disk.Blobs(waitingPrefix)) != 1 || disk.flushed != 1 {
		t.Fatalf("the disk has %q, and was written %d times", disk.Blobs(""), disk.flushed)
	}
	disk.blobs[waitingPrefix+"bad"] = []byte("{")
	bubbleOn(t, disk, (*takerWorld).cut, func(w *takerWorld) {
		w.settleWithUID("events shop/e@1+")
		w.has("events shop/e@1+", "nodes /n1@5", "pods shop/a@10")
		w.heal()
		time.Sleep(2 * lookAfter)
		w.cloudHas("e×5")
	})
	if left := disk.Blobs(""); len(left) != 0 {
		t.Errorf("the disk still has %q", left)
	}
}

// TestEventsThatTheCloudDoesNotTake checks that a refused Event is not sent again, and that one that the cloud can't accept now
// is sent later.
func TestEventsThatTheCloudDoesNotTake(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
		w.cut()
		w.creates("e", 1)
		w.cloud.set(func() { w.cloud.code = http.StatusInternalServerError })
		w.heal()
		time.Sleep(10 * time.Minute)
		w.cloud.set(func() {
			if n := len(w.cloud.log); n < 10 || n > 40 {
				t.Errorf("the cloud was asked %d times in 10 minutes", n)
			}
			w.cloud.log, w.cloud.code = nil, http.StatusForbidden
		})
		time.Sleep(time.Minute)
		w.cloudAsked("403")
		if lost := testutil.ToFloat64(w.taker.metrics.lost); lost != 1 {
			t.Errorf("%v are lost", lost)
		}
	})
}

// TestEventsAreBounded: waiting Events stay longest, the newest of them.
func TestEventsAreBounded(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
		post := func(name string) {
			w.creates(name, 1)
			time.Sleep(time.Millisecond)
		}
		post("known")
		w.cut()
		for i := range maxKeptEvents + 2 {
			post(fmt.Sprintf("e%03d", i))
		}
		if lost := testutil.ToFloat64(w.taker.metrics.lost); lost != 2 || len(w.disk.Blobs("")) != maxKeptEvents {
			t.Errorf("%v are lost, and %d are on the disk", lost, len(w.disk.Blobs("")))
		}
		if what := w.taker.events.oldest(time.Now()); what == nil || what.Name != "e002" {
			t.Errorf("the oldest is %+v", what)
		}
		w.link.Set(link.Down)
		time.Sleep(eventLife + lookAfter)
		if what := w.taker.events.oldest(time.Now()); what != nil {
			t.Errorf("of an hour ago waits %+v", what)
		}
		if lost := testutil.ToFloat64(w.taker.metrics.lost); lost != maxKeptEvents+2 || len(w.disk.Blobs("")) != 0 {
			t.Errorf("after their time %v are lost, and %d are on the disk", lost, len(w.disk.Blobs("")))
		}
	})
}

// TestReviewsOfACut: nobody but the cloud says who somebody is and what he may do.
func TestReviewsOfACut(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
		for _, path := range []string{reviews, "/apis/authentication.k8s.io/v1/tokenreviews"} {
			w.answers(w.sends(http.MethodPost, path, "application/json", []byte(`{}`), ""), http.StatusOK, nil)
			w.cloudAsked("POST " + path)
			w.cut()
			if response := w.sends(http.MethodPost, path, "application/json", []byte(`{}`), ""); response != nil {
				t.Errorf("%s while the cloud is cut off: %d", path, response.StatusCode)
			}
			w.cloudAsked()
			w.heal()
		}
	})
}

func TestAnswersInProtobuf(t *testing.T) {
	bubble(t, func(w *takerWorld) {
		w.settleWithUID()
		w.cut()
		both := runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		response := w.sends(http.MethodPatch, podStatus, strategic, restarted(1), both)
		if response == nil || response.Header.Get("Content-Type") != runtime.ContentTypeProtobuf {
			t.Fatalf("%+v", response)
		}
		text := make([]byte, response.ContentLength)
		if _, err := response.Body.Read(text); err != nil {
			t.Fatal(err)
		}
		kind, raw, err := stream.OpenEnvelope(text)
		p := &corev1.Pod{}
		if err == nil {
			err = p.Unmarshal(raw)
		}
		if err != nil || kind.Kind != "Pod" || p.ResourceVersion != "10" || p.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("%v %+v, %v", kind, p, err)
		}
	})
}
