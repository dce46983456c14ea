package bench

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"yurtcoordinator/lab"
)

func TestStandingOf(t *testing.T) {
	hub := func(name, role string) lab.NodeStatus {
		return lab.NodeStatus{Name: name, Hub: &lab.HubStatus{Role: role}}
	}
	for _, c := range []struct {
		name             string
		nodes            []lab.NodeStatus
		leader, follower string
	}{
		{"all have roles", []lab.NodeStatus{hub("host", "follower"), hub("a", "leader"), hub("b", "follower")}, "a", "b"},
		{"the coordinator's node leads", []lab.NodeStatus{hub("host", "leader"), hub("a", "follower")}, "host", "a"},
		{"nobody leads", []lab.NodeStatus{hub("a", "follower"), hub("b", "follower")}, "", ""},
		{"one is pending", []lab.NodeStatus{hub("a", "leader"), hub("b", "follower"), hub("c", "pending")}, "", ""},
		{"one does not answer", []lab.NodeStatus{hub("a", "leader"), hub("b", "follower"), {Name: "c"}}, "", ""},
		{"only the coordinator's node follows", []lab.NodeStatus{hub("host", "follower"), hub("a", "leader")}, "a", ""},
	} {
		got, ok := standingOf(lab.Status{Nodes: c.nodes}, "host")
		if want := c.leader != "" && c.follower != ""; ok != want {
			t.Errorf("%s: found %v, want %v", c.name, ok, want)
		} else if ok && (got.leader != c.leader || got.follower != c.follower || len(got.all) != len(c.nodes)) {
			t.Errorf("%s: %+v, want leader %s and follower %s", c.name, got, c.leader, c.follower)
		}
	}
}

func TestChanges(t *testing.T) {
	slice := func(revision, written string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: revision, Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: written},
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		events := watch.NewFake()
		go func() {
			time.Sleep(3 * time.Millisecond)
			events.Modify(slice("7", began.Format(time.RFC3339Nano)))
			events.Modify(slice("8", "")) // not of the load
			time.Sleep(time.Millisecond)
			cancel()
		}()
		got, err := changes(ctx, events)
		if err != nil || len(got) != 1 || got["7"].arrived.Sub(got["7"].written) != 3*time.Millisecond {
			t.Errorf("%+v, %v; want one change, after 3 ms", got, err)
		}
	})
	ended := watch.NewFake()
	ended.Stop()
	if _, err := changes(t.Context(), ended); err == nil {
		t.Error("a watch that ends is no error")
	}
	strange := watch.NewFakeWithChanSize(1, false)
	strange.Add(slice("9", ""))
	if _, err := changes(t.Context(), strange); err == nil {
		t.Error("an object that is added is no error")
	}
}

func TestSharedRows(t *testing.T) {
	s := Shared{
		Direct: Quantiles{4 * time.Millisecond, 9 * time.Millisecond},
		Hub:    Quantiles{7 * time.Millisecond, 31 * time.Millisecond},
		Added:  Quantiles{3 * time.Millisecond, 21 * time.Millisecond}, SteadyUpdates: 500,
		BurstUpdates: 20_000, BurstFor: 40 * time.Second,
		Follower: HubCost{
			Filled: Memory{RSS: 50e6, Anonymous: 20e6}, Updated: Memory{RSS: 65e6, Anonymous: 41e6}, Peak: 70e6,
			Steady: 100 * time.Millisecond, Burst: 4 * time.Second,
		},
		Leader: HubCost{Steady: 200 * time.Millisecond, Burst: 8 * time.Second},
		Plain:  HubCost{Steady: 200 * time.Millisecond, Burst: time.Second},
		Proxy:  Quantiles{5 * time.Millisecond, 12 * time.Millisecond},
	}
	over := map[string]bool{}
	got := Report{Rows: sharedRows(s)}
	for _, r := range got.Rows {
		over[r.Key] = r.Over()
	}
	for key, want := range map[string]bool{
		"fanout_p99": true, "hub_follower_filled_anonymous": false, "hub_follower_updated_anonymous": true,
		"hub_follower_updated_rss":         false,
		"hub_follower_cpu_per_1000_events": true, "hub_leader_cpu_per_1000_events": true,
		"hub_follower_cpu_per_1000_events_steady": false, "hub_leader_cpu_per_1000_events_steady": false,
	} {
		if is, ok := over[key]; !ok || is != want {
			t.Errorf("%s is over its budget: %v (there: %v), want %v", key, is, ok, want)
		}
	}
	for name, want := range map[string]float64{
		"fanout_p50_added_ms": 3, "hub_follower_peak_mb": 70, "hub_follower_cpu_per_1000_events_s": 0.2,
		"hub_leader_cpu_per_1000_events_steady_s": 0.4, "hub_leader_cpu_per_1000_events_steady_proxy_s": 0.4,
		"hub_follower_cpu_per_1000_events_steady_to_proxy_ratio": 0.5, "hub_leader_cpu_per_1000_events_to_proxy_ratio": 8,
		"fanout_p99_proxy_ms": 12,
	} {
		if v := got.Figures()[name]; v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
}
