package replica

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Times of a watch, as an API server has them.
const (
	// watchTime is the shortest duration of a watch whose client asks for none; the longest is twice that.
	watchTime = 30 * time.Minute
	// bookmarkTime is the time between bookmarks, which may be a quarter longer.
	bookmarkTime = time.Minute
	// lastBookmark is how long before its end a watch gets a bookmark to resume from.
	lastBookmark = 2 * time.Second
)

// look returns the view's present Look, its number, and a channel that is closed when the Look is no longer current. A caller
// takes the replica's content before it calls look. So it knows that any later Look began at that content's revision or later.
func (h *Handler) look() (Look, uint64, <-chan struct{}) {
	if h.config.View == nil {
		return nil, 0, nil
	}
	look, over := h.config.View.Look()
	return look, h.looks.observe(look, h.replica.Position()), over
}

// watch answers with a stream of events. Once the answer has begun, errors are sent as events, as an API server does.
func (h *Handler) watch(w *deadlined, r *http.Request, o *options) error {
	if err := h.ready(r.Context()); err != nil {
		return err
	}
	f, err := negotiate(r, "watch", h.replica.Type())
	if err != nil {
		return err
	}
	life := watchTime + h.config.Chance.Below(watchTime)
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds != 0 {
		life = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(r.Context(), life)
	defer cancel()

	out := &gathered{deadlined: w}
	s := &served{
		handler: h, eye: eye{options: o, typ: f.from}, form: f,
		w: out, frames: stream.NewFrameWriter(out, f.to), end: time.Now().Add(life), client: r.UserAgent(),
	}
	err = s.open(ctx) // before the header, so that a client with an answer misses nothing from then on
	if s.cursor != nil {
		defer func() { s.cursor.close() }() // another one by then, if the view has turned
	}
	w.Header().Set("Content-Type", f.to.Encoding.ContentType(true))
	w.WriteHeader(http.StatusOK)
	w.flush()
	if err == nil {
		err = s.run(ctx)
	}
	switch {
	case err == nil, errors.Is(err, io.EOF), ctx.Err() != nil, w.failed != nil:
		return nil // an orderly end, or nobody is there
	}
	status := h.statusOf(err)
	if h.config.BeforeExpired != nil && status.Code == http.StatusGone {
		ctx, cancel := context.WithTimeout(ctx, expiryWait)
		defer cancel()
		h.config.BeforeExpired(ctx)
	}
	if s.frames.WriteError(status) == nil {
		_ = out.flush() // nobody is there any more if it fails
	}
	return nil
}

// served is a watch under way.
type served struct {
	handler *Handler
	eye     eye
	form    *form
	w       *gathered
	frames  *stream.FrameWriter
	client  string
	end     time.Time

	// marked is the revision up to which the client knows that it has everything, for a Prompt handler.
	marked  edge.Revision
	cursor  *cursor
	initial *frozen         // what there was where the cursor began, if it is to be told
	over    <-chan struct{} // closed when the eye's look is over; nil means never
	// unsure says that the client may have seen its present state with another look than the eye's.
	unsure bool
	// foreign says that the watch resumes ahead of this replica, so the client's state came from another view.
	foreign bool
}

// open finds where the watch starts.
func (s *served) open(ctx context.Context) error {
	h, o := s.handler, s.eye.options
	var err error
	initial := o.SendInitialEvents != nil && *o.SendInitialEvents
	if o.revision != 0 && !initial {
		s.marked = o.revision
		s.cursor, err = h.replica.cursor(o.revision)
		if errors.Is(err, stream.ErrExpired) {
			err = tooOld("too old resource version: %d (%d)", o.revision, h.replica.Stats().Oldest)
		}
	} else if err = h.reach(ctx, o.revision); err == nil {
		s.initial, s.cursor, err = h.replica.begin()
		if !initial {
			s.initial = nil
		}
	}
	s.eye.look, _, s.over = h.look()
	if s.eye.look != nil && !initial && o.revision != 0 {
		known, sure := h.looks.seen(s.client, o.revision, s.eye.look)
		if o.viewed { // by whatever process: to tell all again is right for each
			known, sure = true, false
		}
		if err == nil && !known {
			err = errUnknown()
		}
		s.unsure, s.foreign = !sure, o.revision > h.replica.Position()
	}
	if err == nil && h.replica.Type() != s.eye.typ {
		err = tooOld("the encoding of the objects has changed; list again")
	}
	return err
}

// run writes events until ctx ends, or returns why there can be no more.
func (s *served) run(ctx context.Context) error {
	if s.initial != nil {
		if err := s.tell(s.initial); err != nil {
			return err
		}
		s.marked, s.initial = s.initial.revision, nil
	}
	bookmark := time.NewTimer(s.untilBookmark())
	defer bookmark.Stop()
	silent := time.NewTicker(writeTimeout / 3)
	defer silent.Stop()
	for {
		changes, told, more, err := s.cursor.take()
		if err != nil {
			return err
		}
		// After the changes were taken: up to them, what has been shown until now is what the view showed.
		look, _, over := s.handler.look()
		s.over = over
		switch turned := s.unsure || look != s.eye.look; {
		case told > s.handler.replica.Position(): // there are no changes
		case s.foreign:
			return errUnknown()
		case turned:
			if err := s.turn(changes, told, look); err != nil {
				return err
			}
			continue
		}
		for i := range changes {
			if err := s.change(&changes[i]); err != nil {
				return err
			}
			s.marked = max(s.marked, changes[i].Object.Revision)
		}
		if len(changes) > 0 {
			if err := s.w.flush(); err != nil {
				return err
			}
		}
		switch {
		case more == nil:
			more = closed // look after the rest, then take again
		case s.handler.config.Prompt && told > s.marked:
			if err := s.bookmark(told); err != nil {
				return err
			}
		}
		select {
		case <-more:
		case <-s.over:
		case <-bookmark.C:
			if err := s.bookmark(told); err != nil {
				return err
			}
			bookmark.Reset(s.untilBookmark())
		case <-silent.C:
			// HTTP/2 ends a stream at its deadline, whether or not there is something to write.
			s.w.extend()
		case <-ctx.Done():
			return nil
		}
	}
}

// closed is always ready.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func errUnknown() error {
	return tooOld("what this node has shown up to that revision is not known any more; list again")
}

