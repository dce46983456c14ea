package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/e2e/watchcheck"
	"yurtcoordinator/lab/load"
)

var cloudLieScenarios = []kit.Scenario{
	{
		Name: "empty-list", Lab: kit.HubsAlone, Run: emptyList,
		Doc: "After a restart the cloud answers an empty list for 20 s, then refuses, then has no etcd, and a hub starts " +
			"meanwhile. Nobody in the pool loses anything; a real deletion of everything goes through at once.",
	},
}

// story is an audience whose truth is recorded in chapters, between which nothing is written. A restart of kube-apiserver ends
// every watch of the cloud itself with 410, also the one that records the truth. So no single recording can cover the time
// before and after a restart.
//
// Two chapters are joined only if the second begins with exactly the objects that the first ended with, each at the same
// revision. That does not exclude an object that came and went in between; but only the scenario writes, and it makes no such
// object.
type story struct {
	*kit.Audience
	stop  func() // ends the recording of the present chapter
	facts []*watchcheck.Facts
}

// tell begins to record the truth about a collection; see T.Record.
func tell(t *kit.T, c kit.Collection) *story {
	s := &story{Audience: &kit.Audience{Collection: c}}
	s.resume(t)
	return s
}

// pause ends a chapter. Nothing may be written from before it until resume has returned.
func (s *story) pause(t *kit.T) {
	ctx, cancel := context.WithTimeout(t.Ctx, 60*time.Second)
	defer cancel()
	facts, err := s.Truth.Facts(ctx)
	t.Must(err)
	s.facts = append(s.facts, facts)
	s.stop()
}

// resume begins the next chapter, when the cloud tells the truth again.
func (s *story) resume(t *kit.T) {
	ctx, stop := context.WithCancel(t.Ctx)
	s.Truth, s.stop = t.Truth(ctx, s.Collection), stop
}

// judge is audience.judge over all chapters.
func (s *story) judge(t *kit.T, expired map[string]int) {
	s.CaughtUp(t, 60*time.Second)
	s.pause(t)
	facts, err := joined(s.facts)
	t.Must(err)
	s.JudgeBy(t, facts, expired)
}

// joined makes one recording of several chapters.
func joined(chapters []*watchcheck.Facts) (*watchcheck.Facts, error) {
	whole := *chapters[0]
	content := maps.Clone(whole.Initial)
	if content == nil {
		content = map[string]watchcheck.Item{}
	}
	for i, next := range chapters {
		if i > 0 {
			if next.Start < whole.End {
				return nil, fmt.Errorf("chapter %d begins at revision %d, before %d", i, next.Start, whole.End)
			}
			for key, item := range next.Initial {
				if content[key] != item {
					return nil, fmt.Errorf("chapter %d begins with %s as %+v, it was %+v", i, key, item, content[key])
				}
			}
			if len(content) != len(next.Initial) {
				return nil, fmt.Errorf("chapter %d begins with %d objects, there were %d", i, len(next.Initial), len(content))
			}
			whole.Changes = append(whole.Changes[:len(whole.Changes):len(whole.Changes)], next.Changes...)
			whole.End = next.End
		}
		for _, c := range next.Changes {
			content[c.Key] = c.Item
			if c.Type == watch.Deleted {
				delete(content, c.Key)
			}
		}
	}
	return &whole, nil
}

// readers list all EndpointSlices again and again, through each hub and, as the operator on site, at the coordinator.
type readers struct {
	stop func()
	all  sync.WaitGroup

	mu sync.Mutex
	// wrong are answers that differed from the truth. failed counts, for each reader, the requests without an answer.
	wrong  []error
	failed map[string]int
	read   map[string]int
	// longest is how long a reader was without an answer.
	longest map[string]time.Duration
}

// lieAfterRestart is how long the cloud goes on to lie to a hub that was restarted. The hub may give no answers for that time:
// it does not answer from its disk while it can ask the cloud, and it doubts what the cloud says.
const lieAfterRestart = 14 * time.Second

