package access

import (
	"fmt"
	"sync"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// vacancy knows since when the election Lease has stayed unchanged, by the monotonic clock. A coordinator that has just started
// does not know who led before. It keeps the Lease vacant for one term, because a former leader may not know yet that its own
// term is over.
type vacancy struct {
	clock ends.Clock
	until time.Time // before that nobody may take the Lease

	mu  sync.Mutex
	led time.Time // when the Lease was last written; before that, when this process started
}

// newVacancy returns the vacancy of a coordinator that has just started.
func newVacancy(c ends.Clock) *vacancy {
	now := c.Running()
	return &vacancy{clock: c, until: now.Add(edge.ElectionTerm), led: now}
}

// mayTake says why nobody may take the Lease yet; nil means that somebody may.
func (v *vacancy) mayTake() error {
	if left := v.clock.Until(v.until); left > 0 {
		return fmt.Errorf("a former leader may not know yet that its term is over: the Lease stays vacant for %s",
			left.Round(time.Millisecond))
	}
	return nil
}

// admitted notes that the Lease is about to be written.
func (v *vacancy) admitted() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.led = v.clock.Running()
}

// mayFill returns for how long nobody may be a filler yet, as an error; nil means that a filler may act.
func (v *vacancy) mayFill() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if left := v.clock.Until(v.led.Add(fillAfter)); left > 0 {
		return fmt.Errorf("a hub that reaches the cloud may still come to lead: nobody fills this coordinator instead for %s",
			left.Round(time.Millisecond))
	}
	return nil
}

// termOf is what a mark has in common with all others of its term.
func termOf(m leaseMark) leaseMark { return leaseMark{holder: m.holder, transitions: m.transitions} }
