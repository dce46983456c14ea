package lead

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// yieldsAt makes a hub's duty yield to another once, when the channel closes.
func (h *hub) yieldsAt(signal <-chan struct{}, to edge.NodeName) {
	h.duty(func(ctx context.Context, _ edge.Term) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-signal:
			h.duty(func(ctx context.Context, _ edge.Term) error { <-ctx.Done(); return ctx.Err() })
			return fmt.Errorf("compare lines: %w", &Yield{To: to})
		}
	})
}

// TestYield: the node that the lead is left to takes it at once, whoever else is there; and all hubs know that it was so.
func TestYield(t *testing.T) {
	for round := range 5 { // others would be faster now and then
		synctest.Test(t, func(t *testing.T) {
			p := newPool(t, "n1")
			defer p.stop()
			yield := make(chan struct{})
			p.hubs[0].yieldsAt(yield, "n4")
			p.until("", 10*time.Second)
			for _, name := range []string{"n2", "n3", "n4", "n5"} {
				p.start(name, edge.NodeName(name))
			}
			p.pass(time.Duration(round+3) * time.Second)
			close(yield)
			next, took := p.until("n1", 5*time.Second)
			if next.name != "n4" || took > time.Second {
				t.Errorf("%s leads after %s, want n4 within a second", next.name, took)
			}
			p.pass(20 * time.Second)
			if l := p.leaders(); len(l) != 1 || l[0] != "n4" || len(next.terms()) != 1 {
				t.Errorf("20 s later %v leads, in its term %d", l, len(next.terms()))
			}
			lease := p.server.Peek(edge.NamespaceSystem, edge.LeaseElection)
			if lease.Annotations[edge.AnnotationYielded] == "" || lease.Annotations[edge.AnnotationYieldedTo] != "" {
				t.Errorf("the Lease says %v", lease.Annotations)
			}
			late := p.start("late", "late")
			p.pass(restAfterYield - 40*time.Second)
			for _, h := range append(p.hubs, late) {
				if h.keeper.Rested(time.Now()) {
					t.Errorf("%s believes that the pool has rested 9 minutes after", h.name)
				}
			}
			p.pass(40 * time.Second)
			for _, h := range p.hubs {
				if !h.keeper.Rested(time.Now()) {
					t.Errorf("%s does not know after 10 minutes that the pool has rested", h.name)
				}
			}
		})
	}
}

// TestYieldToNobody: if the node that the lead is left to does not take it, others do, as soon as after a crash.
func TestYieldToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, "n1")
		defer p.stop()
		yield := make(chan struct{})
		p.hubs[0].yieldsAt(yield, "gone")
		p.until("", 10*time.Second)
		p.start("n2", "n2")
		p.pass(3 * time.Second)
		close(yield)
		next, took := p.until("n1", 5*time.Second)
		if took < yieldWait-10*time.Millisecond || next.name != "n2" {
			t.Errorf("%s leads after %s, want n2 after %s", next.name, took, yieldWait)
		}
	})
}

// TestYieldAlone: a leader that yields to nobody else leads again itself.
func TestYieldAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, "n1")
		defer p.stop()
		yield := make(chan struct{})
		p.hubs[0].yieldsAt(yield, "gone")
		p.until("", 10*time.Second)
		close(yield)
		p.pass(leaseDuration + yieldWait + time.Second)
		if n := len(p.hubs[0].terms()); n != 2 {
			t.Errorf("%d terms, want that the only hub leads again", n)
		}
	})
}

// TestRested: what a hub makes of what the Lease says, whatever the clocks are.
func TestRested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := func(ago time.Duration, to string) *coordinationv1.Lease {
			l := &coordinationv1.Lease{}
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.AnnotationYielded, edge.FormatYielded(time.Now().Add(-ago)))
			if to != "" {
				metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.AnnotationYieldedTo, to)
			}
			return l
		}
		for name, tt := range map[string]struct {
			seen []*coordinationv1.Lease
			want bool
		}{
			"nothing":                   {nil, true},
			"no Lease":                  {[]*coordinationv1.Lease{nil}, true},
			"no hand-over":              {[]*coordinationv1.Lease{{}}, true},
			"found, long ago":           {[]*coordinationv1.Lease{lease(time.Hour, "")}, true},
			"found, just now":           {[]*coordinationv1.Lease{lease(time.Minute, "")}, false},
			"found, from the future":    {[]*coordinationv1.Lease{lease(-time.Hour, "")}, false},
			"seen, by another clock":    {[]*coordinationv1.Lease{{}, lease(time.Hour, "")}, false},
			"seen, with the heir":       {[]*coordinationv1.Lease{{}, lease(time.Hour, "n2")}, false},
			"found, and seen once more": {[]*coordinationv1.Lease{lease(time.Hour, ""), nil, lease(time.Hour, "")}, true},
			"found, and then another":   {[]*coordinationv1.Lease{lease(time.Hour, ""), lease(2*time.Hour, "")}, false},
		} {
			var y yields
			for _, l := range tt.seen {
				y.saw(l, ends.Clock{}.Now())
			}
			if got := y.rested(time.Now()); got != tt.want {
				t.Errorf("%s: rested %v", name, got)
			}
		}
	})
}
