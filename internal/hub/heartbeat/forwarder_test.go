package heartbeat

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// office is a term that a test gives and takes.
type office struct {
	deposed atomic.Bool
	stored  atomic.Pointer[func(uint64) (time.Time, bool)] // nil: right now
}

func (o *office) valid() bool { return !o.deposed.Load() }

func (o *office) notBefore(revision uint64) (time.Time, bool) {
	if answer := o.stored.Load(); answer != nil {
		return (*answer)(revision)
	}
	return time.Now(), true
}

// desk is a Forwarder between two servers.
type desk struct {
	t                  *testing.T
	cloud, coordinator *hubtest.LeaseServer
	forwarder          *Forwarder
	source             Source
	term               *office
	stop               func()
}

func atDesk(t *testing.T, test func(*desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{t: t, cloud: hubtest.NewLeaseServer(5000), coordinator: hubtest.NewLeaseServer(10), term: &office{}}
		d.forwarder = NewForwarder(ForwarderConfig{
			Node: "self", Cloud: d.cloud.Client("self"), Metrics: prometheus.NewRegistry(),
		})
		d.source = Source{Told: told(t, d.coordinator, "self")}
		// A node delegated since before this leader's term.
		d.beat("old", true)
		d.begin()
		test(d)
		d.cloud.Before(nil)
		d.stop()
	})
}

// told returns what a coordinator tells a node's hub, until the test ends.
func told(t *testing.T, server *hubtest.LeaseServer, name string) *lead.State {
	s := lead.NewState(lead.StateConfig{
		Link: live.NewValue(link.Up), Transport: server.State(name), Base: hubtest.At,
	})
	go func() { _ = s.Run(t.Context()) }()
	return s
}

// begin starts a term.
func (d *desk) begin() {
	if d.stop != nil {
		d.stop()
	}
	ctx, cancel := context.WithCancel(klog.NewContext(d.t.Context(), ktesting.NewLogger(d.t, ktesting.NewConfig())))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.forwarder.Run(ctx, d.source, edge.Term{Valid: d.term.valid, NotBefore: d.term.notBefore}); err != nil {
			d.t.Errorf("Run = %v", err)
		}
	}()
	d.stop = func() {
		cancel()
		<-done
	}
	synctest.Wait()
}

// beat writes a node's copy, stamped now, and lets a moment pass.
func (d *desk) beat(name string, marked bool) {
	d.renew(name, marked)
	synctest.Wait()
}

func (d *desk) renew(name string, marked bool) {
	node, seconds, now := name, int32(40), metav1.NowMicro()
	d.coordinator.Edit(space, name, func(l *coordinationv1.Lease) {
		copied := copyOf(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: name, UID: "node-uid"}}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}, nil, marked)
		l.Labels, l.Annotations = copied.Labels, copied.Annotations
		l.OwnerReferences, l.Spec = copied.OwnerReferences, copied.Spec
	})
}

// report is a node's own heartbeat in the cloud.
func (d *desk) report(name string) {
	node, now := name, metav1.NowMicro()
	d.cloud.Edit(space, name, func(l *coordinationv1.Lease) {
		l.Annotations = nil
		l.Spec.HolderIdentity, l.Spec.RenewTime = &node, &now
	})
	synctest.Wait()
}

// stampIn is a stamp so far from now.
func stampIn(ahead time.Duration) *metav1.MicroTime {
	return &metav1.MicroTime{Time: time.Now().Add(ahead)}
}

// age is how old the node's stamp in the cloud is; negative if there is none.
func (d *desk) age(name string) time.Duration {
	l := d.cloud.Peek(space, name)
	if l == nil {
		return -1
	}
	return time.Since(renewTime(l))
}

// storedNow makes the term say that every revision was stored no earlier than now.
func (d *desk) storedNow() {
	stored := time.Now()
	answer := func(uint64) (time.Time, bool) { return stored, true }
	d.term.stored.Store(&answer)
}

