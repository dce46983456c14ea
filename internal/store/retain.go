package store

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

const (
	// unreadFor is how long the store keeps a collection that nobody reads and nobody needs (Need). Only the time in which the
	// cloud could be asked counts (Online).
	unreadFor = 7 * 24 * time.Hour
	// touchEvery is how exactly the disk knows when a collection was last read.
	touchEvery = time.Hour
	// clockLag is by how much the clock on disk may be behind before it is written alone.
	clockLag = 2 * touchEvery
	// refuseFor is how long the store refuses a collection that it removed to make space, unless somebody needs it. Otherwise the
	// collection would be written and dropped again and again.
	refuseFor = time.Hour
)

// asked is a clock that runs only while the cloud can be asked. The age of a collection is measured by asked, because a
// collection that nobody reads may go only if it could have been read again. So nothing grows old during a cut, or while the node
// is off. A step of the machine's clock does not count either, because asked adds up differences of Config.Now.
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

// Online says whether the cloud can be asked from now on; at first it can't. Collections grow old, and are removed for their age,
// only while the cloud can be asked.
func (s *Store) Online(online bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.config.Now()
	s.asked.at(now)
	s.asked.online, s.asked.last = online, now
}

// Need says which collections the node needs. It replaces what an earlier call said. Needed collections are never removed,
// neither for their age nor for space, even if they come to the disk later. The collections of the given users are not removed
// for their age, because some programs list only when they start. A user is the beginning of Collection.Client up to a space.
// Until the first call, nothing is removed for its age.
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

// touchLocked notes that a collection was read. It does not end a refusal (refuseFor). Otherwise a collection that is in use, but
// has no space, would be written and dropped again and again.
func (s *Store) touchLocked(e *entry) {
	e.read = s.asked.at(s.config.Now())
	if e.state != nil && e.read-e.state.read() >= touchEvery {
		e.touched = true
	}
}

// collect drops collections that nobody needs, and returns how many. Once an hour it drops those that nobody has read for
// unreadFor, except those of the users that Need names. While too many bytes are in use, it drops those that were read least
// recently; those that Config.Last names go last.
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
