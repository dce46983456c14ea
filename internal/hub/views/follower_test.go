package views

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

// world is a hub's surroundings: the Pod "own" of this node n1, a coordinator, and a standby that is not reached at first.
type world struct {
	t          *testing.T
	cloud, lan *live.Value[link.State]
	standby    *live.Value[link.State]
	home       *live.Value[int]
	view       *EndpointsView
	follower   *Follower

	mu      sync.Mutex
	own     *corev1.Pod
	said    []*corev1.Pod
	streams int
	hear    [2]func(edge.State) // by slot
	denied  bool
	wants   bool          // all endpoints: the Service "web"
	looks   int           // how often own Pods were asked for
	took    time.Duration // each time
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, cloud: live.NewValue(link.Up), lan: live.NewValue(link.Up), view: NewEndpointsView(),
		standby: live.NewValue(link.Down), home: live.NewValue(0),
		own: podOf("own", "n1", true),
	}
	w.follower = NewFollower(FollowerConfig{
		Node: "n1", CloudLink: w.cloud, Coordinators: []Coordinator{
			{Link: w.lan, Told: told{w, 0}}, {Link: w.standby, Told: told{w, 1}},
		},
		Home: w.home, Own: w.ownPods, Said: w.saidPods, Services: w, History: func() edge.History { return 0 }, View: w.view,
	})
	return w
}

// run1 runs the follower while the test does something.
func run1(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if err := w.follower.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		defer done.Wait()
		defer cancel()
		test(w)
	})
}

func podOf(name, node string, ready bool) *corev1.Pod {
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	if !ready {
		condition.Status, condition.Reason = corev1.ConditionFalse, "ContainersNotReady"
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{condition},
		},
	}
}

func (w *world) object(p *corev1.Pod) stream.Object {
	raw, err := p.Marshal()
	if err != nil {
		w.t.Fatal(err)
	}
	return stream.Object{Key: stream.Key{Namespace: p.Namespace, Name: p.Name}, Revision: 10, Raw: raw}
}

func (w *world) ownPods(context.Context) (stream.Snapshot, bool) {
	w.mu.Lock()
	w.looks++
	took := w.took
	w.mu.Unlock()
	time.Sleep(took)
	w.mu.Lock()
	defer w.mu.Unlock()
	return stream.Snapshot{
		Type: stream.Type{Encoding: stream.Protobuf}, Revision: 50, Objects: []stream.Object{w.object(w.own)},
	}, true
}

func (w *world) saidPods() (all []stream.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.said {
		all = append(all, w.object(p))
	}
	return all
}

func (w *world) says(pods ...*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = pods
	w.follower.Changed()
}

// Begin gives the Services.
func (w *world) Begin(context.Context) (stream.Snapshot, stream.Watch, error) {
	if w.denied {
		return stream.Snapshot{}, nil, errors.New("denied")
	}
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec:       corev1.ServiceSpec{PublishNotReadyAddresses: w.wants},
	}
	raw, err := s.Marshal()
	if err != nil {
		w.t.Fatal(err)
	}
	return stream.Snapshot{
		Type: stream.Type{Encoding: stream.Protobuf}, Revision: 5,
		Objects: []stream.Object{{Key: stream.Key{Namespace: "ns", Name: "web"}, Revision: 5, Raw: raw}},
	}, still{}, nil
}

// still is a watch without news.
type still struct{}

func (still) Next(ctx context.Context) ([]stream.Event, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}
func (still) Close() error { return nil }

// told is what a coordinator tells.
type told struct {
	of   *world
	slot int
}

func (c told) Presence(ctx context.Context, pods bool, hear func(edge.State)) {
	w := c.of
	if pods != (c.slot == w.home.Get()) {
		w.t.Errorf("of slot %d Pods are followed: %t", c.slot, pods)
	}
	w.mu.Lock()
	w.streams++
	w.hear[c.slot] = hear
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear[c.slot] = nil
}

func (w *world) tells(l edge.State) {
	w.t.Helper()
	w.tellsIn(0, l)
}