func (d *desk) droppedFor(why reason) float64 {
	return testutil.ToFloat64(d.forwarder.metrics.dropped.WithLabelValues(string(why)))
}

func TestForwards(t *testing.T) {
	atDesk(t, func(d *desk) {
		time.Sleep(5 * time.Second)
		if d.age("old") >= 0 {
			t.Error("a Lease found in the list was forwarded")
		}
		d.report("n1")
		for i := range 3 {
			time.Sleep(10 * time.Second)
			d.beat("n1", true)
			if d.age("n1") != 0 {
				t.Errorf("renewal %d not forwarded", i)
			}
			l := d.cloud.Peek(space, "n1")
			if annotation, label := delegatedLease(l); !annotation || label {
				t.Errorf("in the cloud: annotation=%v label=%v, want the annotation alone", annotation, label)
			}
		}
		d.beat("old", true)
		if d.age("old") != 0 {
			t.Error("the next renewal of a Lease from the list was not forwarded")
		}
		if l := d.cloud.Peek(space, "old"); len(l.OwnerReferences) != 1 || *l.Spec.HolderIdentity != "old" ||
			*l.Spec.LeaseDurationSeconds != 40 {
			t.Errorf("created as %+v, want kubelet's owner, holder and duration", l)
		}
		if got := testutil.ToFloat64(d.forwarder.metrics.delegated); got != 2 {
			t.Errorf("%v delegated nodes shown, want 2", got)
		}
		if got := verbs(d.cloud); !slices.Equal(got, []string{"get", "update", "update", "update", "get", "update"}) {
			t.Errorf("cloud saw %v, want one look per node and one update per renewal", got)
		}
		// The node is back: its own heartbeat is the cloud's last word.
		time.Sleep(time.Second)
		d.report("n1")
		d.beat("n1", false)
		time.Sleep(time.Minute)
		if annotation, _ := delegatedLease(d.cloud.Peek(space, "n1")); annotation {
			t.Error("delegated again after it reported itself")
		}
	})
}

