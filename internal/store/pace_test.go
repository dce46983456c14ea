package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

func TestPace(t *testing.T) {
	t.Parallel()
	began := time.Unix(1e9, 0)
	for name, test := range map[string]struct {
		changes []float64 // seconds
		urgent  float64   // the change that does not wait
		prompt  []float64 // the changes that do not wait long
		want    string    // when it is written
	}{
		"nothing":          {want: "[]"},
		"now and then":     {changes: []float64{5, 100, 102, 110}, want: "[6 101 103 111]"},
		"a few together":   {changes: []float64{5, 5.5, 5.9}, want: "[6]"},
		"for a moment":     {changes: every(0, 2.5, 0.1), want: "[1 3]"},
		"all the time":     {changes: every(0, 80, 0.1), want: "[1 3 7 15 30 45 60 75 90]"},
		"then calm":        {changes: append(every(0, 20, 0.1), 50), want: "[1 3 7 15 30 51]"},
		"then nearly calm": {changes: append(every(0, 20, 0.1), 44), want: "[1 3 7 15 30 45]"},
		"urgent":           {changes: every(0, 12, 0.1), urgent: 8.5, want: "[1 3 7 8.5 10.5 14.5]"},
		"a prompt one":     {prompt: []float64{5}, want: "[6]"},
		"prompt, at once":  {changes: every(0, 35, 0.1), prompt: []float64{20}, want: "[1 3 7 15 20.1 26.1 38.1]"},
		"prompt, soon":     {changes: every(0, 30, 0.1), prompt: []float64{16}, want: "[1 3 7 15 18 24 36]"},
		"all prompt":       {prompt: every(0, 12, 0.1), want: "[1 3 6 9 12]"},
	} {
		t.Run(name, func(t *testing.T) {
			var p pace
			writes := []float64{}
			for tick := range 2000 { // tenths
				now := began.Add(time.Duration(tick) * 100 * time.Millisecond)
				at := float64(tick) / 10
				if !p.first.IsZero() && !now.Before(p.due(time.Second)) {
					if !p.ready(now) {
						t.Errorf("at %v it is due and not ready", at)
					}
					p.written(now)
					writes = append(writes, at)
				}
				for _, c := range test.prompt {
					if int(c*10+0.5) == tick {
						p.change(now, time.Second, prompt)
					}
				}
				for _, c := range test.changes {
					if int(c*10+0.5) == tick {
						urgent := test.urgent != 0 && int(test.urgent*10+0.5) == tick
						h := patient
						if urgent {
							h = atOnce
						}
						p.change(now, time.Second, h)
						if urgent && !now.Before(p.due(time.Second)) {
							p.written(now)
							writes = append(writes, at)
						}
					}
				}
			}
			if got := fmt.Sprint(writes); got != test.want {
				t.Errorf("written at %s, want %s", got, test.want)
			}
		})
	}
}

func every(from, to, step float64) (all []float64) {
	for n := 0; from+float64(n)*step < to; n++ {
		all = append(all, from+float64(n)*step)
	}
	return all
}

