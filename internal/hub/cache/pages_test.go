package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

func TestPageAfter(t *testing.T) {
	for name, test := range map[string]struct {
		objects, bytes int
		took           time.Duration
		want           int
	}{
		"a good line":           {128, 768 << 10, 50 * time.Millisecond, mostPage},
		"a thin line":           {128, 768 << 10, 8 * time.Second, 80},
		"small objects":         {128, 32 << 10, 10 * time.Second, 768}, // what is compressed crosses sooner
		"large objects":         {10, 10 << 20, time.Minute, 1},
		"at once":               {100, 1 << 20, 0, mostPage},
		"nothing was there":     {0, 0, time.Second, firstPage},
		"objects without bytes": {100, 0, time.Second, mostPage},
	} {
		if got := pageAfter(test.objects, test.bytes, test.took); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestContinues(t *testing.T) {
	for name, want := range map[string]bool{
		"ok": false, "reset": true, "canceled": true, "eof": true, "503": true, "expired": false, "403": false, "401": false,
	} {
		if got := continues(failures[name]); got != want {
			t.Errorf("after %s: %v, want %v", name, got, want)
		}
	}
	for code, want := range map[int]bool{429: true, 502: true, 504: true, 400: false, 500: false} {
		if got := continues(fmt.Errorf("list: %w", answer(code))); got != want {
			t.Errorf("after %d: %v, want %v", code, got, want)
		}
	}
}

// thinLine gives a store's lists in pages, at a rate.
type thinLine struct {
	*feedStore
	rate    float64 // bytes per second
	forgets bool    // pages of earlier lists

	asked     []string // where pages were to begin that came
	crossed   int      // bytes, those of pages that broke off included
	offered   int      // the largest page asked for
	whole     int
	abandoned int
}

func (l *thinLine) Snapshot(ctx context.Context) (stream.Snapshot, error) {
	s, err := l.feedStore.Snapshot(ctx)
	if err == nil {
		l.whole++
		err = l.cross(ctx, s.Objects)
	}
	return s, err
}

func (l *thinLine) Page(ctx context.Context, limit int, from string) (part stream.Snapshot, rest string, err error) {
	l.mu.Lock()
	part.Revision = l.revision
	keys := slices.SortedFunc(maps.Keys(l.objects), stream.Key.Compare)
	begin, _ := strconv.Atoi(from)
	end := min(begin+limit, len(keys))
	for _, k := range keys[begin:end] {
		part.Objects = append(part.Objects, l.objects[k])
	}
	forgets := l.forgets
	l.mu.Unlock()
	l.offered = max(l.offered, limit)
	if forgets && from != "" {
		return part, "", stream.ErrExpired
	}
	if err := l.cross(ctx, part.Objects); err != nil {
		l.abandoned++
		return part, "", err
	}
	l.asked = append(l.asked, from)
	if end < len(keys) {
		rest = strconv.Itoa(end)
	}
	return part, rest, nil
}

// cross takes the time that objects take, unless ctx ends before.
func (l *thinLine) cross(ctx context.Context, all []stream.Object) error {
	size := 0
	for _, o := range all {
		size += len(o.Raw)
	}
	began := time.Now()
	select {
	case <-time.After(time.Duration(float64(size) / l.rate * float64(time.Second))):
		l.crossed += size
		return nil
	case <-ctx.Done():
		l.crossed += int(time.Since(began).Seconds() * l.rate)
		return errors.New("connection reset")
	}
}

func (w *feedWorld) thin(objects, size int, rate float64) *thinLine {
	for i := range objects {
		w.cloud.put(fmt.Sprintf("slice-%05d", i))
	}
	w.cloud.do(func() {
		for k, o := range w.cloud.objects {
			o.Raw = make([]byte, size)
			w.cloud.objects[k] = o
		}
	})
	w.alone, w.pages = true, &thinLine{feedStore: w.cloud, rate: rate}
	return w.pages
}

// filled holds the sink to the number of the cloud's objects, which are too large to be shown.
func (w *feedWorld) filled() {
	w.t.Helper()
	synctest.Wait()
	if has, replaced := w.sink.counts(); has != len(w.cloud.objects) || replaced != 1 {
		w.t.Errorf("the sink has %d objects by %d lists, want %d by one", has, replaced, len(w.cloud.objects))
	}
}

// A fill of 5 MB over 128 kbit/s (which nothing compresses here) takes 5 minutes. The link breaks each 30 s.
func TestABrokenFillGoesOnWhereItStood(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		const size, objects = 5 << 10, 1000
		l := w.thin(objects, size, 16<<10)
		w.links(link.Up, link.Down)
		w.begin()
		began := time.Now()
		for range 60 {
			w.pass(30 * time.Second)
			if w.sink.Position() != 0 {
				break
			}
			w.links(link.Down, link.Down)
			w.pass(time.Second)
			w.links(link.Up, link.Down)
		}
		took := time.Since(began)
		w.filled()
		again := map[string]bool{}
		for _, at := range l.asked {
			if again[at] {
				t.Errorf("the page from %q came twice", at)
			}
			again[at] = true
		}
		t.Logf("filled after %v by %d pages, %d broke off, %d bytes crossed", took, len(l.asked), l.abandoned, l.crossed)
		if all := objects * size; l.crossed > all*3/2 || took > 10*time.Minute || l.abandoned == 0 {
			t.Errorf("filled after %v, %d bytes crossed for %d, %d pages broke off", took, l.crossed, all, l.abandoned)
		}
		w.want(Cloud, 0) // it was never read whole
	})
}