func TestForwardingFaults(t *testing.T) {
	refused := errors.New("connection refused")
	tests := []struct {
		name string
		do   func(*desk)
		want time.Duration // the age of n1's stamp in the cloud; it was 10 s before, and n1 renewed just now
		why  reason        // that was counted
	}{
		{"the Lease moved on", func(d *desk) {
			d.cloud.Edit(space, "n1", func(l *coordinationv1.Lease) { l.Labels = map[string]string{"x": "y"} })
			d.beat("n1", true)
		}, 0, ""},
		{"the Lease vanished", func(d *desk) {
			d.cloud.Remove(space, "n1")
			d.beat("n1", true)
		}, 0, ""},
		{"created by somebody else meanwhile", func(d *desk) {
			d.cloud.Remove(space, "n1")
			made := false
			d.cloud.Before(func(_ context.Context, c hubtest.LeaseCall) error {
				if c.Verb == "update" && c.Lease.ResourceVersion == "" && !made {
					made = true
					d.cloud.Edit(space, "n1", func(*coordinationv1.Lease) {})
				}
				return nil
			})
			d.beat("n1", true)
		}, 0, ""},
		{"the node reported itself while its copy was on the way", func(d *desk) {
			d.cloud.Before(func(_ context.Context, c hubtest.LeaseCall) error {
				if c.Verb == "update" {
					d.cloud.Before(nil)
					d.cloud.Edit(space, "n1", func(l *coordinationv1.Lease) {
						l.Annotations, l.Spec.RenewTime = nil, c.Lease.Spec.RenewTime
					})
				}
				return nil
			})
			d.beat("n1", true)
		}, 0, reasonReported},
		{"the node's clock was put back", func(d *desk) {
			d.cloud.Edit(space, "n1", func(l *coordinationv1.Lease) { l.Spec.RenewTime = stampIn(time.Hour) })
			d.beat("n1", true)
		}, -time.Hour - time.Microsecond, ""},
		{"a thief writes a stamp from years ahead, before each renewal", func(d *desk) {
			d.cloud.Before(func(_ context.Context, c hubtest.LeaseCall) error {
				if c.Verb == "update" && c.Lease.Annotations["thief"] == "" {
					d.cloud.Before(nil)
					d.cloud.Edit(space, "n1", func(l *coordinationv1.Lease) { l.Spec.RenewTime = stampIn(1000 * time.Hour) })
				}
				return nil
			})
			d.beat("n1", true)
		}, -1000*time.Hour - time.Microsecond, ""},
		{"a thief writes a stamp from years ahead, and takes it back", func(d *desk) {
			d.cloud.Edit(space, "n1", func(l *coordinationv1.Lease) { l.Spec.RenewTime = stampIn(time.Hour) })
			d.beat("n1", true)
			time.Sleep(10 * time.Second)
			d.cloud.Edit(space, "n1", func(l *coordinationv1.Lease) { l.Spec.RenewTime = stampIn(-time.Minute) })
			d.beat("n1", true)
		}, 10*time.Second - time.Hour - 2*time.Microsecond, ""},
		{"deposed", func(d *desk) {
			d.term.deposed.Store(true)
			d.beat("n1", true)
			d.term.deposed.Store(false)
			d.beat("n2", true)
		}, 10 * time.Second, reasonDeposed},
		{"deposed between reading and writing", func(d *desk) {
			d.cloud.Before(func(_ context.Context, c hubtest.LeaseCall) error {
				if c.Verb == "get" {
					d.term.deposed.Store(true)
				}
				return nil
			})
			d.beat("n2", true)
			if d.age("n2") >= 0 {
				d.t.Error("written by a leader deposed since it looked")
			}
			d.beat("n1", true)
		}, 10 * time.Second, reasonDeposed},
		{"the cloud hangs until it is too late", func(d *desk) {
			d.cloud.Before(hubtest.Hang)
			d.beat("n1", true)
			time.Sleep(maxAge)
			d.cloud.Before(nil)
			time.Sleep(time.Minute)
		}, 10*time.Second + maxAge + time.Minute, reasonAged},
		{"the cloud hangs, and the mark is taken off", func(d *desk) {
			d.cloud.Before(hubtest.Hang)
			d.beat("n1", true)
			d.beat("n1", false)
			d.cloud.Before(nil)
			time.Sleep(time.Minute)
		}, 70 * time.Second, reasonUnmarked},
		{"the cloud refuses", func(d *desk) {
			d.cloud.Before(func(context.Context, hubtest.LeaseCall) error { return refused })
			d.beat("n1", true)
			d.cloud.Before(nil)
		}, 10 * time.Second, reasonFailed},
		{"something on the way has forgotten the connection of a write", func(d *desk) {
			d.forgets("update", false)
			d.beat("n1", true)
			time.Sleep(lostAfter)
		}, lostAfter, ""},
		{"… and the hub does not hear of it", func(d *desk) {
			d.cloud.Before(func(ctx context.Context, c hubtest.LeaseCall) error {
				d.cloud.Before(nil)
				return hubtest.Hang(ctx, c)
			})
			d.beat("n1", true)
			time.Sleep(maxAge)
		}, maxAge, ""},
		{"… which has taken effect", func(d *desk) {
			before := testutil.ToFloat64(d.forwarder.metrics.forwarded)
			d.forgets("update", true)
			d.beat("n1", true)
			time.Sleep(lostAfter)
			synctest.Wait()
			if counted := testutil.ToFloat64(d.forwarder.metrics.forwarded) - before; counted != 1 {
				d.t.Errorf("it counts %v times as forwarded", counted)
			}
		}, lostAfter, ""},
		{"… and of a read", func(d *desk) {
			d.cloud.Edit(space, "n1", func(l *coordinationv1.Lease) { l.Labels = map[string]string{"x": "y"} })
			d.forgets("get", false)
			d.beat("n1", true)
			time.Sleep(lostAfter)
		}, lostAfter, ""},
		{"the event was too long on its way, on a watch that still stands", func(d *desk) {
			d.storedNow()
			d.beat("n2", true) // else the watch would be given up
			d.coordinator.Hold()
			d.beat("n1", true)
			time.Sleep(maxAge + transit)
			d.coordinator.Flow()
		}, 10*time.Second + maxAge + transit, reasonAged},
		{"the coordinator came back empty, then the node's copy", func(d *desk) {
			d.coordinator.Restart(1)
			time.Sleep(5 * time.Second)
			d.beat("n1", true)
		}, 0, ""},
		{"watch broken and resumed", func(d *desk) {
			d.coordinator.Break()
			time.Sleep(time.Second)
			d.beat("n1", true)
		}, 0, ""},
		{"renewed while a list replaced the watch: the list is only a baseline", func(d *desk) {
			d.coordinator.Before(func(context.Context, hubtest.LeaseCall) error { return refused })
			d.coordinator.Break()
			d.beat("n1", true)
			d.coordinator.Compact()
			d.coordinator.Before(nil)
			time.Sleep(5 * time.Second)
		}, 15 * time.Second, ""},
		{"a new leader of a node that is dead: nothing", func(d *desk) {
			d.stop()
			d.beat("n1", true) // its last, seen by nobody
			d.begin()
			time.Sleep(time.Minute)
		}, 70 * time.Second, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			atDesk(t, func(d *desk) {
				d.report("n1")
				time.Sleep(time.Second)
				d.beat("n1", true)
				time.Sleep(10 * time.Second)
				tt.do(d)
				synctest.Wait()
				if got := d.age("n1"); got != tt.want {
					t.Errorf("n1's stamp in the cloud is %s old, want %s", got, tt.want)
				}
				if tt.why != "" && d.droppedFor(tt.why) == 0 {
					t.Errorf("nothing counted as %s", tt.why)
				}
			})
		})
	}
}

