package store

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// span is a part of the file.
type span struct {
	at    int64
	bytes int
}

// state is what the log has of a key. It never changes: a later frame makes another state.
type state struct {
	last   frame
	frames []span
	bytes  int64  // of all of them
	base   int64  // of those in the batch with which it began
	born   uint64 // that batch
	size   int64  // of all bodies, unpacked

	suspect bool // something was lost since its last frame, which may have been of this key
	foreign bool // some of it is encrypted with another key
}

// add notes a frame that belongs to the state.
func (s *state) add(f frame) {
	s.last, s.frames = f, append(s.frames, span{f.at, f.bytes})
	s.bytes, s.size = s.bytes+int64(f.bytes), s.size+int64(f.size)
	if f.batch == s.born {
		s.base += int64(f.bytes)
	}
	s.suspect, s.foreign = false, s.foreign || f.foreign
}

func (s *state) read() time.Duration { return time.Duration(s.last.seconds) * time.Second }

// found is the result of scanning a file.
type found struct {
	states  map[key]*state
	clock   time.Duration
	end     int64    // behind the last batch that counts
	batch   uint64   // its number
	torn    int64    // bytes behind it
	corrupt []string // what was lost before it; the first few
	foreign int      // how many keys had a state that is encrypted with another key
}

// group is the frames of one batch.
type group struct {
	number uint64
	begin  int64
	frames []frame
	ended  bool
	whole  bool // nothing is missing between begin and the last frame
}

// lack notes that something is missing from an offset on.
func (g *group) lack(at int64) {
	g.frames = append(g.frames, frame{kind: hole, at: at})
	g.whole = false
}

// scan reads all of a file once, and finds out each key's state.
//
// Batches are written and synced one after the other, so a power cut can leave only the last batch incomplete. None of such a
// batch counts, unless it is known to have been synced. Anything that is missing before the last batch was once there, so that is
// corruption. If the head of a damaged frame is whole, it names the key whose state is lost. Otherwise any key may be hit. Each
// state is then lost, unless a later frame of the key shows that it was not hit: the frame begins the state anew, or goes on from
// the last frame that is known.
func scan(file io.ReaderAt, size, synced int64, v *vault) *found {
	f, g, next := &found{states: map[key]*state{}}, group{ended: true, whole: true}, int64(0) // next is where the last frame ends
	r := &reader{file: file, size: size, ahead: frameBytes, vault: v}
	for at := int64(0); at < size; {
		fr, body, ok := r.frame(at)
		if !ok {
			at = r.seek(at + 1)
			continue
		}
		if fr.form&encrypted != 0 && fr.kind != damaged {
			_, err := v.open(body, fr.place())
			fr.foreign = err != nil
		}
		missing := at > next
		if fr.batch != g.number {
			if missing && (!g.ended || fr.batch != g.number+1) {
				g.lack(next) // what follows shows that it was once there
				missing = false
			}
			f.take(g)
			g = group{number: fr.batch, begin: next, whole: true}
		}
		if missing {
			g.lack(next)
		}
		g.frames = append(g.frames, fr)
		g.whole, g.ended = g.whole && fr.kind != damaged, fr.kind == commits
		at += int64(fr.bytes)
		next = at
	}
	if g.begin < synced && next < synced {
		g.lack(next)
	}
	f.end, f.batch = g.begin, g.number-1
	if g.ended && g.whole || g.begin < synced {
		f.take(g)
		f.end, f.batch = next, g.number
	}
	f.torn = size - f.end
	if r.failed != nil {
		f.problem("some of it cannot be read: " + r.failed.Error())
	}
	for k, s := range f.states {
		if s.foreign {
			f.foreign++
			delete(f.states, k)
		} else if s.suspect {
			f.lose(k, "something near it is corrupt")
		}
	}
	return f
}

// take applies a batch to the states.
func (f *found) take(g group) {
	for _, fr := range g.frames {
		s := f.states[fr.key]
		switch fr.kind {
		case begins:
			s = &state{born: fr.batch}
			s.add(fr)
			f.states[fr.key] = s
		case goesOn:
			if s != nil && s.frames[len(s.frames)-1].at == int64(fr.prev) {
				s.add(fr)
			} else if s != nil {
				f.lose(fr.key, "a change of it is missing")
			}
		case removes:
			delete(f.states, fr.key)
		case commits:
			f.clock = max(f.clock, time.Duration(fr.seconds)*time.Second)
		case damaged:
			f.lose(fr.key, fmt.Sprintf("%d bytes at %#x have a wrong checksum", fr.bytes, fr.at))
		case hole:
			f.problem(fmt.Sprintf("there is no frame at %#x", fr.at))
			for _, s := range f.states {
				s.suspect = true
			}
		}
	}
}

func (f *found) lose(k key, why string) {
	delete(f.states, k)
	f.problem(k.String() + ": " + why)
}

func (f *found) problem(what string) {
	const enough = 8
	if len(f.corrupt) < enough && !slices.Contains(f.corrupt, what) {
		f.corrupt = append(f.corrupt, what)
	}
}
