package store

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

var crashes = flag.Int("store.crashes", 50, "how often to kill a process that writes")

const childEnv = "STORE_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := writeForEver(dir); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The model: revision r changes one of few objects, or deletes it. Every 500th revision comes as a Snapshot.
func eventAt(r edge.Revision) stream.Event {
	random := rand.New(rand.NewPCG(uint64(r), 9))
	n := random.IntN(300)
	kind := stream.Modified
	if random.IntN(4) == 0 {
		kind = stream.Deleted
	}
	content := filler(uint64(r), random.IntN(3000))
	if n%4 == 0 {
		content = strings.Repeat("x", len(content)) // it is packed
	}
	return stream.Event{Type: kind, Object: object("ns", fmt.Sprint("o", n), r, content)}
}

func stateAt(r edge.Revision) stream.Snapshot {
	m := streamtest.Model{}
	for i := edge.Revision(1); i <= r; i++ {
		m.Apply(eventAt(i))
	}
	return stream.Snapshot{Type: streamtest.EndpointSlices, Revision: r, Objects: m.Content()}
}

// writeForEver goes on from what is on disk, until it is killed.
func writeForEver(dir string) error {
	s, err := Open(Config{Dir: dir, flushEvery: time.Millisecond, maxBytes: 1 << 30})
	if err != nil {
		return err
	}
	if h := s.Health(); h.Corrupt != "" || h.Err != "" {
		return fmt.Errorf("after a crash: %+v", h)
	}
	ctx := context.Background()
	go func() { _ = s.Run(ctx) }()
	k := s.Sink(slicesID)
	r := k.Position()
	if r == 0 {
		r = 1
		if err := k.Replace(ctx, stateAt(r)); err != nil {
			return err
		}
	}
	fmt.Println("began at", r)
	for began := r; ; {
		r++
		err := k.Apply(ctx, []stream.Event{eventAt(r)})
		if r%500 == 0 && err == nil {
			err = k.Replace(ctx, stateAt(r))
		}
		if err != nil {
			return err
		}
		if err := s.PutBlob("revision", []byte(r.String())); err != nil {
			return err
		}
		if r == began+few {
			if err := s.Flush(ctx); err != nil {
				return err
			}
			fmt.Println("kept", r)
		}
	}
}

// few is how many revisions a process keeps at least that is not killed while it begins, however slow the disk is.
const few = 10

// A process that is killed at any instruction leaves a state that was, and no earlier one than the last time.
func TestKill(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	dir := t.TempDir()
	var last, least edge.Revision
	for i := range *crashes / slow {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childEnv+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if i%4 != 0 { // else it may die while it opens the store
			lines := bufio.NewReader(out)
			for _, want := range []string{"began at", "kept"} {
				if line, _ := lines.ReadString('\n'); !strings.HasPrefix(line, want) {
					t.Fatalf("child %d says %q, not that it %s a revision", i, line, want)
				}
			}
			least = last + few
		}
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond) // real time: it is the child's
		_ = child.Process.Kill()
		_ = child.Wait()
		if last = verifyKilled(t, dir, last); last < least {
			t.Fatalf("%s on disk, though %s was flushed", last, least)
		}
	}
	t.Logf("at revision %s in the end", last)
}

func verifyKilled(t *testing.T, dir string, last edge.Revision) edge.Revision {
	t.Helper()
	s, err := Open(Config{Dir: dir, maxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if h := s.Health(); h.Corrupt != "" || h.Err != "" {
		t.Fatalf("after revision %s: %+v", last, h)
	}
	got, err := s.Load(slicesID)
	if err != nil && last == 0 {
		return 0 // killed before the first flush
	}
	if err != nil || got.Revision < last || !same(got, stateAt(got.Revision)) {
		t.Fatalf("after revision %s: %d objects at %s, %v", last, len(got.Objects), got.Revision, err)
	}
	return got.Revision
}