// lostAfter is how long a hub waits in vain for an answer on a connection that something on the way has forgotten.
const lostAfter = 6 * time.Second

// forgets has the next request of a verb go without an answer, until its connection is given up. Before that, with taken, it has
// taken effect.
func (d *desk) forgets(verb string, taken bool) {
	d.cloud.Before(func(ctx context.Context, c hubtest.LeaseCall) error {
		if c.Verb != verb {
			return nil
		}
		d.cloud.Before(nil)
		if taken {
			d.cloud.Edit(space, c.Name, func(l *coordinationv1.Lease) { l.Spec.RenewTime = c.Lease.Spec.RenewTime })
		}
		select {
		case <-time.After(lostAfter):
			return errors.New("http2: client connection force closed")
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// lead begins a term whose end the test awaits.
func (d *desk) lead() (ended <-chan error) {
	d.stop()
	ctx, cancel := context.WithCancel(klog.NewContext(d.t.Context(), ktesting.NewLogger(d.t, ktesting.NewConfig())))
	over, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		over <- d.forwarder.Run(ctx, d.source, edge.Term{Valid: d.term.valid, NotBefore: d.term.notBefore})
	}()
	d.stop = func() {
		cancel()
		<-done
	}
	synctest.Wait()
	return over
}

// endsIn fails unless the term ends by itself within that time, and not before.
func (d *desk) endsIn(ended <-chan error, after, within time.Duration) {
	d.t.Helper()
	began := time.Now()
	select {
	case err := <-ended:
		if took := time.Since(began); !errors.Is(err, ErrUnable) || took < after {
			d.t.Errorf("the term ended after %s: %v", took, err)
		}
	case <-time.After(within):
		d.t.Errorf("it leads on after %s", within)
	}
}

// leadsOn fails if the term has ended.
func (d *desk) leadsOn(ended <-chan error) {
	d.t.Helper()
	synctest.Wait()
	select {
	case err := <-ended:
		d.t.Errorf("the term has ended: %v", err)
	default:
	}
}

// refuses has the cloud answer every write of one node's Lease with an error.
func (d *desk) refuses(name string, with error) {
	d.cloud.Before(func(_ context.Context, c hubtest.LeaseCall) error {
		if c.Verb == "update" && c.Name == name {
			return with
		}
		return nil
	})
}

// TestOneRefusedLease: the cloud's refusal of one Lease ends no term, however often its node renews it, and costs no other node
// a heartbeat.
func TestOneRefusedLease(t *testing.T) {
	leases := coordinationv1.Resource("leases")
	kind := coordinationv1.SchemeGroupVersion.WithKind("Lease").GroupKind()
	for name, refusal := range map[string]error{
		"422": apierrors.NewInvalid(kind, "thief", nil), "400": apierrors.NewBadRequest("no"),
		"409": apierrors.NewConflict(leases, "thief", errors.New("again")),
		"403": apierrors.NewForbidden(leases, "thief", errors.New("a policy")),
	} {
		t.Run(name, func(t *testing.T) {
			atDesk(t, func(d *desk) {
				d.forwarder.config.Right = func(context.Context) error { return nil }
				ended := d.lead()
				d.report("thief")
				d.refuses("thief", refusal)
				d.cloud.Calls()
				for range 30 {
					for range 100 {
						time.Sleep(100 * time.Millisecond)
						d.beat("thief", true)
					}
					d.beat("victim", true)
					if d.age("victim") != 0 {
						t.Fatal("the victim's heartbeat was not forwarded")
					}
				}
				d.leadsOn(ended)
				asked := 0
				for _, c := range d.cloud.Calls() {
					if c.Name == "thief" {
						asked++
					}
				}
				if asked > 15*8 { // 1 + 2 + 4 + 8 + 16 + 30 … s, 4 attempts at a Lease that moves on
					t.Errorf("the cloud was asked %d times in five minutes for the Lease that it refuses", asked)
				}
				if d.droppedFor(reasonRefused) == 0 {
					t.Error("nothing counted as refused")
				}
			})
		})
	}
}

// TestALargeLeaseInTheCloud: a node whose Lease in the cloud is large, as a node with root can make it, has the leader read it
// seldom and write it never.
func TestALargeLeaseInTheCloud(t *testing.T) {
	atDesk(t, func(d *desk) {
		ended := d.lead()
		d.report("thief")
		d.cloud.Edit(space, "thief", func(l *coordinationv1.Lease) {
			l.OwnerReferences = []metav1.OwnerReference{{Name: strings.Repeat("x", 1400<<10)}}
		})
		d.cloud.Calls()
		for range 30 {
			for range 20 {
				time.Sleep(500 * time.Millisecond)
				d.beat("thief", true)
			}
			d.beat("thief", false)
			d.beat("victim", true)
			if d.age("victim") != 0 {
				t.Fatal("the victim's heartbeat was not forwarded")
			}
		}
		d.leadsOn(ended)
		for i, c := range slices.DeleteFunc(d.cloud.Calls(), func(c hubtest.LeaseCall) bool { return c.Name != "thief" }) {
			if c.Verb != "get" || i > 0 {
				t.Errorf("in five minutes, request %d for the large Lease: %s", i, c.Verb)
			}
		}
		d.cloud.Edit(space, "thief", func(l *coordinationv1.Lease) { l.OwnerReferences = nil })
		time.Sleep(largePause)
		if d.beat("thief", true); d.age("thief") != 0 {
			t.Error("the Lease is small again, and is not forwarded")
		}
	})
}

// TestRefusalsAreForgotten: a coordinator that tells of ever new nodes, whose Leases the cloud refuses, fills no memory.
func TestRefusalsAreForgotten(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.cloud.Before(func(context.Context, hubtest.LeaseCall) error {
			return apierrors.NewForbidden(coordinationv1.Resource("leases"), "", errors.New("not of this pool"))
		})
		refused := func() int {
			d.forwarder.mu.Lock()
			defer d.forwarder.mu.Unlock()
			return len(d.forwarder.queue.refused)
		}
		for i := range 20 {
			d.beat("invented-"+strconv.Itoa(i), true)
		}
		if n := refused(); n != 20 {
			t.Errorf("%d refusals are remembered at first", n)
		}
		time.Sleep(refusedMin + refusedMax + lookEvery)
		synctest.Wait()
		if n := refused(); n != 0 {
			t.Errorf("%d refusals are remembered once they have no effect", n)
		}
	})
}

// TestNothingIsTaken: a leader from which the cloud takes nothing gives its term back in time for another to save the nodes.
func TestNothingIsTaken(t *testing.T) {
	leases := coordinationv1.Resource("leases")
	says := func(err error) func(context.Context, hubtest.LeaseCall) error {
		return func(context.Context, hubtest.LeaseCall) error { return err }
	}
	for name, fault := range map[string]func(context.Context, hubtest.LeaseCall) error{
		"silence": hubtest.Hang, "503": says(apierrors.NewServiceUnavailable("no")), "no connection": says(errors.New("reset")),
		"500": says(apierrors.NewInternalError(errors.New("etcd"))), "429": says(apierrors.NewTooManyRequests("busy", 1)),
		"504": says(apierrors.NewServerTimeout(leases, "update", 1)),
		"silence to writes": func(ctx context.Context, c hubtest.LeaseCall) error {
			if c.Verb == "update" {
				return hubtest.Hang(ctx, c)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			atDesk(t, func(d *desk) {
				ended := d.lead()
				d.report("n1")
				d.beat("n1", true)
				d.leadsOn(ended)
				time.Sleep(10 * time.Second)
				d.cloud.Before(fault)
				kubelet := time.AfterFunc(10*time.Second, func() { d.renew("n1", true) })
				defer kubelet.Stop()
				d.beat("n1", true)
				d.endsIn(ended, patience, patience+lookEvery)
			})
		})
	}
}

// TestSomethingIsTaken: as long as the cloud takes something now and then, or there is nothing to write, the term goes on.
func TestSomethingIsTaken(t *testing.T) {
	type step struct {
		after time.Duration
		taken bool
	}
	for name, steps := range map[string][]step{
		"every second renewal": {{10 * time.Second, false}, {10 * time.Second, true}},
		"one of five": {
			{3 * time.Second, true}, {3 * time.Second, false}, {3 * time.Second, false}, {3 * time.Second, false},
		},
		"one that was not, of a node that falls silent": {{time.Hour, false}},
	} {
		t.Run(name, func(t *testing.T) {
			atDesk(t, func(d *desk) {
				ended := d.lead()
				for range 10 {
					for _, s := range steps {
						time.Sleep(s.after)
						d.cloud.Before(func(context.Context, hubtest.LeaseCall) error {
							if s.taken {
								return nil
							}
							return apierrors.NewTooManyRequests("busy", 1)
						})
						d.beat("n1", true)
					}
				}
				d.leadsOn(ended)
			})
		})
	}
}

// TestDeafWatch: a leader that hears nothing of the coordinator's Leases gives up its term. A leader whose pool is quiet, or
// has no delegated node, does not.
func TestDeafWatch(t *testing.T) {
	atDesk(t, func(d *desk) {
		ended := d.lead()
		time.Sleep(time.Hour) // nothing but bookmarks
		for range 3600 {      // nothing marked: no bookmarks
			time.Sleep(time.Second)
			d.beat("n1", false)
		}
		d.leadsOn(ended)
		d.coordinator.Hold()
		d.beat("n2", true)
		d.endsIn(ended, patience, patience+lookEvery)
		d.coordinator.Flow()
	})
}

// TestRight: a request for one Lease that is refused has the leader ask for its own right, and only that answer ends its term.
func TestRight(t *testing.T) {
	leases := coordinationv1.Resource("leases")
	for name, tt := range map[string]struct {
		answer  error
		asks    bool
		refused bool // the right
	}{
		"403":               {apierrors.NewForbidden(leases, "n1", errors.New("impersonation")), true, true},
		"401":               {apierrors.NewUnauthorized("who"), true, true},
		"403 of one Lease":  {apierrors.NewForbidden(leases, "n1", errors.New("a policy")), true, false},
		"400 asks nobody":   {apierrors.NewBadRequest("no"), false, true},
		"silence, likewise": {errors.New("reset"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			atDesk(t, func(d *desk) {
				asked, denied := 0, errors.New("not in this pool")
				d.forwarder.config.Right = func(context.Context) error {
					if asked++; tt.refused {
						return denied
					}
					return nil
				}
				ended := d.lead()
				d.report("n1")
				d.refuses("n1", tt.answer)
				time.Sleep(10 * time.Second)
				d.beat("n1", true)
				select {
				case err := <-ended:
					if !tt.asks || !tt.refused || !errors.Is(err, ErrUnable) || !errors.Is(err, denied) {
						t.Errorf("Run = %v", err)
					}
				default:
					if tt.asks && tt.refused {
						t.Error("it leads on")
					}
				}
				if (asked == 1) != tt.asks {
					t.Errorf("asked for its right %d times", asked)
				}
			})
		})
	}
}

// TestTheRightIsAskedForAgain: an answer holds for one refusal.
func TestTheRightIsAskedForAgain(t *testing.T) {
	atDesk(t, func(d *desk) {
		asked := 0
		d.forwarder.config.Right = func(context.Context) error { asked++; return nil }
		ended := d.lead()
		d.report("n1")
		d.refuses("n1", apierrors.NewForbidden(coordinationv1.Resource("leases"), "n1", errors.New("a policy")))
		for want := 1; want <= 3; want++ {
			time.Sleep(refusedMax)
			d.beat("n1", true)
			d.forwarder.mu.Lock()
			if asked != want || d.forwarder.asking {
				t.Errorf("asked %d times after %d refusals, and it still asks: %t", asked, want, d.forwarder.asking)
			}
			d.forwarder.mu.Unlock()
		}
		d.leadsOn(ended)
	})
}

// TestHungWritesAreBounded: more nodes than writes may be under way, all hanging.
func TestHungWritesAreBounded(t *testing.T) {
	atDesk(t, func(d *desk) {
		var under, most atomic.Int32
		d.cloud.Before(func(ctx context.Context, c hubtest.LeaseCall) error {
			if now := under.Add(1); now > most.Load() {
				most.Store(now)
			}
			defer under.Add(-1)
			return hubtest.Hang(ctx, c)
		})
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			d.beat(name, true)
		}
		if got := under.Load(); got != parallelMin {
			t.Errorf("%d writes under way, want %d", got, parallelMin)
		}
		time.Sleep(2 * maxAge)
		if got := under.Load(); got != 0 {
			t.Errorf("%d writes still under way", got)
		}
		if got := most.Load(); got > parallelMin {
			t.Errorf("up to %d writes were under way", got)
		}
		// The leader's own node goes first as soon as there is room.
		d.cloud.Before(nil)
		d.beat("self", true)
		if d.age("self") != 0 {
			t.Error("the own node's heartbeat was not forwarded")
		}
	})
}

// TestStopsWithItsTerm: Run returns at once, and nothing is sent after that.
func TestStopsWithItsTerm(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.cloud.Before(hubtest.Hang)
		d.beat("n1", true)
		began := time.Now()
		d.stop()
		if took := time.Since(began); took != 0 {
			t.Errorf("took %s to stop", took)
		}
		d.cloud.Before(nil)
		d.cloud.Calls()
		d.coordinator.Calls()
		time.Sleep(time.Minute)
		if a, b := d.cloud.Calls(), d.coordinator.Calls(); len(a)+len(b) != 0 {
			t.Errorf("sent %v and %v after its term", a, b)
		}
		if got := testutil.ToFloat64(d.forwarder.metrics.delegated); got != 0 {
			t.Errorf("%v delegated nodes shown without a term", got)
		}
	})
}