func (w *world) tellsIn(slot int, l edge.State) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	hear := w.hear[slot]
	w.mu.Unlock()
	if hear == nil {
		w.t.Fatalf("nobody hears slot %d", slot)
	}
	hear(l)
}

// ready says whether an endpoint of a Pod is shown as ready, by a slice of the cloud that says that it is or is not.
func (w *world) ready(pod, node string, cloud bool) bool {
	w.t.Helper()
	time.Sleep(2 * gather)
	synctest.Wait()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-1", ResourceVersion: "20", Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.1"}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &cloud},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: pod, UID: types.UID("uid-" + pod)},
		}},
	}
	raw, err := s.Marshal()
	if err != nil {
		w.t.Fatal(err)
	}
	look, _ := w.view.Look()
	raw, _ = look.Show(stream.Type{
		GroupVersionKind: schema.GroupVersionKind{Group: discoveryv1.GroupName, Version: "v1", Kind: "EndpointSlice"},
		Encoding:         stream.Protobuf,
	}, stream.Object{Key: stream.Key{Namespace: "ns", Name: "web-1"}, Revision: 20, Raw: raw})
	var shown discoveryv1.EndpointSlice
	if err := shown.Unmarshal(raw); err != nil || len(shown.Endpoints) != 1 {
		w.t.Fatalf("%+v, %v", shown, err)
	}
	return ptr.Deref(shown.Endpoints[0].Conditions.Ready, true)
}

func (w *world) expect(why, pod, node string, cloud, want bool) {
	w.t.Helper()
	if got := w.ready(pod, node, cloud); got != want {
		w.t.Errorf("%s: %s of %s is shown ready: %t", why, pod, node, got)
	}
}

func TestWithoutACutNothingIsFollowed(t *testing.T) {
	run1(t, func(w *world) {
		w.says(podOf("own", "n1", false))
		for _, state := range []link.State{link.Up, link.Failing, link.Relayed, link.Unknown} {
			w.cloud.Set(state)
			w.expect("there is no cut: "+state.String(), "own", "n1", true, true)
		}
		if w.streams != 0 {
			t.Errorf("the coordinator was asked %d times", w.streams)
		}
	})
}

func TestACut(t *testing.T) {
	run1(t, func(w *world) {
		w.cloud.Set(link.Down)
		w.expect("all is as it was", "own", "n1", true, true)
		w.says(podOf("own", "n1", false))
		w.expect("kubelet has said so", "own", "n1", true, false)
		w.expect("nobody knows of another", "a", "n2", true, true)
		w.tells(whole(line("i", pod("a", "n2", said, unready))))
		w.expect("the coordinator has said so", "a", "n2", true, false)
		w.tells(line("i", pod("a", "n2", said)))
		w.expect("it is ready again", "a", "n2", true, true)
		w.tells(line("i", pod("a", "n2", said, unready)))

		w.lan.Set(link.Down) // the coordinator starts anew
		w.expect("the coordinator is gone", "a", "n2", true, false)
		time.Sleep(time.Minute)
		w.lan.Set(link.Up)
		time.Sleep(time.Second)
		w.tells(whole(line("k")))
		w.expect("it is back, and empty", "a", "n2", true, false)
	})
}

// TestAStorm: in a storm of statuses there is something new all the time, and a look goes over all Pods of the pool.
func TestAStorm(t *testing.T) {
	run1(t, func(w *world) {
		w.cloud.Set(link.Down)
		w.expect("all is as it was", "own", "n1", true, true)
		w.tells(whole(line("i", pod("a", "n2", said))))
		w.expect("it is ready", "a", "n2", true, true)
		w.mu.Lock()
		w.took, w.looks = 10*time.Millisecond, 0
		w.mu.Unlock()
		for i := range 500 { // for 5 s
			time.Sleep(10 * time.Millisecond)
			if i%2 == 0 {
				w.tells(line("i", pod("a", "n2", said), pod("b", "n2", said)))
				w.tells(line("i", pod("a", "n2", said, unready)))
			} else {
				w.says(podOf("own", "n1", i%3 == 0))
			}
		}
		time.Sleep(restFor * w.took)
		w.expect("the last that was told", "a", "n2", true, false)
		w.mu.Lock()
		defer w.mu.Unlock()
		if looks := w.looks; looks < 8 || looks > 12 {
			t.Errorf("it has looked %d times in 5 s, of which all take %v, want a fiftieth", looks, time.Duration(looks)*w.took)
		}
	})
}

