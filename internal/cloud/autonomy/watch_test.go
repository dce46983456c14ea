package autonomy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

// podServer is the API server as the watch of Pods sees it.
type podServer struct {
	client.WithWatch // nil: what is not below must not be called

	mu       sync.Mutex
	calls    []string
	watches  []*watch.FakeWatcher
	revision string
	fail     error // of a watch that begins
}

func (s *podServer) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf("list limit=%d", o.Limit))
	list.(*corev1.PodList).ResourceVersion = s.revision
	return nil
}

func (s *podServer) Watch(_ context.Context, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	o := (&client.ListOptions{}).ApplyOptions(opts).AsListOptions()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, "watch "+o.ResourceVersion)
	if o.FieldSelector != "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed" || !o.AllowWatchBookmarks ||
		*o.TimeoutSeconds < 600 || *o.TimeoutSeconds > 1200 {
		return nil, fmt.Errorf("watch with %+v", o)
	}
	if s.fail != nil {
		return nil, s.fail
	}
	w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 10})
	s.watches = append(s.watches, w)
	return w, nil
}

// said takes the calls since it was last asked.
func (s *podServer) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// current is the watch that began last.
func (s *podServer) current() *watch.FakeWatcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[len(s.watches)-1]
}

func newQueue() control.Queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
}

// drained takes all names from a queue.
func drained(q control.Queue) []string {
	var names []string
	for q.Len() > 0 {
		r, _ := q.Get()
		q.Done(r)
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

func bookmark(revision string) *corev1.Pod {
	p := &corev1.Pod{}
	p.ResourceVersion = revision
	return p
}

func podOn(node, name, revision string) *corev1.Pod {
	p := aPod(both(300, 300), nil)
	p.Name, p.Spec.NodeName, p.ResourceVersion = name, node, revision
	return p
}

func TestPodWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &podServer{revision: "7"}
		w := newWorld(t)
		w.policy.pods = s
		p := w.policy
		pw := &podWatch{policy: p, nodes: make(chan control.Queue, 1), pods: make(chan control.Queue, 1)}
		nodes, pods := newQueue(), newQueue()
		defer nodes.ShutDown()
		defer pods.ShutDown()
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), discard))
		ended := make(chan error, 1)
		go func() { ended <- pw.Start(ctx) }()
		expect := func(what string, calls []string, swept, single []string) {
			t.Helper()
			synctest.Wait()
			if got := s.said(); !slices.Equal(got, calls) {
				t.Errorf("%s: calls %q, want %q", what, got, calls)
			}
			if got := drained(nodes); !slices.Equal(got, swept) {
				t.Errorf("%s: sweeps %q, want %q", what, got, swept)
			}
			if got := drained(pods); !slices.Equal(got, single) {
				t.Errorf("%s: Pods %q, want %q", what, got, single)
			}
		}

		pw.nodes <- nodes
		pw.pods <- pods
		time.Sleep(time.Hour)
		expect("nobody is autonomous", nil, nil, nil)

		p.registry.put("n1", Terms{Rule: Kept, For: Forever})
		expect("a node is", []string{"list limit=1", "watch 7"}, []string{"n1"}, nil)

		s.current().Add(podOn("n1", "mine", "8"))
		s.current().Modify(podOn("n2", "other", "9"))
		s.current().Delete(podOn("n1", "gone", "10"))
		s.current().Action(watch.Bookmark, bookmark("20"))
		expect("Pods", nil, nil, []string{"mine"})

		s.current().Stop()
		time.Sleep(time.Second)
		expect("the watch ends in its time", []string{"watch 20"}, nil, nil)

		s.mu.Lock()
		s.fail = errors.New("no etcd")
		s.mu.Unlock()
		s.current().Stop()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := len(s.said()); n < 15 || n > 40 {
			t.Errorf("%d tries in 10 minutes", n)
		}
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		time.Sleep(time.Minute)
		expect("it goes on where it stood", []string{"watch 20"}, nil, nil)

		s.mu.Lock()
		s.revision = "500"
		s.mu.Unlock()
		p.registry.put("n2", Terms{Rule: Kept, For: 60})
		expired := apierrors.NewResourceExpired("too old").Status()
		s.current().Error(&expired)
		time.Sleep(time.Second)
		expect("its place is lost: all are swept", []string{"list limit=1", "watch 500"}, []string{"n1", "n2"}, nil)

		for _, node := range []edge.NodeName{"n1", "n2"} {
			_, put := p.registry.get(node)
			p.registry.drop(node, put)
		}
		synctest.Wait()
		if !s.current().IsStopped() {
			t.Error("the watch goes on for nobody")
		}
		time.Sleep(time.Hour)
		expect("nobody is autonomous any more", nil, nil, nil)

		p.registry.put("n3", Terms{Rule: Kept, For: 60})
		expect("one is again", []string{"list limit=1", "watch 500"}, []string{"n3"}, nil)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Start = %v", err)
		}
	})
}

func TestPodWatchThatMayNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &podServer{revision: "7", fail: apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no"))}
		w := newWorld(t)
		w.policy.pods = s
		w.policy.registry.put("n1", Terms{Rule: Kept, For: 60})
		q := newQueue()
		defer q.ShutDown()
		ctx, stop := context.WithTimeout(klog.NewContext(t.Context(), discard), time.Hour)
		defer stop()
		if began, err := w.policy.follow(ctx, q, q); began || err != nil {
			t.Errorf("follow = %t, %v", began, err)
		}
		if n := len(s.said()); n < 60 || n > 200 || q.Len() != 0 {
			t.Errorf("%d tries in an hour, %d enqueued", n, q.Len())
		}
	})
}

func TestPodWatchOfSomethingElse(t *testing.T) {
	w := newWorld(t)
	w.policy.registry.put("n1", Terms{Rule: Kept, For: 60})
	f := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
	f.Add(&corev1.Node{})
	revision, err := w.policy.read(t.Context(), f, "7", newQueue())
	if revision != "7" || err == nil || !strings.Contains(err.Error(), "*v1.Node") {
		t.Errorf("read = %s, %v", revision, err)
	}
}

// TestHeldPodIsLookedAtAgain: whoever made a hold may be gone; the echo of its write is enough.
func TestHeldPodIsLookedAtAgain(t *testing.T) {
	w := newWorld(t)
	w.policy.registry.put("n1", Terms{Rule: Kept, For: 3600})
	w.policy.sawPod(aPod(both(-1, -1), remember("300", "300", at(-4*time.Second))), worldQueue{w: w, of: "pod"})
	due, ok := w.due[task{"pod", reconcile.Request{NamespacedName: keyOf("p")}}]
	if !ok || !due.Equal(begin.Add(6*time.Second)) {
		t.Errorf("due at %v (%t)", due, ok)
	}
}
