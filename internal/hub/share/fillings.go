package share

import (
	"maps"
	"sync"
	"time"

	"yurtcoordinator/internal/edge"
)

// fillings records how far the coordinator last had each resource.
type fillings struct {
	mu   sync.Mutex
	last map[string]edge.Filling // nil means that nobody knows
	seen time.Time
}

// set records what the mirror has of each carrier's resource. The parameter declared has the resources that are declared current;
// nil means that the declaration failed.
func (f *fillings) set(now time.Time, carriers map[*carrier]state, mirror positions, declared map[string]*carrier) {
	last := make(map[string]edge.Filling, len(carriers))
	for c := range carriers {
		name := c.label()
		switch {
		case declared[name] != nil:
			last[name] = edge.FillingCurrent
		case mirror.at[c.resource.GVR].Revision != 0:
			last[name] = edge.FillingComplete
		case c.resource.Optional:
		default:
			last[name] = edge.FillingNone
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.seen = last, now
}

func (f *fillings) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = nil
}

// Fillings returns how much of each resource the coordinator has, while this hub leads; nil means unknown. If the hub has not
// declared anything for leaseSeconds, a current resource counts as complete only.
func (p *Pool) Fillings() map[string]edge.Filling {
	f := &p.fillings
	f.mu.Lock()
	defer f.mu.Unlock()
	all := maps.Clone(f.last)
	if p.config.Ends.Since(f.seen) < leaseSeconds*time.Second {
		return all
	}
	for name, filling := range all {
		if filling == edge.FillingCurrent {
			all[name] = edge.FillingComplete
		}
	}
	return all
}
