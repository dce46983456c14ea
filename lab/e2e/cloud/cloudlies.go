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
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/load"
)

var cloudLieScenarios = []kit.Scenario{
	{
		Name: "empty-list", Lab: kit.HubsAlone, Run: emptyList,
		Doc: "After a restart the cloud answers an empty list for 20 s, then refuses, then has no etcd, and a hub starts " +
			"meanwhile. Nobody in the pool loses anything; a real deletion of everything goes through at once.",
	},
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
func someChanges(t *kit.T, a *kit.Audience, spec load.Spec) {
	changes := t.Churn(spec, 30)
	t.Hold(2*time.Second, "30 changes a second")
	if t.End(changes) == 0 {
		t.Fail("nothing was changed")
	}
	began := time.Now()
	a.CaughtUp(t, 30*time.Second)
	t.Say("all clients have the changes (%.2fs)", time.Since(began).Seconds())
}

func emptyList(t *kit.T) {
	leader := t.Pool.SettledAway()
	a := t.Record(kit.EndpointSlices)
	spec := load.Spec{Services: 20, EndpointsEach: 10, Nodes: t.Pool.Nodes()}
	_, err := load.Services(t.Ctx, t.Cloud, spec)
	t.Must(err)
	t.Pool.Shared(30*time.Second, a.Name)
	a.Seat(t, t.Pool.Nodes())
	a.ListedOnce(t)
	t.Must(t.Lab.Cloud(t.Ctx, lab.Kill, lab.KubeControllerManager)) // see lab.Client.Cloud
	someChanges(t, a, spec)
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
		before := len(t.Pool.ListsOverWAN(a.Resource))
		a.Pause(t)
		moveOn(t)
		f.do()
		f.undo()
		healed := time.Now()
		a.Resume(t)
		t.Pool.Settled(30 * time.Second)
		// A hub that has it from the cloud goes back once the coordinator's copy advances, which happens once a minute.
		t.Pool.Shared(90*time.Second, a.Name)
		someChanges(t, a, spec)
		t.Figure("slowest_recovery_s", time.Since(healed).Seconds())
		lists := t.Pool.NewLists(a.Resource, before)
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
	before := len(t.Pool.ListsOverWAN(a.Resource))
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
	if n := len(t.Pool.NewLists(a.Resource, before)); n > 0 {
		t.Fail("the emptying cost %d lists over the WAN, want none", n)
	}
	a.Judge(t, expired)
}
