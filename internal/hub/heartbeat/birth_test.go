package heartbeat

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/hub/link"
)

// born gives a test a node whose kubelet has not made its Lease yet.
func born(t *testing.T, test func(*node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "n1", hubtest.NewLeaseServer(5000), hubtest.NewLeaseServer(10))
		defer func() {
			n.cloud.Before(nil)
			n.coordinator.Before(nil)
			n.stop()
		}()
		test(n)
	})
}

func (n *node) cut() {
	n.cloudLink.Set(link.Down)
	n.cloud.Before(hubtest.Hang)
}

func (n *node) heal() {
	n.cloud.Before(nil)
	n.cloudLink.Set(link.Up)
}

// ensure does what kubelet does until it has a Lease: it reads the Lease, creates it if it is missing, and otherwise renews it.
// It reports whether it created one.
func (n *node) ensure() (made bool, err error) {
	n.t.Helper()
	got, err := n.do(http.MethodGet, nil, "?timeout=10s")
	if apierrors.IsNotFound(err) {
		if n.lease, err = n.do(http.MethodPost, n.stamp(nil), "?timeout=10s"); err != nil {
			n.lease = nil
		}
		return err == nil, err
	}
	if err != nil {
		return false, err
	}
	n.lease = got
	return false, n.beat()
}

// known is what a leader knows that has just read the cloud's Lease.
func known(cloud *coordinationv1.Lease) cloudLease {
	if cloud == nil {
		return cloudLease{}
	}
	return cloudLease{Lease: cloud, latest: renewTime(cloud)}
}

// forwardMissing writes the node's copy to the cloud as a leader would.
func (n *node) forwardMissing() {
	n.t.Helper()
	cloud := n.cloud.Peek(space, n.name)
	lease, why := forward(n.coordinator.Peek(space, n.name), known(cloud))
	if why != "" {
		n.t.Fatal(why)
	}
	if cloud == nil {
		if len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != "node-uid" {
			n.t.Errorf("the leader makes a Lease owned by %v", lease.OwnerReferences)
		}
		n.cloud.Before(nil)
		if _, err := n.cloud.Leases(space).Create(n.t.Context(), lease, metav1.CreateOptions{}); err != nil {
			n.t.Fatal(err)
		}
		n.cloud.Before(hubtest.Hang)
		return
	}
	n.cloud.Edit(space, n.name, func(l *coordinationv1.Lease) { *l = *lease })
}

// TestCutAtBirth: a node that is cut before it has a Lease is delegated from its first heartbeat on. After healing it sees one
// Lease, whether or not the leader has created it in the cloud by then.
func TestCutAtBirth(t *testing.T) {
	for _, test := range []struct {
		name      string
		forwarded bool // before the link heals
		restarted bool // the hub, while cut
		unknown   bool // the hub begins with the cut, and has not found out
	}{
		{name: "healed first"}, {name: "made by the leader first", forwarded: true},
		{name: "hub restarted", restarted: true}, {name: "hub restarted, made by the leader", restarted: true, forwarded: true},
		{name: "not known to be cut", unknown: true}, {name: "not known to be cut, forwarded", unknown: true, forwarded: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			born(t, func(n *node) {
				n.cut()
				if test.unknown {
					n.cloudLink.Set(link.Unknown)
				}
				if made, err := n.ensure(); err != nil || !made {
					t.Fatalf("kubelet did not make its Lease: %v, %v", made, err)
				}
				n.wantCopy(true)
				n.cloudLink.Set(link.Down)
				if n.lease.UID != "" || n.lease.ResourceVersion != "" {
					t.Errorf("kubelet was told of %s/%s, which the cloud never gave", n.lease.UID, n.lease.ResourceVersion)
				}
				for range 3 {
					if test.forwarded {
						n.forwardMissing()
					}
					time.Sleep(10 * time.Second)
					if test.restarted {
						n.restartHub()
						if made, err := n.ensure(); err != nil || made {
							t.Fatalf("kubelet started again made another Lease: %v, %v", made, err)
						}
					} else if err := n.beat(); err != nil {
						t.Fatal(err)
					}
					n.wantCopy(true)
				}
				n.heal()
				n.cloud.Calls()
				if test.restarted {
					n.restartHub()
				}
				for range 2 {
					time.Sleep(10 * time.Second)
					if err := n.beat(); err != nil {
						t.Fatal(err)
					}
					n.wantCloud()
					n.wantCopy(false)
				}
				if got := verbs(n.cloud); !slices.Equal(got, []string{"get", "update", "update"}) {
					t.Errorf("cloud saw %v after healing, want a look and two updates", got)
				}
			})
		})
	}
}

