package plugin

import (
	"cmp"
	"fmt"
	"time"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// problemsOf says what is wrong with a pool, the worst first. A pool without a coordinator is its owner's choice, and no problem.
func problemsOf(p *Pool) (all []string) {
	if held := p.condition(v1alpha1.YurtCoordinatorEvictionsHeld, v1alpha1.ConditionTrue); held != nil {
		all = append(all, "all nodes fell silent together, and evictions are held: "+says(held))
	}
	switch {
	case p.Coordinator == CoordinatorNew:
		all = append(all, "its YurtCoordinator has no status yet: check that coordinator-controller runs")
	case p.Coordinator == CoordinatorReady && p.Leader == "":
		all = append(all, "its coordinator serves, but no hub reports that it leads")
	case p.Coordinator == CoordinatorReady, p.Coordinator == CoordinatorNone:
	default:
		all = append(all, "no coordinator serves: "+says(p.inTheWay()))
	}
	if n := p.Nodes - p.Ready; n > 0 {
		all = append(all, fmt.Sprintf("%d of %s not Ready", n, edge.Count(p.Nodes, "node is", "nodes are")))
	}
	if len(p.Delegated) > 0 {
		all = append(all, "the link to the cloud is down on "+edge.Some(p.Delegated))
	}
	if len(p.Outside) > 0 {
		all = append(all, "these nodes do not reach the coordinator: "+edge.Some(p.Outside))
	}
	if p.Coordinator != CoordinatorReady {
		return all
	}
	if stalled := p.condition(v1alpha1.YurtCoordinatorStalled, v1alpha1.ConditionTrue); stalled != nil {
		all = append(all, says(stalled))
	}
	for _, good := range []v1alpha1.YurtCoordinatorConditionType{
		v1alpha1.YurtCoordinatorCertsReady, v1alpha1.YurtCoordinatorStandbysReady, v1alpha1.YurtCoordinatorKubeletsVerifiable,
		v1alpha1.YurtCoordinatorResourcesComplete, v1alpha1.YurtCoordinatorResourcesCurrent,
	} {
		if lacks := p.condition(good, v1alpha1.ConditionFalse); lacks != nil {
			all = append(all, says(lacks))
		}
	}
	return all
}

// inTheWay returns the condition that says why no coordinator serves; nil if none does.
func (p *Pool) inTheWay() *v1alpha1.YurtCoordinatorCondition {
	if pending := p.condition(v1alpha1.YurtCoordinatorPending, v1alpha1.ConditionTrue); pending != nil {
		return pending
	}
	for i := range p.conditions {
		if c := &p.conditions[i]; c.Type == v1alpha1.YurtCoordinatorReady {
			return c
		}
	}
	return nil
}

// condition returns the condition of that type, if it has that status.
func (p *Pool) condition(
	of v1alpha1.YurtCoordinatorConditionType, status v1alpha1.ConditionStatus,
) *v1alpha1.YurtCoordinatorCondition {
	for i := range p.conditions {
		if c := &p.conditions[i]; c.Type == of && c.Status == status {
			return c
		}
	}
	return nil
}

// says returns what a condition says, for people.
func says(c *v1alpha1.YurtCoordinatorCondition) string {
	if c == nil {
		return "its YurtCoordinator does not say why"
	}
	return cmp.Or(c.Message, c.Reason, string(c.Type))
}

// summary counts pools.
func summary(pools []Pool) string {
	trouble := 0
	for i := range pools {
		if len(pools[i].Problems) > 0 {
			trouble++
		}
	}
	noun := func(n int) string { return edge.Count(n, "pool", "pools") }
	switch {
	case len(pools) == 0:
		return "no pools"
	case trouble == 0:
		return noun(len(pools)) + ": all fine"
	case trouble == len(pools):
		return noun(trouble) + " with trouble"
	}
	return fmt.Sprintf("%s fine, %d with trouble", noun(len(pools)-trouble), trouble)
}

// staleAfter is how old the controller's Lease may be, whatever the clocks: a leader renews it every 2 s.
const staleAfter = 2 * time.Minute

// stale warns if coordinator-controller does not run, because its counts are then old. It returns an empty text if the controller
// runs, or if nobody knows whether it does.
func stale(o Objects, now time.Time) string {
	c := o.Controller
	if c == nil || c.Spec.RenewTime == nil || now.Sub(c.Spec.RenewTime.Time) <= staleAfter {
		return ""
	}
	return fmt.Sprintf("coordinator-controller was last heard from %s ago: counts and conditions are from that time",
		short(now.Sub(c.Spec.RenewTime.Time)))
}
