package store

import "time"

// asked is a clock that runs only while the cloud can be asked: ages are measured by it. What nobody reads is of no use
// any more only if it could have been replaced. So neither a cut nor a node that is off makes anything old, and no machine's
// clock that steps does: Config.Now's differences count.
type asked struct {
	total  time.Duration // since the file was made
	online bool
	last   time.Time // as far as the time is counted, while online
}

// at is what the clock shows.
func (a *asked) at(now time.Time) time.Duration {
	if a.online {
		a.total += max(0, now.Sub(a.last))
		a.last = now
	}
	return a.total
}

func (a *asked) set(now time.Time, online bool) {
	a.at(now)
	a.online, a.last = online, now
}

// Online says whether the cloud can be asked from now on. Only time between Online(true) and Online(false) makes a
// collection old, and none is collected for its age while it is false, as it is at first.
func (s *Store) Online(online bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked.set(s.config.Now(), online)
}

// Need says which collections the node needs; it replaces what was said before. They are never collected, neither for
// their age nor for space, whether they are on disk already or come later. Until the first call nobody knows what is needed,
// and nothing is collected for its age.
func (s *Store) Need(ids []Collection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needed = make(map[Collection]bool, len(ids))
	for _, id := range ids {
		s.needed[id] = true
		if c := s.collections[id]; c != nil {
			c.refused = time.Time{}
		}
	}
}

// Touch says that somebody reads a collection. It costs at most one write an hour.
func (s *Store) Touch(id Collection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.collections[id]; c != nil {
		s.touchLocked(c)
	}
}

// touchLocked notes a use. It does not lift a refusal: else what is in use and has no space would be written and dropped in
// turns.
func (s *Store) touchLocked(c *entry) {
	c.read = s.asked.at(s.config.Now())
	if c.disk != nil && c.read-c.disk.read >= touchEvery {
		c.touched = true
	}
}

// adoptClockLocked goes on where the file's clock stood. What was read later than that, by more than the clock on disk may
// lag, was read now for all that is known.
func (s *Store) adoptClockLocked(found *contents) {
	s.asked.total = max(s.asked.total, found.asked)
	for _, disk := range found.collections {
		if disk.read <= found.asked+clockLag {
			s.asked.total = max(s.asked.total, disk.read)
		}
	}
	for i, disk := range found.collections {
		if disk.read > s.asked.total {
			found.collections[i].read = s.asked.total
			found.collections[i].misread = true
		}
	}
}