// While the cloud answers, the Lease is made there, and kubelet gets the cloud's answer.
func TestBirthOnline(t *testing.T) {
	born(t, func(n *node) {
		if made, err := n.ensure(); err != nil || !made {
			t.Fatal(made, err)
		}
		n.wantCloud()
		n.wantCopy(false)
		if _, err := n.do(http.MethodPost, n.stamp(nil), ""); !apierrors.IsAlreadyExists(err) {
			t.Errorf("made twice: %v", err)
		}
		other := n.stamp(nil)
		other.Name = "n2"
		n.cloud.Before(func(_ context.Context, c hubtest.LeaseCall) error {
			return apierrors.NewForbidden(coordinationv1.Resource("leases"), c.Name, errors.New("another node's"))
		})
		if _, err := n.do(http.MethodPost, other, ""); !apierrors.IsForbidden(err) {
			t.Errorf("another node's: %v, want what the cloud says", err)
		}
		if n.coordinator.Peek(space, "n2") != nil {
			t.Error("another node's Lease is copied")
		}
		if _, err := n.do(http.MethodPost, n.stamp(nil), "?dryRun=All"); !apierrors.IsForbidden(err) {
			t.Errorf("a dry run: %v, want what the cloud says", err)
		}
	})
}

// TestBirthWithoutAnswer: the cloud has created the Lease, but its answer is lost. The node is delegated, and continues with
// that Lease after healing.
func TestBirthWithoutAnswer(t *testing.T) {
	born(t, func(n *node) {
		n.cloud.After(func(ctx context.Context, c hubtest.LeaseCall) error {
			if c.Verb == "create" {
				return hubtest.Hang(ctx, c)
			}
			return nil
		})
		if made, err := n.ensure(); err != nil || !made {
			t.Fatal(made, err)
		}
		n.wantCopy(true)
		n.cloud.After(nil)
		uid := n.cloud.Peek(space, n.name).UID
		time.Sleep(10 * time.Second)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.wantCloud()
		if n.lease.UID != uid {
			t.Errorf("kubelet's Lease is %s, the cloud made %s", n.lease.UID, uid)
		}
	})
}

// While cut off, a known Lease is not made again; without a coordinator nobody can tell that there is none.
func TestNoBirth(t *testing.T) {
	run(t, func(n *node) {
		n.cut()
		if _, err := n.do(http.MethodPost, n.stamp(nil), ""); !apierrors.IsAlreadyExists(err) {
			t.Errorf("made again: %v", err)
		}
		if got := n.coordinator.Peek(space, n.name).Annotations[edge.DelegateHeartbeat]; got != "" {
			t.Error("a Lease that was refused is delegated")
		}
	})
	born(t, func(n *node) {
		n.cut()
		n.coordinatorLink.Set(link.Down)
		if _, err := n.ensure(); !apierrors.IsServiceUnavailable(err) {
			t.Error(err)
		}
		if _, err := n.do(http.MethodPost, n.stamp(nil), ""); !apierrors.IsServiceUnavailable(err) {
			t.Error(err)
		}
	})
}

// TestCutAtRebirth: a node is registered again under its old name, and cut before it has its new Lease. It gets a new one,
// because the coordinator's copy is of the old Lease, whose owner is gone.
func TestCutAtRebirth(t *testing.T) {
	run(t, func(n *node) {
		n.cloud.Remove(space, n.name)
		if _, err := n.do(http.MethodGet, nil, ""); !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		n.cut()
		if made, err := n.ensure(); err != nil || !made {
			t.Fatalf("kubelet did not make its Lease: %v, %v", made, err)
		}
		n.wantCopy(true)
		if said, ok := n.coordinator.Peek(space, n.name).Annotations[AnnotationCloudLease]; ok {
			t.Errorf("the copy says that it is of %s", said)
		}
		time.Sleep(10 * time.Second)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.forwardMissing()
		n.heal()
		time.Sleep(10 * time.Second)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.wantCloud()
		n.wantCopy(false)
	})
}