// readAll starts readers that expect the present objects, by name and uid.
func readAll(t *kit.T) *readers {
	want, err := present(t.Ctx, t.Cloud)
	t.Must(err)
	clients := map[string]kubernetes.Interface{}
	for _, node := range t.Pool.Nodes() {
		clients["the hub of "+node] = t.Node(node).Client()
	}
	operator, err := t.Lab.CoordinatorConfig(1, lab.Operator)
	t.Must(err)
	clients["the coordinator"], err = kubernetes.NewForConfig(operator)
	t.Must(err)
	ctx, stop := context.WithCancel(t.Ctx)
	r := &readers{stop: stop, failed: map[string]int{}, read: map[string]int{}, longest: map[string]time.Duration{}}
	for name, client := range clients {
		r.all.Go(func() { r.follow(ctx, name, client, want) })
	}
	return r
}

func (r *readers) follow(ctx context.Context, name string, client kubernetes.Interface, want map[string]types.UID) {
	every := time.NewTicker(250 * time.Millisecond)
	defer every.Stop()
	for last := time.Now(); ; {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		has, err := present(try, client)
		cancel()
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		switch {
		case err != nil:
			r.failed[name]++
		case !maps.Equal(has, want):
			r.wrong = append(r.wrong, fmt.Errorf("at %s %s has %d EndpointSlices, not the %d that there are",
				time.Now().Format(time.TimeOnly), name, len(has), len(want)))
		default:
			r.read[name]++
			r.longest[name] = max(r.longest[name], time.Since(last))
			last = time.Now()
		}
		r.mu.Unlock()
	}
}

// right ends the readers. Only the reader on a node whose hub was killed may have had no answer.
func (r *readers) right(t *kit.T, killed string) {
	r.stop()
	r.all.Wait()
	if len(r.wrong) > 0 {
		t.Fail("%d answers were wrong: %w", len(r.wrong), errors.Join(r.wrong[:min(10, len(r.wrong))]...))
	}
	if len(r.read) != len(t.Pool.Nodes())+1 {
		t.Fail("not all readers were answered: %v", r.read)
	}
	t.Say("all answers were right: %v; without an answer: %v", r.read, r.failed)
	without := r.longest["the hub of "+killed]
	t.Figure("restarted_hub_without_answer_s", without.Seconds())
	if without > lieAfterRestart+15*time.Second {
		t.Fail("the hub that was restarted did not answer for %v", without)
	}
	for name, n := range r.failed {
		if name != "the hub of "+killed {
			t.Fail("%s did not answer %d times", name, n)
		}
	}
}

// present returns the EndpointSlices of the load, by name.
func present(ctx context.Context, client kubernetes.Interface) (map[string]types.UID, error) {
	list, err := client.DiscoveryV1().EndpointSlices(load.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]types.UID{}
	for _, s := range list.Items {
		all[s.Name] = s.UID
	}
	return all, nil
}

// moveOn writes an object that is no pool resource. Then the cloud is at a revision that no hub knows. A watch cache that
// begins at this revision answers every hub with 410.
func moveOn(t *kit.T) {
	_, err := t.Cloud.CoreV1().ConfigMaps(kit.Namespace).Create(t.Ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "moved-on-"}}, metav1.CreateOptions{})
	t.Must(err)
}

// someChanges changes the load for a moment and waits until all clients know.
func (s *story) someChanges(t *kit.T, spec load.Spec) {
	changes := t.Churn(spec, 30)
	t.Hold(2*time.Second, "30 changes a second")
	if t.End(changes) == 0 {
		t.Fail("nothing was changed")
	}
	began := time.Now()
	s.CaughtUp(t, 30*time.Second)
	t.Say("all clients have the changes (%.2fs)", time.Since(began).Seconds())
}

