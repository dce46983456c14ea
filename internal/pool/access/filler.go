package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
)

// fillAfter is how long the election Lease must stay unwritten before a filler may take its turn: a leader's term and 2 s more.
// In these 2 s a hub with a link to the cloud takes the Lease, if there is such a hub.
const fillAfter = edge.ElectionTerm + 2*time.Second

// decideFiller returns why caller may not replace the filler's Lease old by next; nil means that it may. oldLive says that the
// turn of old's holder is not over, by this process's clock. unled is the reason why nobody may fill now; nil means that somebody
// may.
//
//	old holder │ next holder │ allowed
//	nobody     │ caller      │ if somebody may fill, transitions + 1
//	caller     │ caller      │ if somebody may fill, transitions + 1: a turn is not renewed, another one begins
//	caller     │ nobody      │ yes, transitions unchanged (the turn is over)
//	other      │ caller      │ if other's turn is over and somebody may fill, transitions + 1
//	other      │ nobody      │ no
//	any        │ other       │ no: nobody writes for another
func decideFiller(caller edge.NodeName, old, next leaseMark, oldLive bool, unled error) error {
	if err := decideHolder(caller, old, next); err != nil {
		return err
	}
	switch {
	case next.holder == "" && old.holder != caller:
		return fmt.Errorf("only its holder %q may release the Lease", old.holder)
	case next.holder == "":
		return nil
	case termOf(next) == termOf(old):
		return errors.New("a filler's turn is not renewed: leaseTransitions must be one more, for another turn")
	case next.term <= 0 || next.term > edge.FillerTurn:
		return fmt.Errorf("leaseDurationSeconds must be 1 to %d", int(edge.FillerTurn.Seconds()))
	case old.holder != "" && old.holder != caller && oldLive:
		return fmt.Errorf("node %q fills this coordinator, and its turn is not over", old.holder)
	}
	return unled
}

// unled returns why no filler may act now; nil means that nobody leads, and has not for fillAfter.
func (e *Election) unled(leader leaseMark) error {
	if leader.holder != "" {
		return fmt.Errorf("node %q leads: it fills this coordinator", leader.holder)
	}
	return e.vacancy.mayFill()
}

// Fills refuses a push by a node that is not the filler, or no longer under the given turn, or while somebody leads.
func (e *Election) Fills(ctx context.Context, n edge.NodeName, turn int32) error {
	leader, err := e.leader(ctx)
	if err != nil {
		return unknownHolder(err)
	}
	filler, err := e.holder(ctx, edge.LeaseFiller)
	if err != nil {
		return unknownHolder(err)
	}
	return decideFill(n, turn, filler, e.unled(leader))
}

// decideFill is the rule: while nobody leads, the live holder of the filler's Lease pushes, under the transitions that it has.
func decideFill(n edge.NodeName, turn int32, filler leaseMark, unled error) error {
	switch {
	case unled != nil:
		return exchange.Refused(http.StatusForbidden, "%v", unled)
	case filler.holder != n:
		return exchange.Refused(http.StatusForbidden, "only the filler may push what does not come from the cloud, but the "+
			"holder of the Lease %s is %q now", edge.LeaseFiller, filler.holder)
	case filler.transitions != turn:
		return exchange.Refused(http.StatusForbidden, "turn %d of node %q is over; it fills under turn %d now", turn, n,
			filler.transitions)
	}
	return nil
}
