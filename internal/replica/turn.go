package replica

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// turn switches the watch from its old look to another one, and sends the client each object that looks different. Before that,
// it sends all changes up to the replica's present content, with the old look. The cursor has already taken some of these
// changes, up to the revision told; they are the parameter changes.
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
	// First of all: whoever comes back with a revision of what is told now may have had only a part of it.
	s.handler.looks.telling(content.revision)
	was := s.eye.look
	if s.unsure {
		was = nil
	}
	s.eye.look, s.unsure = look, false
	return s.retell(content, was)
}

// catchUp sends the client the given changes and those that follow them, with the look that s.eye has. It stops at the revision
// upTo, which the replica has reached.
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

// retell sends each object whose form in the present look differs from its form in the former look (was). If was is nil, nobody
// knows what the client has seen, and retell sends all objects. They come in the order of the cloud's revisions. After each
// object a bookmark sets the client back to the content's revision, because a client resumes from the last revision that it got.
func (s *served) retell(content *frozen, was Look) error {
	all := slices.Collect(content.after(stream.Key{}, s.eye.namespace, s.eye.name))
	slices.SortFunc(all, func(a, b stream.Object) int { return cmp.Compare(a.Revision, b.Revision) })
	for _, o := range all {
		event, ok, err := s.eye.turned(o, was)
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

// turned returns the event for an object that this eye's client has seen with a former look (was). If was is nil, nobody knows
// what the client has seen. turned returns false if the object looks the same.
func (e *eye) turned(o stream.Object, was Look) (stream.Event, bool, error) {
	now, sees, err := e.sees(o)
	if err != nil {
		return stream.Event{}, false, err
	}
	if was == nil {
		return e.anew(o, now, sees)
	}
	old, saw, err := (&eye{options: e.options, look: was, typ: e.typ}).sees(o)
	switch {
	case err != nil:
		return stream.Event{}, false, err
	case sees && saw:
		return stream.Event{Type: stream.Modified, Object: now}, !bytes.Equal(now.Raw, old.Raw), nil
	case sees:
		return stream.Event{Type: stream.Added, Object: now}, true, nil
	default:
		return stream.Event{Type: stream.Deleted, Object: old}, saw, nil
	}
}

// anew returns the event for a client that may have seen the object in any form, or not at all.
func (e *eye) anew(o, now stream.Object, sees bool) (stream.Event, bool, error) {
	if sees {
		return stream.Event{Type: stream.Modified, Object: now}, true, nil
	}
	return e.gone(o, marked(o.Revision, nil))
}

// missed is for a change that this eye does not see. It returns the event for a client that may have seen the object's former
// state with another look.
func (e *eye) missed(c *change) (stream.Event, bool, error) {
	if c.Old.Revision == 0 {
		return stream.Event{}, false, nil
	}
	return e.gone(c.Old, c.Object.Revision)
}

// gone returns an event that says that an object does not exist, without the object's content. It returns false for a key that
// the client does not select. It also returns false if the view shows the object: the client does not see it because of a
// selector, which has left it out with every look.
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
