package share

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

// lookAfter is how often the world looks at what is shown.
const lookAfter = 250 * time.Millisecond

// takerWorld is a Taker with what is around it, in a bubble of its own time.
type takerWorld struct {
	t               *testing.T
	cloud           *fakeCloud
	link, cloudLink *live.Value[link.State]
	disk            *fakeDisk
	taker           *Taker

	mu    sync.Mutex
	base  map[stream.ID]stream.Object // what the cloud has of the node
	shown map[stream.ID]stream.Object // on top of that
	said  map[stream.ID]uint64
}

// bubble runs a Taker of n1 for a test.
func bubble(t *testing.T, test func(*takerWorld)) {
	t.Helper()
	bubbleOn(t, newFakeDisk(), func(*takerWorld) {}, test)
}

// bubbleOn is bubble with a disk from an earlier run. begin sets up what the Taker finds at its start; if begin does nothing, the
// cloud answers.
func bubbleOn(t *testing.T, disk *fakeDisk, begin, test func(*takerWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &takerWorld{
			t: t, link: live.NewValue(link.Up), cloudLink: live.NewValue(link.Up), cloud: newFakeCloud(), disk: disk,
			base: map[stream.ID]stream.Object{},
		}
		w.taker = NewTaker(TakerConfig{
			Object: func(i stream.ID) (stream.Object, bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				o, ok := w.base[i]
				return o, ok
			},
			CloudLink: w.cloudLink, Events: w.cloud.client(t), Disk: w.disk,
			History: func() edge.History { return 0 }, Changed: func() {},
		})
		begin(w)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.taker.Run(ctx) }()
		var looks sync.WaitGroup
		looks.Go(func() { w.look(ctx) })
		synctest.Wait() // otherwise a test that belongs into begin would pass on an idle machine and fail on a busy one
		test(w)
		cancel()
		looks.Wait()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// look looks again and again at what is shown, while there is a coordinator to show it to.
func (w *takerWorld) look(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := w.link.Wait(ctx, func(s link.State) bool { return s == link.Up }); err != nil {
			return
		}
		w.mu.Lock()
		w.shown, w.said = maps.Clone(w.base), map[stream.ID]uint64{}
		w.taker.AddTo(w.shown, map[stream.ID]edge.History{}, w.said, w.taker.Cut(time.Now()))
		w.mu.Unlock()
		select {
		case <-time.After(lookAfter):
		case <-ctx.Done():
		}
	}
}

// set puts one of the node's objects into the cloud.
func (w *takerWorld) set(resource string, o stream.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.base[stream.ID{Resource: resource, Key: o.Key}] = o
}

// has expects what is shown, with "+" where the cloud has not heard it.
func (w *takerWorld) has(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := []string{}
	for i, o := range w.shown {
		text := i.Resource + " " + i.Namespace + "/" + i.Name + "@" + o.Revision.String()
		if w.said[i] != 0 {
			text += "+"
		}
		got = append(got, text)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Errorf("%q is shown, want %q", got, want)
	}
}

// writesEvent writes an Event as a program of the node, and gives the cloud's answer.
func (w *takerWorld) writesEvent(method, path string, code int, answer []byte) {
	w.t.Helper()
	cloud := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(answer))}, nil
	})
	text, err := io.ReadAll(w.serves(cloud, httptest.NewRequestWithContext(w.t.Context(), method, path, nil)).Body)
	if err != nil || !bytes.Equal(text, answer) {
		w.t.Errorf("the program gets %q, %v", text, err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
