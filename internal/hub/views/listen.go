package views

import (
	"context"
	"errors"

	"yurtcoordinator/internal/edge"
)

var errHome = errors.New("another coordinator is believed about Pods now")

// listen passes on the reports of the coordinator in a slot, and says with each whether that slot is home, until ctx ends.
func (f *Follower) listen(ctx context.Context, slot int, hear func(home bool, line edge.State)) {
	for ctx.Err() == nil {
		home := f.config.Home.Get() == slot
		while, stop := f.config.Home.While(ctx, func(at int) bool { return (at == slot) == home }, errHome)
		f.config.Coordinators[slot].Told.Presence(while, home, func(line edge.State) { hear(home, line) })
		stop()
	}
}