// What keeps changing is written seldom, and is never older on disk than the pace allows; what changes beside it now and
// then is not kept waiting, and neither is who asks for a flush.
func TestBusyCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var commits atomic.Int64
		s := opening(t, Config{Dir: t.TempDir()}, func(point string) error {
			if point == "committed" {
				commits.Add(1)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		quiet := slicesID
		quiet.Client = "quiet"
		replace(t, s, slicesID, snapshotOf(30, 500, 5))
		replace(t, s, quiet, snapshotOf(3, 10, 5))
		time.Sleep(time.Minute)
		commits.Store(0)
		began := time.Now()
		revision := edge.Revision(5)
		change := func(id Collection) {
			revision++
			o := object("ns00", "slice-00000", revision, filler(uint64(revision), 500))
			if err := s.Sink(id).Apply(t.Context(), []stream.Event{{Type: stream.Modified, Object: o}}); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 20 * 300 {
			change(slicesID)
			time.Sleep(50 * time.Millisecond)
			got, err := s.Load(slicesID)
			lag := time.Duration(s.Sink(slicesID).Position()-got.Revision) * 50 * time.Millisecond
			if most := slowdown*time.Second + 100*time.Millisecond; err != nil || lag > most {
				t.Fatalf("after %v the disk is %v behind: %v", time.Since(began), lag, err)
			}
			if n%2000 == 1000 {
				change(quiet)
				at := revision
				time.Sleep(1100 * time.Millisecond)
				if got, err := s.Load(quiet); err != nil || got.Revision != at {
					t.Fatalf("the quiet one is at %s, want %s: %v", got.Revision, at, err)
				}
				change(slicesID)
				flush(t, s)
				if got, err := s.Load(slicesID); err != nil || got.Revision != revision {
					t.Fatalf("flushed, it is at %s, want %s: %v", got.Revision, revision, err)
				}
			}
		}
		if n := commits.Load(); n < 20 || n > 36 {
			t.Errorf("%d transactions in five minutes", n)
		}
		s.Drop(slicesID)
		change(quiet)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if got, err := s.Load(quiet); err != nil || got.Revision != revision {
			t.Errorf("after the end the quiet one is at %s, want %s: %v", got.Revision, revision, err)
		}
		misses(t, s, slicesID, "never stored")
	})
}

// What was removed and must not come back is on the disk 3 s later, although its collection never rests, and however much is
// removed the disk is written every 3 s at most. Where it may come back it waits like any change.
func TestARemovalIsPrompt(t *testing.T) {
	for name, test := range map[string]struct {
		must         bool
		lag          time.Duration
		fewest, most int64 // transactions in two minutes, with a removal every 50 ms in the second one
	}{
		"it may come back":      {lag: slowdown * time.Second, fewest: 8, most: 14},
		"it must not come back": {must: true, lag: promptly * time.Second, fewest: 22, most: 40},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var commits atomic.Int64
				must := func(id Collection) bool { return test.must && id == slicesID }
				c := Config{Dir: t.TempDir(), Prompt: Prompt{Collection: must}}
				s := opening(t, c, func(point string) error {
					if point == "committed" {
						commits.Add(1)
					}
					return nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.Run(ctx) }()
				begin := snapshotOf(300, 50, 5)
				replace(t, s, slicesID, begin)
				time.Sleep(time.Minute)
				commits.Store(0)
				revision := edge.Revision(5)
				tell := func(what stream.EventType, of stream.Object) {
					revision++
					of.Revision = revision
					if err := s.Sink(slicesID).Apply(t.Context(), []stream.Event{{Type: what, Object: of}}); err != nil {
						t.Fatal(err)
					}
				}
				waiting, longest := map[edge.Revision]time.Time{}, time.Duration(0)
				for n := range 20 * 120 {
					tell(stream.Modified, begin.Objects[0])
					if n >= 20*60 || n%301 == 300 {
						tell(stream.Deleted, begin.Objects[1+n%299])
						waiting[revision] = time.Now()
					}
					time.Sleep(50 * time.Millisecond)
					got, err := s.Load(slicesID)
					if err != nil {
						t.Fatal(err)
					}
					for at, since := range waiting {
						if at <= got.Revision {
							delete(waiting, at)
						}
						longest = max(longest, time.Since(since))
					}
				}
				if longest > test.lag+100*time.Millisecond || !test.must && longest < test.lag/2 {
					t.Errorf("a removal was on the disk after %v", longest)
				}
				if n := commits.Load(); n < test.fewest || n > test.most {
					t.Errorf("%d transactions", n)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// The same of blobs.
func TestARemovedBlobIsPrompt(t *testing.T) {
	for _, must := range []bool{false, true} {
		t.Run(fmt.Sprint(must), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var commits atomic.Int64
				c := Config{Dir: t.TempDir(), Prompt: Prompt{Blob: func(string) bool { return must }}}
				s := opening(t, c, func(point string) error {
					if point == "committed" {
						commits.Add(1)
					}
					return nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.Run(ctx) }()
				put := func(key, value string) {
					if err := s.PutBlob(key, []byte(value)); err != nil {
						t.Fatal(err)
					}
				}
				put("token", "secret")
				last := int64(0)
				for n := 0; n < 600 || commits.Load() == last; n++ { // until it has just been written
					last = commits.Load()
					put("busy", fmt.Sprint(n))
					time.Sleep(100 * time.Millisecond)
				}
				s.DropBlob("token")
				removed := time.Now()
				for n := 0; blobOnDisk(t, s, "token"); n++ {
					put("busy", fmt.Sprint("then ", n))
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(removed); (took <= promptly*time.Second+200*time.Millisecond) != must {
					t.Errorf("it was off the disk after %v", took)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// What is on disk is only older than it was said while others keep changing; what is not there at all would be lost, as the
// token of a Pod that has just started.
func TestANewBlobDoesNotWaitForBusyOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opening(t, Config{Dir: t.TempDir()}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		put := func(key, value string) {
			if err := s.PutBlob(key, []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 1000 {
			put("busy", fmt.Sprint(n))
			if n%100 == 50 {
				put(fmt.Sprint("new", n), "said")
			}
			time.Sleep(100 * time.Millisecond)
			if at := n - 11; at%100 == 50 && !blobOnDisk(t, s, fmt.Sprint("new", at)) {
				t.Errorf("after %.1f s a new blob is not on the disk 1.2 s later", float64(at)/10)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// What need not be written any more, and a store that was closed, keep the writer from nothing: if it did not rest, time
// would not go on here.
func TestNothingToWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var commits atomic.Int64
		s := opening(t, Config{Dir: t.TempDir()}, func(point string) error {
			if point == "committed" {
				commits.Add(1)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		s.DropBlob("never there")
		time.Sleep(time.Hour + idleEvery/2) // not when the writer looks anyway: it might look between what is said here
		if err := s.PutBlob("a", []byte("b")); err != nil {
			t.Fatal(err)
		}
		s.DropBlob("a")
		s.Drop(slicesID)
		time.Sleep(time.Hour)
		if n := commits.Load(); n != 0 {
			t.Errorf("%d transactions for nothing", n)
		}
		if err := s.PutBlob("a", []byte("b")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		if n := commits.Load(); n != 1 {
			t.Errorf("%d transactions for one blob", n)
		}
		if err := s.PutBlob("a", []byte("c")); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