func TestTheCloudTakesOver(t *testing.T) {
	for _, back := range []link.State{link.Up, link.Relayed} { // over its own line, or a neighbour's
		t.Run(back.String(), func(t *testing.T) { theCloudTakesOver(t, back) })
	}
}

func theCloudTakesOver(t *testing.T, back link.State) {
	run1(t, func(w *world) {
		w.cloud.Set(link.Down)
		w.tells(whole(line("i", pod("a", "n2"), pod("b", "n2", said, unready))))
		w.says(podOf("own", "n1", false))
		w.expect("what the cloud has is newer", "a", "n2", true, true)
		time.Sleep(20 * time.Second)
		w.cloud.Set(back)
		w.expect("the cloud has taken it for dead", "a", "n2", false, true)
		w.expect("the cloud has not heard it", "b", "n2", true, false)
		w.expect("nor this", "own", "n1", true, false)
		time.Sleep(5 * time.Second)
		w.tells(line("i", pod("a", "n2", overruled, madeAt(30)), pod("b", "n2", overruled, madeAt(30))))
		w.expect("as before", "a", "n2", false, true)
		w.expect("as before", "b", "n2", true, false)
		w.tells(line("i", pod("a", "n2", unready, madeAt(40)), pod("b", "n2", madeAt(40))))
		w.expect("kubelet tells the cloud something else", "a", "n2", true, false)
		w.expect("kubelet tells the cloud something else", "b", "n2", false, true)
		time.Sleep(settling)
		w.expect("the cloud has something else still", "own", "n1", true, false)
		time.Sleep(longest - settling)
		for _, cloud := range []bool{true, false} {
			w.expect("it is over", "a", "n2", cloud, cloud)
			w.expect("it is over", "own", "n1", cloud, cloud)
		}
		synctest.Wait()
		asked := w.streams
		time.Sleep(time.Hour)
		synctest.Wait()
		if w.streams != asked || w.hear[0] != nil {
			t.Errorf("%d streams more; the last is read still: %v", w.streams-asked, w.hear[0] != nil)
		}
	})
}

// TestTheCloudAgrees: once the cloud has what the pool knows, its word counts.
func TestTheCloudAgrees(t *testing.T) {
	run1(t, func(w *world) {
		w.cloud.Set(link.Down)
		w.says(podOf("own", "n1", false))
		w.expect("the cloud is cut off", "own", "n1", true, false)
		w.cloud.Set(link.Up)
		time.Sleep(settling + 10*time.Second)
		w.expect("the cloud has not heard it", "own", "n1", true, false)
		w.expect("now it has", "own", "n1", false, false)
		time.Sleep(2 * lookAgain)
		w.expect("the cloud's word counts", "own", "n1", true, true)
	})
}

// TestALinkThatFlaps: a new cut while the cloud takes over is the same cut.
func TestALinkThatFlaps(t *testing.T) {
	run1(t, func(w *world) {
		w.cloud.Set(link.Down)
		w.tells(whole(line("i", pod("b", "n2", said, unready))))
		for range 5 {
			w.cloud.Set(link.Up)
			time.Sleep(settling - time.Second)
			w.expect("the cloud is back for a moment", "b", "n2", true, false)
			w.cloud.Set(link.Down)
			time.Sleep(time.Second)
			w.expect("and gone", "b", "n2", true, false)
		}
		w.cloud.Set(link.Failing)
		time.Sleep(time.Hour)
		w.expect("the cloud is there and does not answer", "b", "n2", true, false)
	})
}