// Who waits for its turn says so, so that others wait, too.
func TestAFillWaitsForItsTurn(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.thin(5000, 1<<10, 10e6/8)
		w.lists <- struct{}{} // another list is under way
		w.links(link.Up, link.Down)
		w.begin()
		w.pass(10 * time.Second)
		if got := w.feed.Filling(); got != FillsNext {
			t.Errorf("%d pages have come out of turn, want %d", got, FillsNext)
		}
		<-w.lists
		w.pass(time.Second)
		if got := w.feed.Filling(); got < 1 {
			t.Errorf("%d pages have come in its turn", got)
		}
		w.pass(10 * time.Second)
		w.filled()
		if got := w.feed.Filling(); got != 0 {
			t.Errorf("%d pages when it is over", got)
		}
	})
}

// On a good line the second page is the last one.
func TestAFillOnAGoodLine(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		l := w.thin(5000, 1<<10, 10e6/8)
		w.links(link.Up, link.Down)
		w.begin()
		w.pass(10 * time.Second)
		w.filled()
		if len(l.asked) != 2 || l.abandoned != 0 {
			t.Errorf("pages from %q, %d broke off", l.asked, l.abandoned)
		}
	})
}

// A server that has forgotten the revision of the pages is asked for the whole list.
func TestAServerForgetsThePages(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		l := w.thin(300, 1<<10, 10e6/8)
		l.forgets = true
		w.links(link.Up, link.Down)
		w.begin()
		w.pass(10 * time.Second)
		w.filled()
		if !slices.Equal(l.asked, []string{""}) || l.whole != 1 {
			t.Errorf("pages from %q, and %d whole lists", l.asked, l.whole)
		}
	})
}

// What a source gives from the second page on must be of the first one's revision.
func TestPagesOfTwoRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(100)
		for i := range 2 * firstPage {
			s.put(strconv.Itoa(i))
		}
		l := &thinLine{feedStore: s, rate: 1 << 20}
		p := newPages(0, ends.Clock{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := p.read(ctx, changing{l}, &atomic.Int64{}); !errors.Is(err, stream.ErrExpired) {
			t.Errorf("%v, want that the revision is forgotten", err)
		}
	})
}

// changing is a store that changes after each page.
type changing struct{ *thinLine }

func (c changing) Page(ctx context.Context, limit int, from string) (stream.Snapshot, string, error) {
	part, rest, err := c.thinLine.Page(ctx, limit, from)
	c.put("another")
	return part, rest, err
}
