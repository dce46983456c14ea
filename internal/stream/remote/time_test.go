package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// A server is asked to keep a watch for a time between WatchTime and twice that.
func TestWatchTime(t *testing.T) {
	var asked int
	transport := roundTrip(func(r *http.Request) (*http.Response, error) {
		asked, _ = strconv.Atoi(r.URL.Query().Get("timeoutSeconds")) // 0 is wrong, too
		return nil, errors.New("asked")
	})
	for set, want := range map[time.Duration]time.Duration{0: 5 * time.Minute, time.Second: time.Second, time.Hour: time.Hour} {
		s := New(Config{
			Client: &http.Client{Transport: transport}, Base: &url.URL{Scheme: "http", Host: "x"}, Path: path, Name: "cloud",
			WatchTime: set,
		})
		for range 20 {
			if _, err := s.Watch(t.Context(), 5); err == nil {
				t.Fatal("a watch that nobody answers began")
			}
			if got := time.Duration(asked) * time.Second; got < want || got > 2*want {
				t.Errorf("WatchTime %v: asked for %v", set, got)
			}
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// took is how long f takes; f must fail with an error that says so.
func took(t *testing.T, says string, f func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	if err := f(); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("error %v, want one with %q", err, says)
	}
	return time.Since(begin)
}

func TestSilence(t *testing.T) {
	list := func(ctx context.Context, s *Source) error { _, err := s.Snapshot(ctx); return err }
	watch := func(ctx context.Context, s *Source) error { _, err := s.Watch(ctx, 5); return err }
	for name, test := range map[string]struct {
		want time.Duration
		says string
		f    func(ctx context.Context, s *Source) error
		p    bool // the answer begins
	}{
		"list, no answer":   {stallTime, "nothing of the list", list, false},
		"list, half answer": {stallTime, "nothing of the list", list, true},
		"watch, no answer":  {openTime, "no answer", watch, false},
		"watch, no event": {idleTime, "no event and no bookmark", func(ctx context.Context, s *Source) error {
			w, err := s.Watch(ctx, 5)
			if err != nil {
				return err
			}
			defer w.Close()
			_, err = w.Next(ctx)
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipes{}
				if test.p {
					in, out := io.Pipe()
					defer out.Close()
					p.body = in
				}
				s := over(t, p)
				if got := took(t, test.says, func() error { return test.f(t.Context(), s) }); got != test.want {
					t.Errorf("it took %v, want %v", got, test.want)
				}
			})
		})
	}
}

// A watch that tells something in time goes on; that its reader takes long is not the server's silence.
func TestBookmarksKeepAWatchAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		s := over(t, pipes{body: in})
		frames := stream.NewFrameWriter(out, streamtest.Widgets)
		go func() {
			for i := range 20 {
				time.Sleep(idleTime - time.Second)
				_ = frames.Write(stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: edge.Revision(10 + i)}})
			}
			_ = out.Close()
		}()
		w, err := s.Watch(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		told := 0
		for {
			batch, err := w.Next(t.Context())
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				break
			}
			told += len(batch)
			time.Sleep(2 * idleTime)
		}
		if told != 20 {
			t.Errorf("%d bookmarks, want 20", told)
		}
	})
}

// TestContextsOfNext: the end of a context ends a watch if a Next with that context waits, whichever contexts were used before.
// It does not if that Next has returned.
func TestContextsOfNext(t *testing.T) {
	errEnough := errors.New("enough")
	for name, test := range map[string]struct {
		// next returns the context of a call, of which the third brings nothing, and each ends once it is over if once is set.
		next func(life context.Context, call int) (context.Context, context.CancelCauseFunc)
		once bool
	}{
		"one for all": {next: func() func(context.Context, int) (context.Context, context.CancelCauseFunc) {
			var ctx context.Context
			var cancel context.CancelCauseFunc
			return func(life context.Context, call int) (context.Context, context.CancelCauseFunc) {
				if call == 0 {
					ctx, cancel = context.WithCancelCause(life)
				}
				return ctx, cancel
			}
		}()},
		"each its own": {next: func(life context.Context, _ int) (context.Context, context.CancelCauseFunc) {
			return context.WithCancelCause(life)
		}, once: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, out := io.Pipe()
				defer out.Close()
				w, err := over(t, pipes{body: in}).Watch(t.Context(), 5)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				frames := stream.NewFrameWriter(out, streamtest.Widgets)
				for call := range 2 {
					ctx, cancel := test.next(t.Context(), call)
					go func() {
						time.Sleep(time.Second)
						_ = frames.Write(stream.Event{
							Type: stream.Bookmark, Object: stream.Object{Revision: edge.Revision(10 + call)},
						})
					}()
					if events, err := w.Next(ctx); err != nil || len(events) != 1 {
						t.Fatalf("call %d: %d events, %v", call, len(events), err)
					}
					if test.once {
						cancel(errors.New("too late to end anything"))
						synctest.Wait()
					}
				}
				ctx, cancel := test.next(t.Context(), 2)
				time.AfterFunc(time.Second, func() { cancel(errEnough) })
				if got := took(t, errEnough.Error(), func() error { _, err := w.Next(ctx); return err }); got != time.Second {
					t.Errorf("it took %v, want a second", got)
				}
			})
		})
	}
}

// A list of which something comes all the time goes on, but not for ever.
func TestASlowListIsNoSilence(t *testing.T) {
	for name, test := range map[string]struct {
		pauses int
		says   string
	}{"an end in time": {pauses: 20}, "no end": {pauses: 1 << 20, says: "deadline"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, out := io.Pipe()
				s := over(t, pipes{body: in})
				var writing sync.WaitGroup
				defer writing.Wait()
				writing.Go(func() {
					_, _ = io.WriteString(out, `{"kind":"WidgetList","apiVersion":"x.io/v1","metadata":{"resourceVersion":"7"}`)
					for range test.pauses {
						time.Sleep(stallTime - time.Second)
						if _, err := io.WriteString(out, " "); err != nil {
							return
						}
					}
					_, _ = io.WriteString(out, `,"items":[]}`)
					_ = out.Close()
				})
				began := time.Now()
				all, err := s.Snapshot(t.Context())
				if test.says == "" && (err != nil || all.Revision != 7) {
					t.Errorf("%v, %v", all, err)
				}
				if test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says) || time.Since(began) != listTime) {
					t.Errorf("%v after %v, want the end after %v", err, time.Since(began), listTime)
				}
				_ = in.Close()
			})
		})
	}
}
