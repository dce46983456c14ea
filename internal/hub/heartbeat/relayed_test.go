package heartbeat

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/hub/link"
)

// wantRelayed checks that the cloud has kubelet's last heartbeat, marked, from the node itself, and that no leader is asked to
// forward it.
func (n *node) wantRelayed() {
	n.t.Helper()
	synctest.Wait()
	l := n.cloud.Peek(space, n.name)
	if marked, _ := delegatedLease(l); !marked || l.Annotations[edge.AnnotationRelayedBy] != n.relayed.String() {
		n.t.Errorf("the cloud's Lease bears %v, want the mark and who relays", l.Annotations)
	}
	if !renewTime(l).Equal(renewTime(n.lease)) || l.ResourceVersion != n.lease.ResourceVersion {
		n.t.Errorf("the cloud has %s at %s, kubelet %s at %s", renewTime(l), l.ResourceVersion, renewTime(n.lease),
			n.lease.ResourceVersion)
	}
	copied := n.coordinator.Peek(space, n.name)
	if annotation, label := delegatedLease(copied); annotation || label {
		n.t.Errorf("the copy asks for forwarding: %v, %v", copied.Annotations, copied.Labels)
	}
	if copied.Annotations[edge.AnnotationRelayedBy] != n.relayed.String() || copied.Annotations[edge.AnnotationRelaysAt] != "" {
		n.t.Errorf("the copy bears %v", copied.Annotations)
	}
	if said, ok := copied.Annotations[edge.AnnotationLine]; ok {
		n.t.Errorf("a node whose line is cut says of it %q", said)
	}
	if !renewTime(copied).Equal(renewTime(n.lease)) {
		n.t.Errorf("the copy has the stamp %s, kubelet's last is %s", renewTime(copied), renewTime(n.lease))
	}
}

// TestRelayed: over a neighbour's line a node writes its Lease itself, and says so; kubelet sees none of that. When the
// neighbour fails, a leader forwards the same heartbeat.
func TestRelayed(t *testing.T) {
	run(t, func(n *node) {
		n.relaysAt = "10.0.0.1:10269"
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.wantCloud()
		n.wantCopy(false)
		copied := n.coordinator.Peek(space, n.name)
		if at := copied.Annotations[edge.AnnotationRelaysAt]; at != n.relaysAt {
			t.Errorf("the copy says that it relays at %q", at)
		}

		n.cloudLink.Set(link.Down)
		time.Sleep(10 * time.Second)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.wantCopy(true)
		copied = n.coordinator.Peek(space, n.name)
		if at := copied.Annotations[edge.AnnotationRelaysAt]; at != "" {
			t.Errorf("a node whose link is down relays at %q", at)
		}
		n.forwardAsLeader()

		n.cloudLink.Set(link.Relayed)
		n.cloud.Calls()
		for i := range 3 {
			n.relayed.HeartbeatsOnly = i == 2 // a setting has changed
			time.Sleep(10 * time.Second)
			if err := n.beat(); err != nil {
				t.Fatal(err)
			}
			n.wantRelayed()
			want := []string{"update"}
			if i == 0 { // a leader may have written before
				want = []string{"get", "update"}
			}
			if got := verbs(n.cloud); !slices.Equal(got, want) {
				t.Errorf("the cloud saw %v, want %v", got, want)
			}
		}
		if got, err := n.do(http.MethodGet, nil, ""); err != nil || !renewTime(got).Equal(renewTime(n.lease)) {
			t.Errorf("GET while relayed: %v, %v", got, err)
		}

		n.cloud.Before(hubtest.Hang) // the neighbour is silent
		time.Sleep(10 * time.Second)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.wantCopy(true)
		if by := n.coordinator.Peek(space, n.name).Annotations[edge.AnnotationRelayedBy]; by != "" {
			t.Errorf("the copy of a heartbeat that was not relayed says that %q relays", by)
		}

		n.cloud.Before(nil)
		n.cloudLink.Set(link.Up)
		time.Sleep(10 * time.Second)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.wantCloud()
		n.wantCopy(false)
	})
}

// TestForwardedAfterRelayed: a forwarded Lease no longer says that the node reports itself. A later stamp that the node wrote
// over a neighbour's line counts as the node's own report, marked or not.
func TestForwardedAfterRelayed(t *testing.T) {
	copied, cloud := lease("n1", 50, 100, "host"), lease("n1", 7, 90, "unmarked", "label-only")
	cloud.Labels = nil
	cloud.Annotations = map[string]string{edge.DelegateHeartbeat: "true", edge.AnnotationRelayedBy: "n2", "kept": "yes"}
	got, why := forward(copied, cloudLease{Lease: cloud, latest: renewTime(cloud)})
	if why != "" || got.Annotations[edge.DelegateHeartbeat] != "true" || got.Annotations["kept"] != "yes" {
		t.Fatalf("%v, %q", got, why)
	}
	if by, ok := got.Annotations[edge.AnnotationRelayedBy]; ok {
		t.Errorf("a forwarded heartbeat says that %s relays it", by)
	}
	later := cloud.DeepCopy()
	later.Spec.RenewTime = lease("n1", 7, 110).Spec.RenewTime
	if _, why := forward(copied, cloudLease{Lease: later, latest: renewTime(later)}); why != reasonReported {
		t.Errorf("%q, though the node has reported itself since", why)
	}
}

// TestBirthRelayed: a Lease that kubelet makes while relayed bears the mark from the start.
func TestBirthRelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "n1", hubtest.NewLeaseServer(5000), hubtest.NewLeaseServer(10))
		defer n.stop()
		n.cloudLink.Set(link.Relayed)
		var made *coordinationv1.Lease
		made, err := n.do(http.MethodPost, n.stamp(nil), "?timeout=10s")
		if err != nil {
			t.Fatal(err)
		}
		n.lease = made
		n.wantRelayed()
	})
}
