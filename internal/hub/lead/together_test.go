package lead

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
)

func TestTogether(t *testing.T) {
	now := time.Unix(1000, 0)
	old, fresh, due := edge.Life{From: 0, Until: 1250}, edge.Life{From: 900, Until: 1900}, edge.Life{From: 0, Until: 1050}
	hubs := map[edge.NodeName]edge.HubReport{
		"a": {Link: "up", Settings: 3, Certificates: map[string]edge.Life{"client": old, "serving": fresh}},
		"b": {Link: "up", Settings: 2, Troubles: []edge.HubTrouble{edge.TroubleDisk, edge.TroubleServing},
			Certificates: map[string]edge.Life{"client": fresh, "serving": due}},
		"c": {Link: "down", Settings: 3, Troubles: []edge.HubTrouble{edge.TroubleDisk}},
	}
	lines := map[edge.NodeName]edge.Line{
		"a": {Answer: 20 * time.Millisecond, Lost: 1}, "b": {Answer: 90 * time.Millisecond, Lost: 2},
	}
	carried := edge.Carried{"watch": {1, 2}}
	got := together(hubs, lines, carried, now)
	want := edge.PoolHubs{
		Links: map[string]int{"up": 2, "down": 1}, Carried: carried, OldestSettings: 2, NewestSettings: 3, Answer: 90, Lost: 3,
		Certificates: map[string]edge.Life{"client": old, "serving": due},
		Troubles:     map[edge.HubTrouble][]edge.NodeName{edge.TroubleDisk: {"b", "c"}, edge.TroubleServing: {"b"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
	if got := together(nil, nil, nil, now); got.String() != `{"term":0}` {
		t.Errorf("of no hubs it says %s", got)
	}
}

// What a leader tells is as short for a large pool as for a small one.
func TestTogetherIsShort(t *testing.T) {
	report := func(n int) int {
		hubs := map[edge.NodeName]edge.HubReport{}
		for i := range n {
			hubs[edge.NodeName(fmt.Sprintf("node-%04d", i))] = edge.HubReport{
				Link: "up", Settings: 1, Troubles: edge.HubTroubles,
				Certificates: map[string]edge.Life{"client": {From: 1, Until: 2}},
			}
		}
		p := together(hubs, nil, nil, time.Unix(10, 0))
		if want := max(0, n-edge.MostTroubled) * len(edge.HubTroubles); p.More != want {
			t.Errorf("of %d nodes with trouble %d are untold, want %d", n, p.More, want)
		}
		return len(p.String())
	}
	if few, many := report(edge.MostTroubled), report(1000); many > few+20 {
		t.Errorf("a report of %d hubs has %d bytes, one of 1000 %d", edge.MostTroubled, few, many)
	}
}

func TestTally(t *testing.T) {
	var tally tally
	say := func(node edge.NodeName, sent uint64) {
		tally.count(map[edge.NodeName]edge.HubReport{node: {Carried: edge.Carried{"watch": {sent, 0}}}})
	}
	for _, step := range []struct {
		node edge.NodeName
		sent uint64
		sum  uint64
	}{{"a", 100, 0}, {"a", 130, 30}, {"b", 1000, 30}, {"b", 1001, 31}, {"a", 5, 36}, {"a", 5, 36}} {
		say(step.node, step.sent)
		if got := tally.sum["watch"][0]; got != step.sum {
			t.Errorf("after %s said %d: %d, want %d", step.node, step.sent, got, step.sum)
		}
	}
}

// TestTallyIsBounded: a coordinator that invents nodes fills no memory, and makes no hub's traffic count anew.
func TestTallyIsBounded(t *testing.T) {
	var tally tally
	hub := func(sent uint64) edge.HubReport { return edge.HubReport{Carried: edge.Carried{"watch": {sent, 0}}} }
	for i := range 4 {
		hubs := map[edge.NodeName]edge.HubReport{"a": hub(100 + uint64(i))}
		for j := range maxBeats - 1 {
			hubs[edge.NodeName(fmt.Sprintf("invented-%d-%d", i, j))] = hub(1)
		}
		tally.count(hubs)
	}
	if n := len(tally.last); n > 2*maxBeats {
		t.Errorf("%d hubs are remembered", n)
	}
	if got := tally.sum["watch"][0]; got != 3 {
		t.Errorf("%d bytes are counted, want 3", got)
	}
}

// The cloud is told at once, with the next report, that a hub has trouble, and now and then what counters say.
func TestHowOftenHubsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, cloud := hubtest.NewLeaseServer(10), fake.NewClientset()
		var mu sync.Mutex // the bubble's clock alone does not order the reporter's writes after the test's reads
		var told []bool
		var last edge.PoolHubs
		cloud.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			lease := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease).DeepCopy()
			text, there := lease.Annotations[edge.AnnotationHubs]
			mu.Lock()
			defer mu.Unlock()
			if told = append(told, there); there {
				last, _ = edge.ParsePoolHubs(text)
			}
			return true, lease, nil
		})
		sent := uint64(0)
		say := func(troubles ...edge.HubTrouble) {
			sent += 100
			report := edge.HubReport{Link: "up", Carried: edge.Carried{"watch": {sent, 0}}, Troubles: troubles}.String()
			if pool.Peek(corev1.NamespaceNodeLease, "a") == nil {
				_, err := pool.Leases(corev1.NamespaceNodeLease).Create(t.Context(), &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "a"},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
			}
			pool.Edit(corev1.NamespaceNodeLease, "a", func(l *coordinationv1.Lease) {
				l.Annotations = map[string]string{edge.AnnotationHub: report}
			})
		}
		say()
		r := NewReporter(ReporterConfig{Node: "a", Pool: "p1", Cloud: cloud.CoordinationV1()})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		term := edge.Term{Transitions: 1, Valid: func() bool { return true }}
		beats := follow(t, pool).Beats
		go func() { ended <- r.Run(ctx, Source{Beats: beats}, term) }()
		synctest.Wait()
		live := func(lasts time.Duration, troubles ...edge.HubTrouble) {
			for end := time.Now().Add(lasts); time.Now().Before(end); {
				time.Sleep(10 * time.Second)
				say(troubles...)
			}
			synctest.Wait()
		}
		soFar := func() ([]bool, edge.PoolHubs) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(told), last
		}
		live(12*sayEvery + 5*time.Second)
		seen, latest := soFar()
		if want := []bool{true, false, false, false, false, true, false, false, false, false, true}; len(seen) < len(want) ||
			!slices.Equal(seen[:len(want)], want) {
			t.Errorf("told with reports: %v, want %v", seen, want)
		}
		if carried := latest.Carried["watch"][0]; carried == 0 || carried >= sent {
			t.Errorf("of %d bytes %d are told", sent, carried)
		}
		n := len(seen)
		live(2*sayEvery, edge.TroubleDisk)
		seen, latest = soFar()
		if !slices.Contains(seen[n:min(n+2, len(seen))], true) || len(latest.Troubles[edge.TroubleDisk]) != 1 {
			t.Errorf("of trouble it was told %v, %+v", seen[n:], latest)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
