package artifact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// spec builds one file of the given content and counts how often it is built.
func spec(key, content string, built *[]string) Spec {
	return Spec{Name: "tools", Key: key, Files: []string{"bin/tool"},
		Build: func(_ context.Context, dir, reason string) error {
			*built = append(*built, reason)
			if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
				return err
			}
			path := filepath.Join(dir, "bin", "tool")
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return os.WriteFile(path, []byte(content), 0o755)
		}}
}

func get(t *testing.T, s *Store, sp Spec) *Entry {
	t.Helper()
	e, err := s.Get(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func content(t *testing.T, e *Entry) string {
	t.Helper()
	b, err := os.ReadFile(e.Path("bin/tool"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBuiltOnce(t *testing.T) {
	s := &Store{Dir: filepath.Join(t.TempDir(), "not", "there")}
	var built []string
	for range 3 {
		if got := content(t, get(t, s, spec("a", "one", &built))); got != "one" {
			t.Errorf("content %q", got)
		}
	}
	if want := []string{"not built yet"}; !slices.Equal(built, want) {
		t.Errorf("built for the reasons %q, want %q", built, want)
	}
}

func TestBrokenIsRebuilt(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string){
		"file gone": func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "bin/tool"))) },
		"file cut":  func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, "bin/tool"), 1)) },
		"other content of the same size": func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "bin/tool"), []byte("two"), 0o755))
			future := time.Now().Add(time.Hour) // a coarse clock may give the time of the build again
			must(t, os.Chtimes(filepath.Join(dir, "bin/tool"), future, future))
		},
		"mode": func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Join(dir, "bin/tool"), 0o644)) },
		"link": func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, "bin/tool"), filepath.Join(dir, "bin/moved")))
			must(t, os.Symlink("moved", filepath.Join(dir, "bin/tool")))
		},
		"no manifest": func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, manifestName))) },
		"half a manifest": func(t *testing.T, dir string) {
			must(t, os.Truncate(filepath.Join(dir, manifestName), 10))
		},
		"manifest of another version": func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, manifestName), []byte(`{"version":99}`), 0o644))
		},
		"manifest without the file": func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, manifestName), []byte(`{"version":1}`), 0o644))
		},
		"manifest that points outside": func(t *testing.T, dir string) {
			outside := []byte(`{"version":1,"files":[{"path":"../x"}]}`)
			must(t, os.WriteFile(filepath.Join(dir, manifestName), outside, 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Store{Dir: t.TempDir()}
			var built []string
			damage(t, get(t, s, spec("a", "one", &built)).Dir)
			if got := content(t, get(t, s, spec("a", "one", &built))); got != "one" {
				t.Errorf("content %q", got)
			}
			if len(built) != 2 {
				t.Fatalf("built %d times, want twice", len(built))
			}
			if built[1] == "not built yet" || built[1] == "" {
				t.Errorf("rebuilt without saying what was wrong: %q", built[1])
			}
			if rubbish := others(t, s.Dir); len(rubbish) > 0 {
				t.Errorf("left behind: %v", rubbish)
			}
		})
	}
}

