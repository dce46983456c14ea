package cache

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// desk is a Coverage at a coordinator.
type desk struct {
	server   *hubtest.LeaseServer
	link     *live.Value[link.State]
	coverage *Coverage
	slices   *live.Value[bool]
	others   *live.Value[bool]
}

// declare writes the Lease as the leader does; an empty text leaves the annotation as it is.
func (d *desk) declare(text string) {
	d.pass(time.Millisecond)
	now, leader := metav1.NowMicro(), "n2"
	d.server.Edit(edge.NamespaceSystem, edge.LeaseInformerSync, func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity, l.Spec.RenewTime = &leader, &now
		if text != "" {
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.AnnotationAppliedRevisions, text)
		}
	})
	synctest.Wait()
}

func (d *desk) pass(t time.Duration) {
	time.Sleep(t) // of the bubble's clock
	synctest.Wait()
}

func (d *desk) want(t *testing.T, slices bool) {
	t.Helper()
	if got := d.slices.Get(); got != slices {
		t.Errorf("covered = %v, want %v", got, slices)
	}
	if d.others.Get() {
		t.Error("what nobody declared is covered")
	}
}

func atDesk(t *testing.T, test func(*testing.T, *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{server: hubtest.NewLeaseServer(10), link: live.NewValue(link.Up)}
		d.coverage = NewCoverage(ends.Ends{})
		d.slices = d.coverage.Of(slices1.GroupResource())
		d.others = d.coverage.Of(schema.GroupResource{Resource: "endpoints"})
		d.declare(`{"endpointslices.discovery.k8s.io":"120","endpoints":"none"}`)
		ctx, cancel := context.WithCancel(t.Context())
		state := lead.NewState(lead.StateConfig{Link: d.link, Transport: d.server.State("n1"), Base: hubtest.At})
		go func() { _ = state.Run(ctx) }()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := d.coverage.Run(ctx, state.Declared()); err != nil {
				t.Errorf("Run = %v", err)
			}
		}()
		synctest.Wait()
		test(t, d)
		cancel()
		<-done
		d.want(t, false)
	})
}

func TestWhatWasDeclaredBeforeCountsOnlyOnceRenewed(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.pass(time.Minute)
		d.want(t, false)
		d.declare("")
		d.want(t, true)
		if !d.coverage.Of(slices1.GroupResource()).Get() {
			t.Error("a value asked for later differs")
		}
	})
}

func TestADeclarationFadesWithoutRenewals(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		for range 100 {
			d.declare("")
			d.want(t, true)
			d.pass(2 * time.Second)
		}
		d.want(t, true)
		d.pass(7900 * time.Millisecond)
		d.want(t, true)
		d.pass(200 * time.Millisecond)
		d.want(t, false)
		d.declare("")
		d.want(t, true)
	})
}

func TestAWriteThatRenewsNothingDoesNotCount(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.declare("")
		for range 11 {
			d.pass(time.Second)
			d.server.Edit(edge.NamespaceSystem, edge.LeaseInformerSync, func(l *coordinationv1.Lease) {
				metav1.SetMetaDataLabel(&l.ObjectMeta, "touched", time.Now().Format("150405"))
			})
			synctest.Wait()
		}
		d.want(t, false)
	})
}

func TestWhatIsNotDeclaredAnyLongerIsNotCoveredAtOnce(t *testing.T) {
	for name, end := range map[string]func(*desk){
		"dropped":    func(d *desk) { d.declare(`{"services":"7"}`) },
		"nothing":    func(d *desk) { d.declare(`{}`) },
		"unreadable": func(d *desk) { d.declare(`{"endpointslices.discovery.k8s.io":7}`) },
		"too long": func(d *desk) {
			d.declare(`{"endpointslices.discovery.k8s.io":"7","x":"` + strings.Repeat("1", maxDeclared) + `"}`)
		},
		"deleted": func(d *desk) { d.server.Remove(edge.NamespaceSystem, edge.LeaseInformerSync) },
		"released": func(d *desk) {
			d.server.Edit(edge.NamespaceSystem, edge.LeaseInformerSync, func(l *coordinationv1.Lease) {
				l.Spec.HolderIdentity = nil
			})
		},
		"link down": func(d *desk) { d.link.Set(link.Down) },
		"restarted": func(d *desk) {
			d.server.Restart(3)
			d.pass(5 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			atDesk(t, func(t *testing.T, d *desk) {
				d.declare("")
				d.want(t, true)
				end(d)
				synctest.Wait()
				d.want(t, false)
			})
		})
	}
}

