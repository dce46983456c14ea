package appset

import (
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1beta1"
)

// Health is the state of a pool's workload.
type Health string

const (
	// Fresh says that the pool has no workload, or that its first Pods have not been available yet.
	Fresh Health = "Fresh"
	// Settled says that all wanted Pods are of the workload's newest revision, and available.
	Settled Health = "Settled"
	// UnderWay says that Pods of the newest revision have yet to become available.
	UnderWay Health = "UnderWay"
	// Failed says that they have not become available in time.
	Failed Health = "Failed"
	// Down says that they were available, and some are not any more.
	Down Health = "Down"
)

// changes says that the workload has been changed, and is not available with the change.
func (h Health) changes() bool { return h == UnderWay || h == Failed }

// Image says how far the images of a pool's new Pods are on the nodes that are to run them.
type Image string

const (
	// NotPulled says that no pull has begun.
	NotPulled Image = ""
	// Pulling says that a pull is under way.
	Pulling Image = "Pulling"
	// NotPullable says that a pull has failed, and will be tried again.
	NotPullable Image = "NotPullable"
	// Pulled says that all images are there.
	Pulled Image = "Pulled"
)

// PoolState is what Decide goes by in one pool.
type PoolState struct {
	// Current says that the workload is as wanted, whether its Pods are available or not.
	Current bool
	Health  Health
	// Canary says that the pool changes before those that are none.
	Canary bool
	// Away says that nobody waits for the pool: it is cut off, or its Deployment is paused.
	Away bool
	// Other is the state of the group's other workloads in the pool: of several the worst. Empty means that there is none.
	Other Health
	// Image matters if images are pulled first.
	Image Image
}

// Step is what to do in a pool now.
type Step string

const (
	// Apply writes the workload as it is wanted.
	Apply Step = "Apply"
	// Pull pulls the images of the new Pods, and leaves the workload as it is.
	Pull Step = "Pull"
	// Wait leaves the workload as it is.
	Wait Step = "Wait"
)

// Decision is what to do in all pools now.
type Decision struct {
	// Steps are in the order of the pools.
	Steps []Step
	// Stop is the index of the pool that failed and so stops the rollout; negative means none.
	Stop int
}

// defaultMaxUnavailable is the CRD's default.
var defaultMaxUnavailable = intstr.FromString("10%")

// most returns how many of so many pools may be under way at a time.
func most(r *v1beta1.Rollout, all int) int {
	share := ptr.Deref(r.MaxUnavailable, defaultMaxUnavailable)
	n, err := intstr.GetScaledValueFromIntOrPercent(&share, all, false)
	if err != nil { // the CRD refuses such a value
		return 1
	}
	return max(1, n)
}

// Decide returns what to do in each pool. It is pure. A nil rollout changes all pools at once.
//
// The workload of a pool that waits is left as it is. New workloads are made at once. A pool where a former change has not become
// available gets the newest change as soon as its turn comes. That change may be the repair, and the pool has nothing to lose. A
// pool that is down for another reason comes last, because it must not be the first to try a change.
func Decide(r *v1beta1.Rollout, pools []PoolState) Decision {
	d := Decision{Steps: make([]Step, len(pools)), Stop: -1}
	if r == nil {
		for i := range d.Steps {
			d.Steps[i] = Apply
		}
		return d
	}
	t := taken{Rollout: r, most: most(r, len(pools))}
	for i, p := range pools {
		if t.counts(p) && d.Stop < 0 {
			d.Stop = i
		}
	}
	var last []int
	waits := false
	for i, p := range pools {
		switch {
		case p.Current || p.Health == Fresh:
			d.Steps[i] = Apply
		case r.Paused || p.Away || d.Stop >= 0:
			d.Steps[i] = Wait
		case p.Health == Down || p.Other == Down || p.Other == Fresh:
			d.Steps[i], last = Wait, append(last, i)
		default:
			d.Steps[i] = t.step(p)
			waits = true
		}
	}
	for _, i := range last {
		if !waits && !t.canaries && t.tried < t.most {
			d.Steps[i] = Apply
			t.tried++
		}
	}
	return d
}

// taken is how much of what a rollout may do at a time is taken.
type taken struct {
	*v1beta1.Rollout
	most int
	// under counts the pools that are under way; tried those of them that have the newest change; pulls those that pull images.
	under, tried, pulls int
	// canaries says that a canary has yet to be changed, or to become available.
	canaries bool
}

// counts takes what a pool has taken already. It reports whether the pool stops the rollout.
func (t *taken) counts(p PoolState) (stops bool) {
	if p.Away {
		return false
	}
	own := p.Health.changes()
	if own || p.Other.changes() {
		t.under++
	}
	if own && p.Current || p.Other.changes() {
		t.tried++
	}
	done := p.Current && p.Health == Settled
	t.canaries = t.canaries || p.Canary && !done && p.Health != Fresh && p.Health != Down
	return p.Current && p.Health == Failed || p.Other == Failed
}

// step returns what to do in a pool that is to be changed and can be.
func (t *taken) step(p PoolState) Step {
	switch {
	case t.canaries && !p.Canary, p.Other.changes():
		return Wait
	case p.Health != Settled: // with a former change
		if t.tried >= t.most {
			return Wait
		}
	case t.PrePull != nil && p.Image != Pulled:
		if p.Image == NotPulled && t.pulls >= t.most {
			return Wait
		}
		if p.Image != NotPullable {
			t.pulls++
		}
		return Pull
	case t.under >= t.most && t.PrePull != nil:
		t.pulls++
		return Pull
	case t.under >= t.most:
		return Wait
	default:
		t.under++
	}
	t.tried++
	return Apply
}