func emptyList(t *kit.T) {
	leader := t.Pool.SettledAway()
	s := tell(t, kit.EndpointSlices)
	spec := load.Spec{Services: 20, EndpointsEach: 10, Nodes: t.Pool.Nodes()}
	_, err := load.Services(t.Ctx, t.Cloud, spec)
	t.Must(err)
	t.Pool.Shared(30*time.Second, s.Name)
	s.Seat(t, t.Pool.Nodes())
	s.ListedOnce(t)
	t.Must(t.Lab.Cloud(t.Ctx, lab.Kill, lab.KubeControllerManager)) // see lab.Client.Cloud
	s.someChanges(t, spec)
	readers := readAll(t)

	const empty = "--etcd-prefix=/empty"
	expired := map[string]int{leader: 1} // its hub is killed
	for _, f := range []struct {
		what string
		do   func()
		undo func()
		// lists is how many lists over the WAN the lie may cost.
		lists int
	}{
		{"the cloud says that there is nothing, for 20 s; meanwhile the leader's hub is killed and started", func() {
			t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeAPIServer, empty, "--authorization-mode=AlwaysAllow"))
			if has, err := present(t.Ctx, t.Cloud); err != nil || len(has) > 0 {
				t.Fail("the cloud says that there are %d EndpointSlices, %v: want none", len(has), err)
			}
			t.Hold(6*time.Second, "the cloud is empty")
			t.Must(t.Lab.Node(t.Ctx, lab.Restart, leader, lab.Hub))
			t.Hold(lieAfterRestart, "the cloud is empty, and the hub of "+leader+" has lost what it had")
		}, func() { t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeAPIServer)) }, 5},
		{"the cloud refuses the nodes for 8 s: it has lost its roles", func() {
			t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeAPIServer, empty))
			t.Hold(8*time.Second, "403 for everybody")
		}, func() { t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeAPIServer)) }, 3},
		{"the cloud has no etcd for 8 s", func() {
			t.Must(t.Lab.Cloud(t.Ctx, lab.Kill, lab.Etcd))
			t.Hold(8*time.Second, "the cloud answers errors, if at all")
		}, func() {
			t.Must(t.Lab.Cloud(t.Ctx, lab.Start, lab.Etcd))
			t.Eventually(30*time.Second, "the cloud answers", func() error {
				_, err := present(t.Ctx, t.Cloud)
				return err
			})
		}, 1},
	} {
		t.Say("FAULT %s", f.what)
		before := len(t.Pool.ListsOverWAN(s.Resource))
		s.pause(t)
		moveOn(t)
		f.do()
		f.undo()
		healed := time.Now()
		s.resume(t)
		t.Pool.Settled(30 * time.Second)
		// A hub that has it from the cloud goes back once the coordinator's copy advances, which happens once a minute.
		t.Pool.Shared(90*time.Second, s.Name)
		s.someChanges(t, spec)
		t.Figure("slowest_recovery_s", time.Since(healed).Seconds())
		lists := t.Pool.NewLists(s.Resource, before)
		t.Figure("lists_over_wan_per_fault", float64(len(lists)))
		if len(lists) > f.lists {
			t.Fail("%d lists over the WAN, want at most %d", len(lists), f.lists)
		}
		for _, node := range t.Pool.Nodes() {
			expired[node]++
		}
	}
	readers.right(t, leader)

	t.Say("all EndpointSlices of the load are deleted in truth")
	before := len(t.Pool.ListsOverWAN(s.Resource))
	t.Must(t.Cloud.DiscoveryV1().EndpointSlices(load.Namespace).DeleteCollection(t.Ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}))
	took := t.Eventually(10*time.Second, "there are none through any hub, nor at the coordinator", func() error {
		operator, err := t.Lab.CoordinatorConfig(1, lab.Operator)
		t.Must(err)
		atCoordinator := t.Client(operator)
		clients := []kubernetes.Interface{atCoordinator}
		for _, node := range t.Pool.Nodes() {
			clients = append(clients, t.Node(node).Client())
		}
		for _, c := range clients {
			if has, err := present(t.Ctx, c); err != nil || len(has) > 0 {
				return fmt.Errorf("%d are left, %w", len(has), err)
			}
		}
		return nil
	})
	t.Figure("real_emptying_s", took.Seconds())
	if n := len(t.Pool.NewLists(s.Resource, before)); n > 0 {
		t.Fail("the emptying cost %d lists over the WAN, want none", n)
	}
	s.judge(t, expired)
}
