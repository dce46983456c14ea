package replica

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// turn switches the watch to another look, and tells the client what that changes. Before that, it tells with the old look all
// changes up to the replica's present content. The parameter changes has those that the cursor has taken already; the others
// come after the revision told.
func (s *served) turn(changes []change, told edge.Revision, look Look) error {
	content, next, err := s.handler.replica.begin()
	if err != nil {
		return err
	}
	if err := s.catchUp(changes, told, content.revision); err != nil {
		next.close()
		return err
	}
	s.cursor.close()
	s.cursor = next
	if content.typ != s.eye.typ {
		return tooOld("the encoding of the objects has changed; list again")
	}
	before, sure := s.before, s.before.sure()
	if look != s.eye.look {
		before.looks = append(before.looks, s.eye.look)
	}
	// First of all: whoever comes back with a revision of what is told now may have had only a part of it.
	s.handler.looks.telling(content.revision, before, look)
	s.eye.look, s.before = look, seenBefore{}
	return s.retell(content, before, sure)
}

// catchUp tells the given changes and those that follow them, with the present look, up to a revision that the replica has
// reached.
func (s *served) catchUp(changes []change, told, upTo edge.Revision) error {
	for {
		for i := range changes {
			if changes[i].Object.Revision > upTo {
				return nil
			}
			if err := s.change(&changes[i]); err != nil {
				return err
			}
		}
		if told >= upTo {
			return nil
		}
		var err error
		if changes, told, _, err = s.cursor.take(); err != nil {
			return err
		}
	}
}

// retell sends each object that looks different from what the client may have seen before. sure says that before has exactly
// one look, with which the client has seen everything. Objects come in the order of the cloud's revisions. After each object a
// bookmark sets the client back to the content's revision, because a client resumes from the last revision that it got.
func (s *served) retell(content *frozen, before seenBefore, sure bool) error {
	all := slices.Collect(content.after(stream.Key{}, s.eye.namespace, s.eye.name))
	slices.SortFunc(all, func(a, b stream.Object) int { return cmp.Compare(a.Revision, b.Revision) })
	for _, o := range all {
		event, ok, err := s.eye.turned(o, before, sure)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := s.write(event); err != nil {
			return err
		}
		if s.eye.AllowWatchBookmarks {
			back := stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: content.revision}}
			if err := s.frames.Write(back); err != nil {
				return err
			}
		}
	}
	return s.w.flush()
}

// turned returns the event for an object that this eye's clients may have seen with the looks in before. It returns false if
// the object looks the same with all of them.
func (e *eye) turned(o stream.Object, before seenBefore, sure bool) (stream.Event, bool, error) {
	now, sees, err := e.sees(o)
	if err != nil {
		return stream.Event{}, false, err
	}
	differs := before.unknown
	var was stream.Object
	var saw bool
	for _, look := range before.looks {
		if was, saw, err = (&eye{options: e.options, look: look, typ: e.typ}).sees(o); err != nil {
			return stream.Event{}, false, err
		}
		differs = differs || sees != saw || sees && !bytes.Equal(now.Raw, was.Raw)
	}
	switch {
	case !differs:
		return stream.Event{}, false, nil
	case !sure:
		return e.anew(o, now, sees)
	case sees && saw:
		return stream.Event{Type: stream.Modified, Object: now}, true, nil
	case sees:
		return stream.Event{Type: stream.Added, Object: now}, true, nil
	default:
		return stream.Event{Type: stream.Deleted, Object: was}, true, nil
	}
}

// anew returns the event for a client that may have seen the object in any form, or not at all.
func (e *eye) anew(o, now stream.Object, sees bool) (stream.Event, bool, error) {
	if sees {
		return stream.Event{Type: stream.Modified, Object: now}, true, nil
	}
	return e.gone(o, marked(o.Revision, nil))
}

// missed returns the event for a change that this eye does not see. The client may have seen the object's former state with
// another look.
func (e *eye) missed(c *change) (stream.Event, bool, error) {
	if c.Old.Revision == 0 {
		return stream.Event{}, false, nil
	}
	return e.gone(c.Old, c.Object.Revision)
}

// gone returns an event that an object does not exist, without its content. It returns false if the view shows the object: then
// a selector leaves the object out, and did so with every look. It also returns false for a key that the client does not
// select.
func (e *eye) gone(o stream.Object, at edge.Revision) (stream.Event, bool, error) {
	if !e.holds(o.Key) {
		return stream.Event{}, false, nil
	}
	if _, visible := show(e.look, e.typ, o); visible {
		return stream.Event{}, false, nil
	}
	named, err := nameOnly(o.Key, at)
	if err != nil {
		return stream.Event{}, false, fmt.Errorf("%s %q: %w", e.typ.Kind, o.Key, err)
	}
	return stream.Event{Type: stream.Deleted, Object: named}, true, nil
}
