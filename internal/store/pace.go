package store

import "time"

// slowdown is how many times less often what keeps changing is written than what changes now and then.
const slowdown = 15

// promptly is the same for a removal that must be prompt (Config.Prompt): however many there are, they cost a write every 3 s.
const promptly = 3

// haste is how long a change may wait because something has been written lately.
type haste uint8

const (
	patient haste = iota // for the whole pace
	prompt               // for promptly at most
	atOnce               // not at all
)

// pace says when what waits is written: a moment after a change, so that others come along, and ever less often while
// there always is another. What is written late is read again from an older revision after a crash; what is written at
// once costs a transaction of its own.
type pace struct {
	first time.Time     // when the first of what waits came; zero: nothing does
	wrote time.Time     // when it was written last
	every time.Duration // the least time between two writes
}

// change notes that something waits, and says whether that is news to the writer.
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

// due is when it must be written, if something waits.
func (p *pace) due(least time.Duration) time.Time {
	due := p.first.Add(least)
	if next := p.wrote.Add(p.every); next.After(due) {
		return next
	}
	return due
}

// ready says whether it may be written together with something else that is due.
func (p *pace) ready(now time.Time) bool {
	return !p.first.IsZero() && !now.Before(p.wrote.Add(p.every))
}

// written notes that nothing waits any more.
func (p *pace) written(now time.Time) { p.first, p.wrote = time.Time{}, now }
