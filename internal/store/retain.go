package store

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

const (
	// unreadFor is how long a collection is kept that nobody reads and nobody needs (see Need). Only time in which the cloud
	// could be asked counts (see Online).
	unreadFor = 7 * 24 * time.Hour
	// touchEvery is how exactly it is known on disk when something was read.
	touchEvery = time.Hour
	// clockLag is by how much the clock on disk may be behind, which has no write of its own before.
	clockLag = 2 * touchEvery
	// refuseFor is how long a collection is not taken again that had to go for others, unless somebody needs it: else it would
	// be written and dropped in turns.
	refuseFor = time.Hour
)

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

// Online says whether the cloud can be asked from now on. Only time between Online(true) and Online(false) makes a
// collection old, and none is collected for its age while it is false, as it is at first. Once it was true, what other formats'
// files have can be read anew, so Run removes them.
func (s *Store) Online(online bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.config.Now()
	s.asked.at(now)
	s.asked.online, s.asked.last = online, now
	signal(s.waiting)
}

// Need says which collections the node needs; it replaces what was said before. They are never collected, neither for
// their age nor for space, whether they are on disk already or come later. What users have read who are still here is not
// collected for its age: some programs list only when they start. A user is what a Client begins with, up to a space. Until the
// first call nobody knows what is needed, and nothing is collected for its age.
func (s *Store) Need(ids []Collection, users ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needed, s.users = make(map[Collection]bool, len(ids)), make(map[string]bool, len(users))
	for _, user := range users {
		s.users[user] = true
	}
	for _, id := range ids {
		s.needed[id] = true
		if e := s.entries[key{Collection: id}]; e != nil {
			e.refused = time.Time{}
		}
	}
}

// Touch says that somebody reads a collection. It costs at most one write an hour.
func (s *Store) Touch(id Collection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key{Collection: id}]; e != nil {
		s.touchLocked(e)
	}
}

// touchLocked notes a use. It does not lift a refusal: else what is in use and has no space would be written and dropped in
// turns.
func (s *Store) touchLocked(e *entry) {
	e.read = s.asked.at(s.config.Now())
	if e.state != nil && e.read-e.state.read() >= touchEvery {
		e.touched = true
	}
}

// collect drops the collections that nobody needs and nobody has read for too long, once an hour, and, while too many bytes are
// in use, others: those that do not go last first, and of them those read least recently. It returns their number.
func (s *Store) collect() (gone int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.config.Now()
	clock, excess := s.asked.at(now), s.health.Bytes-s.config.maxBytes
	aging := s.asked.online && s.needed != nil && clock-s.collected >= collectEvery
	if aging {
		s.collected = clock
	}
	var all []key
	for k, e := range s.entries {
		switch {
		case k.blob != "" || s.needed[k.Collection]:
		case e.state != nil:
			all = append(all, k)
		case e.latest() == nil && !e.gone && e.at.Revision == 0 && !now.Before(e.refused):
			delete(s.entries, k) // nothing is known of it
		}
	}
	slices.SortFunc(all, func(a, b key) int {
		return cmp.Or(cmp.Compare(s.lastly(a), s.lastly(b)), cmp.Compare(s.entries[a].read, s.entries[b].read))
	})
	for _, k := range all {
		e := s.entries[k]
		user, _, _ := strings.Cut(k.Client, " ")
		old := aging && clock-e.read >= unreadFor && !s.users[user]
		if !old && excess <= 0 {
			continue
		}
		excess -= e.state.bytes
		gone++
		s.dropLocked(k, "nobody read it")
		if e = s.entries[k]; !old {
			e.why, e.refused = "there was no space for it", now.Add(refuseFor)
		}
	}
	return gone
}

// lastly is 1 for what goes last when space is needed, else 0.
func (s *Store) lastly(k key) int {
	if s.config.Last != nil && s.config.Last(k.Collection) {
		return 1
	}
	return 0
}