// After an outage a baseline tells what was declared meanwhile, but not by whom or when.
func TestABaselineIsNoRenewal(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.declare("")
		d.link.Set(link.Down)
		synctest.Wait()
		d.declare("")
		d.link.Set(link.Up)
		d.pass(time.Second)
		d.want(t, false)
		d.declare("")
		d.want(t, true)
	})
}

func FuzzParseApplied(f *testing.F) {
	f.Add(`{"endpointslices.discovery.k8s.io":"123","endpoints":"120"}`)
	f.Add(`{"":"1","x":"-1"}`)
	f.Fuzz(func(t *testing.T, text string) {
		applied, err := parseApplied(text)
		if err != nil && applied != nil {
			t.Error("an error and a value")
		}
		if _, nameless := applied[schema.GroupResource{}]; nameless {
			t.Error("a resource without a name")
		}
	})
}

// While the leader reads a resource from the cloud, and its list comes on, others know.
func TestWhatTheLeaderReadsIsKnown(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		filling := d.coverage.Filling(slices1.GroupResource())
		reads := func(text string) {
			d.pass(time.Millisecond)
			now, leader := metav1.NowMicro(), "n2"
			d.server.Edit(edge.NamespaceSystem, edge.LeaseInformerSync, func(l *coordinationv1.Lease) {
				l.Spec.HolderIdentity, l.Spec.RenewTime = &leader, &now
				metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.AnnotationAppliedRevisions, "{}")
				metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.AnnotationFilling, text)
			})
			synctest.Wait()
		}
		want := func(is bool) {
			t.Helper()
			if filling.Get() != is {
				t.Errorf("filling = %v, want %v", !is, is)
			}
		}
		want(false)
		for pages := range 20 { // a page each 40 s
			text := fmt.Sprintf(`{"endpointslices.discovery.k8s.io":%d}`, pages+1)
			for range 20 {
				reads(text)
				want(true)
				d.pass(2 * time.Second)
			}
		}
		for range 5 { // it does not come on, though the leader lives
			reads(`{"endpointslices.discovery.k8s.io":20}`)
			d.pass(2 * time.Second)
		}
		want(false)
		if d.coverage.Filling(schema.GroupResource{Resource: "endpoints"}).Get() {
			t.Error("what nobody reads is being read")
		}
		reads(`{"endpointslices.discovery.k8s.io":21}`)
		want(true)
		d.pass(fillFresh + 2*coverFresh) // the leader has died
		want(false)
		reads(`{"endpointslices.discovery.k8s.io":22}`)
		reads(`{"endpointslices.discovery.k8s.io":"many"}`)
		want(true)
		d.pass(fillPushed + coverFresh)
		want(false)
		reads(`{"endpointslices.discovery.k8s.io":23}`)
		for range 7 { // it has come to its end, and is being pushed
			reads(`{}`)
			want(true)
			d.pass(2 * time.Second)
		}
		d.pass(time.Second)
		reads(`{}`)
		want(false)
		d.want(t, false)
	})
}

// A resource that nobody asked about while the leader declared it is not being read for ever.
func TestWhoAsksLateLearnsThatTheLeaderIsSilent(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		now, leader := metav1.NowMicro(), "n2"
		d.server.Edit(edge.NamespaceSystem, edge.LeaseInformerSync, func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity, l.Spec.RenewTime = &leader, &now
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.AnnotationAppliedRevisions, "{}")
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.AnnotationFilling, `{"endpoints":3}`)
		})
		d.pass(2 * coverFresh) // the leader has died
		filling := d.coverage.Filling(schema.GroupResource{Resource: "endpoints"})
		d.pass(fillFresh + coverFresh)
		if filling.Get() {
			t.Error("a leader that has been silent for a minute is reading it")
		}
	})
}
