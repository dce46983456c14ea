package store

import "time"

// slowdown is how many times less often what keeps changing is written than what changes now and then.
const slowdown = 15

// promptly bounds the slowdown of a collection with removals that must be prompt (Config.Prompt). By default such removals cost
// at most one write every 3 s, however many they are. The unit is Config.flushEvery.
const promptly = 3

// haste is how long a change may wait because something has been written lately.
type haste uint8

const (
	patient haste = iota // for the whole pace
	prompt               // for promptly at most
	atOnce               // not at all
)

// pace says when waiting changes are written. The first one waits a moment, so that others come along. While changes keep coming,
// they are written ever less often. After a crash, the hub reads the unwritten ones again, from the older revision on the disk.
type pace struct {
	first time.Time     // when the first of what waits came; zero: nothing does
	wrote time.Time     // when it was written last
	every time.Duration // the least time between two writes
}

// change notes that a change waits, and reports whether the writer must learn of it.
func (p *pace) change(now time.Time, least time.Duration, h haste) (news bool) {
	if h == atOnce {
		p.wrote = time.Time{}
	}
	switch waits := !p.first.IsZero(); {
	case waits && h == patient:
		return false
	case waits && h == prompt: // its pace was found when the first came
	case now.Sub(p.wrote) < p.every:
		p.every = min(2*p.every, slowdown*least)
	default:
		p.every = least
	}
	if p.first.IsZero() {
		p.first = now
	}
	if h == prompt {
		p.every = min(p.every, promptly*least)
	}
	return true
}

// due returns when the waiting changes must be written. It has a meaning only if some wait.
func (p *pace) due(least time.Duration) time.Time {
	due := p.first.Add(least)
	if next := p.wrote.Add(p.every); next.After(due) {
		return next
	}
	return due
}

// ready reports whether waiting changes may be written together with others that are due.
func (p *pace) ready(now time.Time) bool {
	return !p.first.IsZero() && !now.Before(p.wrote.Add(p.every))
}

// written notes that nothing waits any more.
func (p *pace) written(now time.Time) { p.first, p.wrote = time.Time{}, now }