func TestRestoredTimeStampsAreNoDamage(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	var built []string
	e := get(t, s, spec("a", "one", &built))
	past := time.Now().Add(-24 * time.Hour)
	must(t, os.Chtimes(e.Path("bin/tool"), past, past))
	get(t, s, spec("a", "one", &built))
	m, err := readManifest(e.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(built) != 1 || m.Files[0].Time != past.UnixNano() {
		t.Errorf("built %d times, manifest says %d; want once and %d", len(built), m.Files[0].Time, past.UnixNano())
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	broken := errors.New("no space left on device")
	_, err := s.Get(t.Context(), Spec{Name: "tools", Key: "a", Files: []string{"tool"},
		Build: func(_ context.Context, dir, _ string) error {
			must(t, os.WriteFile(filepath.Join(dir, "tool"), []byte("half"), 0o755))
			return broken
		}})
	if !errors.Is(err, broken) {
		t.Errorf("Get = %v, want %v", err, broken)
	}
	_, err = s.Get(t.Context(), Spec{Name: "tools", Key: "a", Files: []string{"tool"},
		Build: func(context.Context, string, string) error { return nil }})
	if err == nil || !strings.Contains(err.Error(), "made no tool") {
		t.Errorf("Get = %v, want an error for the file that was not made", err)
	}
	if left := others(t, s.Dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRubbishOfKilledBuildersIsRemoved(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	for _, dir := range []string{"tmp-1/bin", "trash-2/it"} {
		must(t, os.MkdirAll(filepath.Join(s.Dir, dir), 0o755))
	}
	var built []string
	get(t, s, spec("a", "one", &built))
	if left := others(t, s.Dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPrune(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Now())
	s := &Store{Dir: t.TempDir(), Keep: 2, Clock: now}
	var built []string
	pinned := get(t, s, spec("a", "a", &built))
	for _, key := range []string{"b", "c"} {
		now.Step(time.Minute)
		must(t, get(t, s, spec(key, key, &built)).Close())
	}
	now.Step(time.Minute)
	must(t, get(t, s, spec("b", "b", &built)).Close()) // used again: now c is the older one
	now.Step(time.Minute)
	must(t, get(t, s, spec("d", "d", &built)).Close())
	if got, want := sets(t, s.Dir), []string{"tools-a", "tools-b", "tools-d"}; !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v: the last two and the one in use", got, want)
	}
	held, err := Hold(pinned.Dir)
	must(t, err)
	must(t, pinned.Close())
	now.Step(time.Minute)
	must(t, get(t, s, spec("b", "b", &built)).Close())
	now.Step(time.Minute)
	must(t, get(t, s, spec("d", "d", &built)).Close())
	must(t, s.prune("tools"))
	if got, want := sets(t, s.Dir), []string{"tools-a", "tools-b", "tools-d"}; !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v: the held one as well", got, want)
	}
	must(t, held.Close())
	now.Step(time.Minute)
	must(t, get(t, s, spec("e", "e", &built)).Close())
	if got, want := sets(t, s.Dir), []string{"tools-d", "tools-e"}; !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v", got, want)
	}
	if _, err := Hold(pinned.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Hold of a pruned set: %v", err)
	}
}

func TestSeed(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	var built []string
	old := get(t, s, spec("a", "one", &built))
	var found string
	next := spec("b", "two", &built)
	fill := next.Build
	next.Seed = true
	next.Build = func(ctx context.Context, dir, reason string) error {
		b, err := os.ReadFile(filepath.Join(dir, "bin/tool"))
		found = string(b)
		return errors.Join(err, fill(ctx, dir, reason))
	}
	if got := content(t, get(t, s, next)); got != "two" || found != "one" {
		t.Errorf("built %q from %q, want two from one", got, found)
	}
	if got := content(t, old); got != "one" {
		t.Errorf("the older set changed to %q", got)
	}
	// A broken set is no seed.
	must(t, os.Truncate(old.Path("bin/tool"), 0))
	must(t, os.Remove(filepath.Join(s.Dir, "tools-b", manifestName)))
	next.Key, next.Build = "c", func(ctx context.Context, dir, reason string) error {
		if _, err := os.Stat(filepath.Join(dir, "bin/tool")); err == nil {
			t.Error("seeded from a broken set")
		}
		return fill(ctx, dir, reason)
	}
	get(t, s, next)
}

func TestSecondBuilderWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var built, waited []string
		started, finish := make(chan struct{}), make(chan struct{})
		slow := spec("a", "one", &built)
		fill := slow.Build
		slow.Build = func(ctx context.Context, dir, reason string) error {
			close(started)
			<-finish
			return fill(ctx, dir, reason)
		}
		type result struct {
			e   *Entry
			err error
		}
		first, second := make(chan result), make(chan result)
		go func() {
			e, err := (&Store{Dir: dir}).Get(t.Context(), slow)
			first <- result{e, err}
		}()
		<-started
		go func() {
			s := &Store{Dir: dir, Waiting: func(holder string) { waited = append(waited, holder) }}
			e, err := s.Get(t.Context(), spec("a", "one", &built))
			second <- result{e, err}
		}()
		time.Sleep(time.Minute) // of the bubble
		select {
		case r := <-second:
			t.Fatalf("did not wait: %v", r.err)
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := (&Store{Dir: dir}).Get(ctx, spec("b", "b", &built)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting without patience: %v, want the context's error", err)
		}
		close(finish)
		for _, c := range []chan result{first, second} {
			r := <-c
			if r.err != nil {
				t.Fatal(r.err)
			}
			r.e.Close()
		}
		if len(built) != 1 {
			t.Errorf("built %d times, want once", len(built))
		}
		if want := []string{fmt.Sprint("process ", os.Getpid())}; !slices.Equal(waited, want) {
			t.Errorf("told to wait for %q, want once for %q", waited, want)
		}
	})
}

func TestKey(t *testing.T) {
	for _, pair := range [][2][]string{
		{{"ab", "c"}, {"a", "bc"}},
		{{"a"}, {"a", ""}},
		{{}, {""}},
		{{"a", "b"}, {"b", "a"}},
	} {
		if Key(pair[0]...) == Key(pair[1]...) {
			t.Errorf("%q and %q have the same key", pair[0], pair[1])
		}
	}
	if first, again := Key("a", "b"), Key("a", "b"); first != again {
		t.Error("the key of the same parts differs")
	}
}

// sets lists the sets in a cache directory, others what is neither a set nor the lock.
func sets(t *testing.T, dir string) []string {
	return list(t, dir, func(name string) bool { return strings.HasPrefix(name, "tools-") })
}

func others(t *testing.T, dir string) []string {
	return list(t, dir, func(name string) bool { return name != "lock" && !strings.HasPrefix(name, "tools-") })
}

func list(t *testing.T, dir string, want func(string) bool) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		if want(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