func TestASilentNode(t *testing.T) {
	run1(t, func(w *world) {
		time.Sleep(20 * time.Second)
		w.cloud.Set(link.Down)
		l := whole(line("i"))
		l.Nodes = []edge.NodePresence{{Name: "n2", Silent: true, GraceSeconds: 50}, {Name: "n3", GraceSeconds: 50}}
		w.tells(l)
		w.expect("the coordinator has been reached for 20 s", "a", "n2", true, true)
		for range 3 {
			time.Sleep(10 * time.Second)
			w.tells(line("i")) // nothing new
		}
		w.expect("for 50 s", "a", "n2", true, false)
		w.expect("another renews", "a", "n3", true, true)
		l.Whole, l.Nodes = false, []edge.NodePresence{{Name: "n2", GraceSeconds: 50}}
		w.tells(l)
		w.expect("it is back", "a", "n2", true, true)
	})
}

// TestSilentAtOneCoordinator: the way from n2 to one of two coordinators is cut, and the other hears it.
func TestSilentAtOneCoordinator(t *testing.T) {
	n2 := func(instance string, silent bool) edge.State {
		l := whole(line(instance))
		l.Nodes = []edge.NodePresence{{Name: "n2", Silent: silent, GraceSeconds: 50}}
		return l
	}
	run1(t, func(w *world) {
		w.standby.Set(link.Up)
		time.Sleep(time.Minute)
		w.cloud.Set(link.Down)
		w.tells(n2("i", true))
		w.expect("the standby has yet to say", "a", "n2", true, true)
		w.tellsIn(1, n2("k", false))
		time.Sleep(time.Minute)
		w.tellsIn(1, line("k")) // nothing new
		w.expect("it hears it", "a", "n2", true, true)
		w.tellsIn(1, n2("k", true))
		w.expect("now it is silent there, too", "a", "n2", true, false)
		w.standby.Set(link.Down)
		w.expect("the standby is not reached any more", "a", "n2", true, false)
		w.standby.Set(link.Up)
		w.tellsIn(1, n2("l", false))
		w.expect("it is back, and hears it", "a", "n2", true, true)

		w.tellsIn(1, whole(line("m")))
		w.expect("it came back empty, and was reached for some seconds", "a", "n2", true, true)
		time.Sleep(50 * time.Second)
		w.expect("it came back empty, and what the one before heard is no word about now", "a", "n2", true, false)
	})
	run1(t, func(w *world) { // who tells nothing is not waited for
		w.standby.Set(link.Up)
		time.Sleep(time.Minute)
		w.cloud.Set(link.Down)
		w.tells(n2("i", true))
		time.Sleep(firstWord)
		w.expect("only one tells", "a", "n2", true, false)
	})
}

// TestAnotherHome: Pods are believed as home tells of them.
func TestAnotherHome(t *testing.T) {
	run1(t, func(w *world) {
		w.standby.Set(link.Up)
		w.cloud.Set(link.Down)
		w.tells(whole(line("i", pod("a", "n2", said, unready))))
		w.tellsIn(1, whole(line("k", pod("a", "n2", said))))
		w.expect("home says so", "a", "n2", true, false)
		w.home.Set(1)
		time.Sleep(time.Second)
		w.expect("as home said", "a", "n2", true, false)
		w.tellsIn(1, whole(line("k", pod("a", "n2", said))))
		w.expect("the other is home", "a", "n2", false, true)
		w.tells(whole(line("i")))
		w.expect("the first says nothing of Pods any more", "a", "n2", false, true)
	})
}

func TestServices(t *testing.T) {
	run1(t, func(w *world) {
		w.wants = true
		w.cloud.Set(link.Down)
		w.says(podOf("own", "n1", false))
		w.expect("the Service wants all endpoints", "own", "n1", true, true)
	})
	run1(t, func(w *world) {
		w.denied = true
		w.cloud.Set(link.Down)
		w.says(podOf("own", "n1", false))
		w.expect("nobody knows what the Service wants", "own", "n1", true, true)
	})
}
