package e2e

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var coordinatorScenarios = []Scenario{
	{
		Name: "coordinator-dies", Quick: true, Lab: pool, run: coordinatorDies,
		Doc: "the coordinator is killed and comes back empty: plain proxying goes on without an error, " +
			"and all is well again in 10 s",
	},
	{
		Name: "no-coordinator", Quick: true, Lab: plain(pool), run: noCoordinator,
		Doc: "--enable-coordinator=false: a hub is a plain proxy, " +
			"and a node that is cut off takes Kubernetes' own course",
	},
}

func plain(c lab.Config) lab.Config {
	c.NoCoordinator = true
	return c
}

// steadily sends a request through each node's hub five times a second until stop is called, which returns the errors.
func (t *T) steadily(nodes []string) (stop func() []error) {
	ctx, cancel := context.WithCancel(t.ctx)
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for _, name := range nodes {
		client := t.through(name)
		all.Go(func() {
			every := time.NewTicker(200 * time.Millisecond)
			defer every.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-every.C:
				}
				try, cancelTry := context.WithTimeout(ctx, 5*time.Second)
				_, err := client.CoreV1().Nodes().Get(try, name, metav1.GetOptions{})
				cancelTry()
				if err != nil && ctx.Err() == nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("through the hub of %s: %w", name, err))
					mu.Unlock()
				}
			}
		})
	}
	return func() []error {
		cancel()
		all.Wait()
		return errs
	}
}

// through returns a client that uses a node's hub, as the node.
func (t *T) through(node string) kubernetes.Interface {
	access, err := t.lab.HubConfig(node)
	t.must(err)
	client, err := kubernetes.NewForConfig(access)
	t.must(err)
	return client
}

func coordinatorDies(t *T) {
	t.settled(30 * time.Second)
	names := t.nodeNames()
	stop := t.steadily(names)
	t.say("killing the coordinator")
	killed := time.Now()
	coordinatorNode := t.coordinatorNode()
	t.must(t.lab.Node(t.ctx, lab.Kill, coordinatorNode, lab.Coordinator))
	if !t.cfg.Installed { // else kubelet has it back at once
		t.withoutCoordinator(killed)
	}

	t.say("starting the coordinator, which comes back empty")
	started := time.Now()
	t.must(t.lab.Node(t.ctx, lab.Start, coordinatorNode, lab.Coordinator))
	leader := t.settled(10 * time.Second)
	t.figure("start_to_all_well_s", time.Since(started).Seconds())
	if errs := stop(); len(errs) > 0 {
		t.fail("%d requests failed, the first: %w", len(errs), errs[0])
	}
	t.say("no request through a hub failed meanwhile")

	node := t.follower(leader)
	t.say("delegation works with the new coordinator: cutting the WAN link of %s", node)
	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, node, wire.Drop))
	t.delegated(node, cut)
	for _, name := range names {
		age := t.seen.largestAge(name, killed, time.Now())
		if age > t.cfg.Timing.Grace/2 {
			t.fail("the Lease of %s in the cloud went %v without being renewed", name, age)
		}
	}
}

// withoutCoordinator is the time after the coordinator was killed.
func (t *T) withoutCoordinator(killed time.Time) {
	t.eventually(10*time.Second, "all hubs are Pending", func() error {
		for name, h := range t.hubs() {
			if h.Role != rolePending {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
	t.figure("death_to_all_pending_s", time.Since(killed).Seconds())
	t.hold(2*t.cfg.Timing.Grace, "two grace periods without a coordinator")
	for _, name := range t.nodeNames() {
		t.must(t.seen.neverNotReady(name, killed))
	}
}

func noCoordinator(t *T) {
	names := t.nodeNames()
	node := names[len(names)-1]
	stop := t.steadily(names)
	t.eventually(10*time.Second, "the hubs have no role to play and reach the cloud", func() error {
		hubs := t.hubs()
		if len(hubs) != len(names) {
			return fmt.Errorf("%d hubs answer", len(hubs))
		}
		for name, h := range hubs {
			if h.Role != rolePending || h.Cloud != "up" || h.Coordinator != "none" {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
	t.hold(t.cfg.Timing.Grace, "a grace period of plain proxying")
	if errs := stop(); len(errs) > 0 {
		t.fail("%d requests failed, the first: %w", len(errs), errs[0])
	}
	t.say("cutting the WAN link of %s", node)
	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, node, wire.Drop))
	t.eventually(t.cfg.Timing.Grace+5*time.Second, node+" is NotReady, as without a hub", func() error {
		if n := t.seen.node(node); n.ready == corev1.ConditionTrue {
			return fmt.Errorf("it is Ready")
		}
		return nil
	})
	if n := t.seen.node(node); n.tainted || t.seen.lease(node).delegated {
		t.fail("%s is treated as delegated: %+v", node, n)
	}
	t.figure("cut_to_not_ready_s", time.Since(cut).Seconds())
	t.must(t.lab.Heal(t.ctx, lab.WAN, node))
	healed := time.Now()
	t.eventually(30*time.Second, node+" is Ready again", func() error {
		if n := t.seen.node(node); n.ready != corev1.ConditionTrue {
			return fmt.Errorf("Ready=%s", n.ready)
		}
		return nil
	})
	t.figure("heal_to_ready_s", time.Since(healed).Seconds())
}