// tell tells what there is, and that this was all.
func (s *served) tell(content *frozen) error {
	for o := range content.after(stream.Key{}, s.eye.namespace, s.eye.name) {
		seen, ok, err := s.eye.sees(o)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := s.write(stream.Event{Type: stream.Added, Object: seen}); err != nil {
			return err
		}
	}
	// Before the client knows, for it may come back at once, on another connection.
	s.handler.looks.shown(s.client, content.revision)
	if s.eye.AllowWatchBookmarks {
		end := stream.Event{Type: stream.InitialEventsEnd, Object: stream.Object{Revision: content.revision}}
		if err := s.frames.Write(end); err != nil {
			return err
		}
	}
	return s.w.flush()
}

// change tells a change, if it is one to this client.
func (s *served) change(c *change) error {
	event, ok, err := s.eye.event(c)
	if err == nil && !ok && s.unsure {
		event, ok, err = s.eye.missed(c)
	}
	if err != nil || !ok {
		return err
	}
	return s.write(event)
}

func (s *served) write(event stream.Event) error {
	seen := event.Object.Revision
	var err error
	if event.Object, err = s.form.object(event.Object, true); err != nil {
		return err
	}
	if event.Object.Revision != seen && s.eye.elsewhere {
		_ = s.w.flush() // it ends anyway
		return io.EOF
	}
	return s.frames.Write(event)
}

// bookmark tells the client up to which revision it has everything, if it asked for bookmarks. A client whose revision is ahead
// of the replica's gets none, because its state is newer.
func (s *served) bookmark(told edge.Revision) error {
	if !s.eye.AllowWatchBookmarks || told > s.handler.replica.Position() {
		return nil
	}
	s.marked = told
	if err := s.frames.Write(stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: told}}); err != nil {
		return err
	}
	return s.w.flush()
}

// untilBookmark is the time to the next bookmark: about a minute, and once shortly before the end.
func (s *served) untilBookmark() time.Duration {
	next := bookmarkTime + s.handler.config.Chance.Below(bookmarkTime/4)
	if last := time.Until(s.end) - lastBookmark; last > 0 && last < next {
		next = last
	}
	return next
}
