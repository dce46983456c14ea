package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// diary is a Source and a Sink that writes down what it is asked, and answers from a script.
type diary struct {
	lines []string
	// answers of Snapshot, Watch, Next, Replace and Apply, in order; when they are used up, calls wait for their context.
	snapshots, watches, nexts, replaces, applies []any
	at                                           edge.Revision
	open                                         int
}

func (d *diary) note(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// take is the next answer: a revision or an error.
func take(ctx context.Context, answers *[]any) (edge.Revision, error) {
	if len(*answers) == 0 {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	a := (*answers)[0]
	*answers = (*answers)[1:]
	switch a := a.(type) {
	case error:
		return 0, a
	case int:
		return edge.Revision(a), nil
	}
	panic("neither a revision nor an error")
}

func (d *diary) Snapshot(ctx context.Context) (stream.Snapshot, error) {
	r, err := take(ctx, &d.snapshots)
	d.note("list %d", r)
	return stream.Snapshot{Revision: r}, err
}

func (d *diary) Watch(ctx context.Context, after edge.Revision) (stream.Watch, error) {
	d.note("watch after %d", after)
	if len(d.watches) > 0 {
		if _, err := take(ctx, &d.watches); err != nil {
			return nil, err
		}
	}
	d.open++
	return diaryWatch{d}, nil
}

type diaryWatch struct{ *diary }

func (d diaryWatch) Next(ctx context.Context) ([]stream.Event, error) {
	r, err := take(ctx, &d.nexts)
	if err != nil {
		return nil, err
	}
	return []stream.Event{{Type: stream.Bookmark, Object: stream.Object{Revision: r}}}, nil
}

func (d diaryWatch) Close() error { d.open--; return nil }

func (d *diary) Position() edge.Revision { return d.at }

func (d *diary) Replace(ctx context.Context, s stream.Snapshot) error {
	if len(d.replaces) > 0 {
		if _, err := take(ctx, &d.replaces); err != nil {
			return err
		}
	}
	d.at = s.Revision
	d.note("replace %d", d.at)
	return nil
}

func (d *diary) Apply(ctx context.Context, events []stream.Event) error {
	if len(d.applies) > 0 {
		if _, err := take(ctx, &d.applies); err != nil {
			return err
		}
	}
	d.at = events[len(events)-1].Object.Revision
	d.note("apply %d", d.at)
	return nil
}

// beginner is a diary that lists and watches in one act.
type beginner struct{ *diary }

func (b beginner) Begin(ctx context.Context) (stream.Snapshot, stream.Watch, error) {
	s, err := b.Snapshot(ctx)
	if err != nil {
		return s, nil, err
	}
	b.note("and watch")
	b.open++
	return s, diaryWatch(b), nil
}

func TestCopy(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		at    edge.Revision
		anew  bool
		begin bool
		diary diary
		want  string
	}{
		{name: "a sink that has nothing gets everything, then changes",
			diary: diary{snapshots: []any{5}, nexts: []any{6, 9}},
			want:  "list 5, replace 5, watch after 5, open, apply 6, apply 9"},
		{name: "a sink that has something resumes", at: 5,
			diary: diary{nexts: []any{6}},
			want:  "watch after 5, open, apply 6"},
		{name: "unless it is not known to come from there", at: 5, anew: true,
			diary: diary{snapshots: []any{7}, nexts: []any{io.EOF}},
			want:  "list 7, replace 7, watch after 7, open, ended listed progress EOF, watch after 7, open"},
		{name: "after an orderly end it resumes where the sink is", at: 5,
			diary: diary{nexts: []any{6, io.EOF, 7}},
			want:  "watch after 5, open, apply 6, ended progress EOF, watch after 6, open, apply 7"},
		{name: "after a broken stream too", at: 5,
			diary: diary{nexts: []any{broken, 7}},
			want:  "watch after 5, open, ended broken, watch after 5, open, apply 7"},
		{name: "what the source has forgotten is listed", at: 5,
			diary: diary{watches: []any{stream.ErrExpired}, snapshots: []any{20}, nexts: []any{21}},
			want:  "watch after 5, ended EXPIRED, list 20, replace 20, watch after 20, open, apply 21"},
		{name: "also when it says so late", at: 5,
			diary: diary{nexts: []any{6, stream.ErrExpired}, snapshots: []any{20}},
			want:  "watch after 5, open, apply 6, ended progress EXPIRED, list 20, replace 20, watch after 20, open"},
		{name: "a list that fails is tried again, not left for a watch", at: 5, anew: true,
			diary: diary{snapshots: []any{broken, broken, 20}},
			want:  "list 0, ended listed broken, list 0, ended listed broken, list 20, replace 20, watch after 20, open"},
		{name: "a list whose watch is refused is not repeated",
			diary: diary{snapshots: []any{5}, watches: []any{broken}},
			want:  "list 5, replace 5, watch after 5, ended listed progress broken, watch after 5, open"},
		{name: "what the sink refuses is not offered again", at: 5,
			diary: diary{applies: []any{broken}, nexts: []any{6, 7}, snapshots: []any{6}},
			want:  "watch after 5, open, ended SINK, list 6, replace 6, watch after 6, open, apply 7"},
		{name: "a sink that refuses everything gets everything again",
			diary: diary{replaces: []any{broken}, snapshots: []any{6, 7}},
			want:  "list 6, ended listed SINK, list 7, replace 7, watch after 7, open"},
		{name: "a source that can do both at once is asked to", begin: true,
			diary: diary{snapshots: []any{broken, 5}, nexts: []any{6, stream.ErrExpired}},
			want: "list 0, ended listed broken, list 5, and watch, replace 5, open, apply 6, " +
				"ended listed progress EXPIRED, list 0"},
		{name: "and its watch is closed if the sink refuses", begin: true,
			diary: diary{snapshots: []any{5}, replaces: []any{broken}},
			want:  "list 5, and watch, ended listed SINK, list 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &c.diary
				d.at = c.at
				var source stream.Source = d
				if c.begin {
					source = beginner{d}
				}
				stop := errors.New("stop")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Hour, func() { cancel(stop) })
				err := stream.Copy(ctx, source, d, stream.CopyConfig{
					Anew: c.anew, Opened: func() { d.note("open") },
					Ended: func(_ context.Context, a stream.Attempt) error {
						words := []string{"ended"}
						if a.Listed {
							words = append(words, "listed")
						}
						if a.Progress {
							words = append(words, "progress")
						}
						switch {
						case errors.Is(a.Err, stream.ErrSink):
							words = append(words, "SINK")
						case errors.Is(a.Err, stream.ErrExpired):
							words = append(words, "EXPIRED")
						default:
							words = append(words, a.Err.Error())
						}
						d.note("%s", strings.Join(words, " "))
						return nil
					},
				})
				if !errors.Is(err, stop) {
					t.Errorf("it returned %v, not the cause of its context", err)
				}
				if got := strings.Join(d.lines, ", "); got != c.want {
					t.Errorf("\n got %s\nwant %s", got, c.want)
				}
				if d.open != 0 {
					t.Errorf("%d watches are left open", d.open)
				}
			})
		})
	}
}

func TestCopyEndsWhenItsOwnerSaysSo(t *testing.T) {
	enough := errors.New("enough")
	d := &diary{at: 5, nexts: []any{io.EOF}}
	err := stream.Copy(t.Context(), d, d, stream.CopyConfig{Ended: func(context.Context, stream.Attempt) error { return enough }})
	if !errors.Is(err, enough) || !slices.Equal(d.lines, []string{"watch after 5"}) {
		t.Errorf("it returned %v after %v", err, d.lines)
	}
}
