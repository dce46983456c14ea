package plugin

import (
	"context"
	"fmt"
	"time"
)

// lookAgain is how often pools are looked at. At a coordinator it takes twice as long: there it reads whole Nodes.
const lookAgain = 5 * time.Second

// shown is what was last shown of pools.
type shown struct {
	// texts are pools as they were shown, by their names.
	texts map[string]string
	// problems says that only pools with problems are shown, and those that had some when they were shown last.
	problems bool
}

// shownOf returns what a list of pools has shown.
func shownOf(pools []Pool, problems bool) *shown {
	s := &shown{texts: map[string]string{}, problems: problems}
	s.changed(pools)
	return s
}

// changed returns the pools that differ from what was last shown, and records them as shown. A pool does not differ if only the
// time of its leader's last report is new.
func (s *shown) changed(pools []Pool) (all []Pool) {
	now := make(map[string]string, len(pools))
	for i := range pools {
		p := pools[i]
		p.LeaderSaid = nil
		was, known := s.texts[p.Name]
		text := fmt.Sprintf("%+v", p)
		if s.problems && !known && len(p.Problems) == 0 {
			continue
		}
		if s.problems && len(p.Problems) == 0 {
			all = append(all, pools[i]) // it is fine again
			continue
		}
		now[p.Name] = text
		if was != text {
			all = append(all, pools[i])
		}
	}
	s.texts = now
	return all
}

// follower shows pools that change.
type follower struct {
	reader *Reader
	// pools are the names of those to follow; without any, all.
	pools []string
	// show is called with those that have changed. An error ends run.
	show func(pools []Pool, now time.Time) error
	// complain is told why the pools could not be read, each time that they are tried.
	complain func(error)
}

// run follows pools until ctx ends, which is no error. It reads them again and again. A watch of each kind would show a change
// sooner, but would be a second way to read the same objects.
func (f *follower) run(ctx context.Context, last *shown) error {
	period := lookAgain
	if f.reader.Within != "" {
		period *= 2
	}
	again := time.NewTicker(period)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
		o, err := f.reader.Objects(ctx, f.pools...)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			f.complain(err)
			continue
		}
		now := time.Now()
		if changed := last.changed(PoolsOf(o, now)); len(changed) > 0 {
			if err := f.show(changed, now); err != nil {
				return err
			}
		}
	}
}
