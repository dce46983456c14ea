package stream_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// diary is a Watch, and what takes its changes; it writes down what it is told.
type diary struct {
	nexts   []any // revisions, or an error
	refuses edge.Revision
	broken  error
	applied []edge.Revision
	closed  int
}

func (d *diary) Next(context.Context) ([]stream.Event, error) {
	next := d.nexts[0]
	d.nexts = d.nexts[1:]
	if err, ok := next.(error); ok {
		return nil, err
	}
	return []stream.Event{{Type: stream.Bookmark, Object: stream.Object{Revision: edge.Revision(next.(int))}}}, nil
}

func (d *diary) Close() error { d.closed++; return nil }

func (d *diary) Apply(_ context.Context, events []stream.Event) error {
	at := events[len(events)-1].Object.Revision
	if at == d.refuses {
		return d.broken
	}
	d.applied = append(d.applied, at)
	return nil
}

func TestCopy(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		diary diary
		want  error
		sink  bool
	}{
		"an orderly end":                {diary{nexts: []any{6, 9, io.EOF}}, io.EOF, false},
		"a broken stream":               {diary{nexts: []any{6, 9, broken}}, broken, false},
		"what the source has forgotten": {diary{nexts: []any{6, 9, stream.ErrExpired}}, stream.ErrExpired, false},
		"a sink that refuses":           {diary{nexts: []any{6, 9, 10, 11}, refuses: 10, broken: broken}, broken, true},
	} {
		d := &c.diary
		err := stream.Copy(t.Context(), d, d)
		if !errors.Is(err, c.want) || errors.Is(err, stream.ErrSink) != c.sink {
			t.Errorf("%s: it returned %v", name, err)
		}
		if !slices.Equal(d.applied, []edge.Revision{6, 9}) || d.closed != 1 {
			t.Errorf("%s: applied %v, closed %d times", name, d.applied, d.closed)
		}
	}
}
