package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

var (
	savedPods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	kind      = stream.Type{GroupVersionKind: savedPods.GroupVersion().WithKind("Pod"), Encoding: stream.JSON}
	id        = store.Collection{Resource: savedPods}
)

func savedObject(name string, revision edge.Revision) stream.Object {
	return stream.Object{
		Key: stream.Key{Namespace: "a", Name: name}, Revision: revision,
		Raw: fmt.Appendf(nil, `{"metadata":{"namespace":"a","name":%q,"resourceVersion":"%d"}}`, name, revision),
	}
}

func snapshot(revision edge.Revision, objects ...stream.Object) stream.Snapshot {
	return stream.Snapshot{Type: kind, Revision: revision, Objects: objects}
}

func newReplica(t *testing.T) *replica.Replica {
	t.Helper()
	return sized(t, 0)
}

func sized(t *testing.T, history int) *replica.Replica {
	t.Helper()
	return replica.New(replica.Config{Resource: savedPods, HistoryEvents: history})
}

func replace(t *testing.T, r *replica.Replica, s stream.Snapshot) {
	t.Helper()
	if err := r.Replace(context.Background(), s); err != nil {
		t.Fatal(err)
	}
}

func apply(t *testing.T, r *replica.Replica, kind stream.EventType, o stream.Object) {
	t.Helper()
	if err := r.Apply(context.Background(), []stream.Event{{Type: kind, Object: o}}); err != nil {
		t.Fatal(err)
	}
}

// text is a content, to be compared.
func text(s stream.Snapshot) string {
	all := fmt.Sprintf("%d %v:", s.Revision, s.Type)
	for _, o := range s.Objects {
		all += fmt.Sprintf(" %s@%d %s", o.Key, o.Revision, o.Raw)
	}
	return all
}

func textOf(t *testing.T, r *replica.Replica) string {
	t.Helper()
	s, err := r.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return text(s)
}

// saverDisk is a disk in memory, with faults. Like the store's, its position falls to 0 when it fails.
type saverDisk struct {
	mu       sync.Mutex
	content  stream.Snapshot
	position edge.Revision
	fails    error
	block    chan struct{} // if not nil, Replace waits until it is closed
	drops    int
	replaced int
	wrote    []edge.Revision // what was applied, in order
	flushed  edge.Revision   // where it stood at the last Flush
}

func (d *saverDisk) Load(store.Collection) (stream.Snapshot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.content.Revision == 0 {
		return stream.Snapshot{}, store.ErrMiss
	}
	return d.content, nil
}

func (d *saverDisk) Sink(store.Collection) stream.Sink { return d }

func (d *saverDisk) Flush(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flushed = d.position
	return d.fails
}

func (d *saverDisk) Drop(store.Collection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.content, d.position = stream.Snapshot{}, 0
	d.drops++
}

func (d *saverDisk) Position() edge.Revision {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.position
}

func (d *saverDisk) failsNow() error {
	if d.fails != nil {
		d.position = 0
	}
	return d.fails
}

func (d *saverDisk) Replace(ctx context.Context, s stream.Snapshot) error {
	d.mu.Lock()
	block := d.block
	d.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.failsNow() != nil:
		return d.fails
	case s.Revision < d.position:
		return store.ErrOlder
	}
	d.content, d.position = s, s.Revision
	d.replaced++
	return nil
}

func (d *saverDisk) Apply(_ context.Context, events []stream.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.failsNow() != nil:
		return d.fails
	case d.position == 0:
		return store.ErrIncomplete
	}
	objects := map[stream.Key]stream.Object{}
	for _, o := range d.content.Objects {
		objects[o.Key] = o
	}
	for _, e := range events {
		if e.Object.Revision <= d.position {
			continue
		}
		d.position = e.Object.Revision
		switch e.Type {
		case stream.Added, stream.Modified:
			objects[e.Object.Key] = e.Object
		case stream.Deleted:
			delete(objects, e.Object.Key)
		default:
			continue
		}
		d.wrote = append(d.wrote, e.Object.Revision)
	}
	d.content = snapshot(d.position, slices.SortedFunc(maps.Values(objects), func(a, b stream.Object) int {
		return a.Key.Compare(b.Key)
	})...)
	return nil
}

func (d *saverDisk) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *saverDisk) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return text(d.content)
}

// same checks that the disk has what the replica has.
func same(t *testing.T, d *saverDisk, r *replica.Replica) {
	t.Helper()
	if got, want := d.text(), textOf(t, r); got != want {
		t.Errorf("the disk has\n%s, want\n%s", got, want)
	}
}

// beginSaver runs a saver until the function that it returns is called.
func beginSaver(t *testing.T, s *Saver) (ended chan struct{}, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	synctest.Wait()
	return ended, func() {
		cancel()
		<-ended
	}
}

func TestRestore(t *testing.T) {
	d, r := &saverDisk{}, newReplica(t)
	if err := NewSaver(d, id, r, ends.Chance{}).Restore(t.Context()); !errors.Is(err, store.ErrMiss) {
		t.Errorf("from an empty disk: %v", err)
	}
	d.content = snapshot(9, savedObject("x", 5), savedObject("y", 9))
	if err := NewSaver(d, id, r, ends.Chance{}).Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, d, r)
	if r.Position() != 9 || !r.Complete().Get() {
		t.Errorf("it is at %d", r.Position())
	}
}

func TestWhatCannotBeContentIsDropped(t *testing.T) {
	for name, bad := range map[string]stream.Snapshot{
		"an object of later":    snapshot(9, savedObject("x", 10)),
		"an object twice":       snapshot(9, savedObject("x", 5), savedObject("x", 6)),
		"an object unnamed":     snapshot(9, savedObject("", 5)),
		"an encoding of nobody": {Revision: 9},
	} {
		d, r := &saverDisk{content: bad}, newReplica(t)
		err := NewSaver(d, id, r, ends.Chance{}).Restore(t.Context())
		if err == nil || errors.Is(err, store.ErrMiss) || d.drops != 1 {
			t.Errorf("%s: %v, dropped %d times", name, err, d.drops)
		}
		if r.Complete().Get() {
			t.Errorf("%s is content", name)
		}
	}
}

// A hub that ends in the middle must find what it had.
func TestAnEndIsNoReasonToDrop(t *testing.T) {
	d, r := &saverDisk{content: snapshot(9, savedObject("x", 5))}, newReplica(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewSaver(d, id, r, ends.Chance{}).Restore(ctx); !errors.Is(err, context.Canceled) || d.drops != 0 {
		t.Errorf("%v, dropped %d times", err, d.drops)
	}
	r.Close()
	if err := NewSaver(d, id, r, ends.Chance{}).Restore(t.Context()); !errors.Is(err, replica.ErrClosed) || d.drops != 0 {
		t.Errorf("%v, dropped %d times", err, d.drops)
	}
}

func TestChangesReachTheDiskInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r := &saverDisk{}, newReplica(t)
		_, stop := beginSaver(t, NewSaver(d, id, r, ends.Chance{}))
		defer stop()
		if d.replaced != 0 {
			t.Error("something of nothing was written")
		}
		replace(t, r, snapshot(9, savedObject("x", 5), savedObject("y", 9)))
		synctest.Wait()
		same(t, d, r)
		for revision := edge.Revision(10); revision < 3000; revision += 3 {
			apply(t, r, stream.Modified, savedObject("x", revision))
			apply(t, r, stream.Added, savedObject(fmt.Sprint("z", revision), revision+1))
			apply(t, r, stream.Deleted, savedObject(fmt.Sprint("z", revision), revision+2))
		}
		apply(t, r, stream.Bookmark, stream.Object{Revision: 4000})
		synctest.Wait()
		same(t, d, r)
		if !slices.IsSorted(d.wrote) || len(d.wrote) != 2991 || d.replaced != 1 {
			t.Errorf("%d changes and %d contents were written, in order: %v", len(d.wrote), d.replaced, slices.IsSorted(d.wrote))
		}
	})
}

func TestWhatWasRestoredIsNotWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r := &saverDisk{content: snapshot(9, savedObject("x", 5)), position: 9}, newReplica(t)
		s := NewSaver(d, id, r, ends.Chance{})
		if err := s.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, stop := beginSaver(t, s)
		defer stop()
		apply(t, r, stream.Modified, savedObject("x", 12))
		synctest.Wait()
		same(t, d, r)
		if d.replaced != 0 || len(d.wrote) != 1 {
			t.Errorf("%d contents and %d changes were written", d.replaced, len(d.wrote))
		}
	})
}

// Load gives what has been flushed, and the position is that of what is queued behind it.
func TestWhatIsQueuedAlreadyIsNotWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r := &saverDisk{content: snapshot(9, savedObject("x", 5)), position: 9}, newReplica(t)
		s := NewSaver(d, id, r, ends.Chance{})
		if err := s.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.content, d.position = snapshot(12, savedObject("x", 12)), 12
		_, stop := beginSaver(t, s)
		defer stop()
		for _, revision := range []edge.Revision{12, 15} { // the replica is told again, and on
			apply(t, r, stream.Modified, savedObject("x", revision))
			synctest.Wait()
		}
		same(t, d, r)
		if d.replaced != 0 || d.drops != 0 || len(d.wrote) != 1 {
			t.Errorf("%d contents, %d changes, dropped %d times", d.replaced, len(d.wrote), d.drops)
		}
	})
}

func TestAWatchThatExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r := &saverDisk{content: snapshot(9, savedObject("x", 5)), position: 9}, sized(t, 3)
		s := NewSaver(d, id, r, ends.Chance{})
		if err := s.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		for revision := edge.Revision(10); revision < 20; revision++ {
			apply(t, r, stream.Modified, savedObject("x", revision))
		}
		_, stop := beginSaver(t, s)
		defer stop()
		same(t, d, r)

		// A disk that is slower than the changes.
		replace(t, r, snapshot(30, savedObject("y", 30)))
		d.set(func() { d.block = make(chan struct{}) })
		time.Sleep(savePauseMax)
		for revision := edge.Revision(31); revision < 60; revision++ {
			apply(t, r, stream.Modified, savedObject("y", revision))
		}
		d.set(func() {
			close(d.block)
			d.block = nil
		})
		time.Sleep(2 * savePauseMax)
		same(t, d, r)
		if d.drops != 0 {
			t.Error("it was dropped")
		}
	})
}

func TestADiskThatCannotBeWrittenForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r := &saverDisk{}, newReplica(t)
		replace(t, r, snapshot(9, savedObject("x", 5)))
		_, stop := beginSaver(t, NewSaver(d, id, r, ends.Chance{}))
		defer stop()
		d.set(func() { d.fails = store.ErrUnwritable })
		for revision := edge.Revision(10); revision < 20; revision++ {
			apply(t, r, stream.Added, savedObject(fmt.Sprint("z", revision), revision))
			time.Sleep(time.Minute)
		}
		d.set(func() { d.fails = nil })
		time.Sleep(2 * savePauseMax)
		same(t, d, r)
		if d.drops != 0 {
			t.Error("it was dropped")
		}
	})
}

// A hub that is killed, with Pods whose statuses change all the time, does not show a Pod again that was deleted 3 s before.
func TestAKilledHubDoesNotHaveADeletedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := store.Config{Dir: t.TempDir(), Prompt: store.Prompt{Collection: func(store.Collection) bool { return true }}}
		disk, err := store.Open(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var owned sync.WaitGroup
		owned.Go(func() {
			if err := errors.Join(disk.Run(ctx), disk.Close()); err != nil {
				t.Error(err)
			}
		})
		r := newReplica(t)
		s := NewSaver(disk, id, r, ends.Chance{})
		owned.Go(func() { s.Run(ctx) })
		const pods = 20
		begin, revision := snapshot(100), edge.Revision(100)
		for n := range pods {
			begin.Objects = append(begin.Objects, savedObject(fmt.Sprint("leaving", n), edge.Revision(n+1)))
		}
		begin.Objects = append(begin.Objects, savedObject("staying", 50))
		replace(t, r, begin)
		beat := func(of time.Duration) {
			for range int(of / (300 * time.Millisecond)) {
				revision++
				apply(t, r, stream.Modified, savedObject("staying", revision))
				time.Sleep(300 * time.Millisecond)
			}
		}
		beat(time.Minute)
		for n := range pods { // at another moment of the pace each time
			beat(time.Duration(20+n) * time.Second)
			revision++
			name := fmt.Sprint("leaving", n)
			apply(t, r, stream.Deleted, savedObject(name, revision))
			beat(3300 * time.Millisecond)
			synctest.Wait()
			for _, o := range killed(t, c.Dir).Objects {
				if o.Key.Name == name {
					t.Errorf("%s is on the disk 3.3 s after its end", name)
				}
			}
		}
		cancel()
		owned.Wait()
	})
}

// killed returns what a hub finds that starts with the disk as it is now.
func killed(t *testing.T, dir string) stream.Snapshot {
	t.Helper()
	c := store.Config{Dir: t.TempDir()}
	if err := os.CopyFS(c.Dir, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	disk, err := store.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := disk.Load(id)
	if err := errors.Join(err, disk.Close()); err != nil {
		t.Fatal(err)
	}
	return got
}

// The link is down, so no change comes by which it would show.
func TestADiskThatHasLostWhatItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r := &saverDisk{}, newReplica(t)
		replace(t, r, snapshot(9, savedObject("x", 5)))
		_, stop := beginSaver(t, NewSaver(d, id, r, ends.Chance{}))
		defer stop()
		time.Sleep(10 * saveEvery)
		if d.replaced != 1 {
			t.Errorf("written %d times without need", d.replaced)
		}
		d.set(func() { d.content, d.position = stream.Snapshot{}, 0 })
		time.Sleep(2 * saveEvery)
		same(t, d, r)
	})
}

func TestTheCloudWasRestored(t *testing.T) {
	// The saver sees the replica empty, or only after it was filled anew, or after it has passed the disk's revision.
	for name, fill := range map[string]func(t *testing.T, r *replica.Replica){
		"seen empty": func(t *testing.T, r *replica.Replica) {
			r.Reset()
			synctest.Wait()
			replace(t, r, snapshot(50, savedObject("old", 50)))
		},
		"seen filled": func(t *testing.T, r *replica.Replica) {
			r.Reset()
			replace(t, r, snapshot(50, savedObject("old", 50)))
		},
		"seen when it has passed": func(t *testing.T, r *replica.Replica) {
			r.Reset()
			synctest.Wait()
			replace(t, r, snapshot(50, savedObject("old", 50)))
			for revision := edge.Revision(51); revision < 120; revision++ {
				apply(t, r, stream.Modified, savedObject("old", revision))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, r := &saverDisk{}, newReplica(t)
				replace(t, r, snapshot(100, savedObject("x", 100)))
				_, stop := beginSaver(t, NewSaver(d, id, r, ends.Chance{}))
				defer stop()
				same(t, d, r)
				fill(t, r)
				time.Sleep(2 * savePauseMax)
				same(t, d, r)
				for revision := edge.Revision(120); revision < 140; revision++ {
					apply(t, r, stream.Modified, savedObject("old", revision))
				}
				synctest.Wait()
				same(t, d, r)
			})
		})
	}
}

// The same while the disk is busy with the content before: nothing may resume from what it takes then.
func TestTheCloudWasRestoredWhileTheDiskWasBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r := &saverDisk{block: make(chan struct{})}, newReplica(t)
		replace(t, r, snapshot(100, savedObject("x", 100)))
		_, stop := beginSaver(t, NewSaver(d, id, r, ends.Chance{}))
		defer stop()
		r.Reset()
		replace(t, r, snapshot(50, savedObject("old", 50)))
		d.set(func() {
			close(d.block)
			d.block = nil
		})
		synctest.Wait()
		for revision := edge.Revision(51); revision < 120; revision++ {
			apply(t, r, stream.Modified, savedObject("old", revision))
		}
		time.Sleep(2 * savePauseMax)
		same(t, d, r)
	})
}

// What could not be restored says nothing about the disk's revision.
func TestWhatWasNotRestoredIsNotGoneOnFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r := &saverDisk{position: 100}, newReplica(t) // its content is queued only, and Load misses
		s := NewSaver(d, id, r, ends.Chance{})
		if err := s.Restore(t.Context()); !errors.Is(err, store.ErrMiss) {
			t.Fatal(err)
		}
		_, stop := beginSaver(t, s)
		defer stop()
		replace(t, r, snapshot(50, savedObject("old", 50)))
		for revision := edge.Revision(51); revision < 120; revision++ {
			apply(t, r, stream.Modified, savedObject("old", revision))
		}
		time.Sleep(time.Second)
		same(t, d, r)
	})
}

func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r := &saverDisk{}, newReplica(t)
		_, stop := beginSaver(t, NewSaver(d, id, r, ends.Chance{}))
		stop() // while there is nothing

		replace(t, r, snapshot(9, savedObject("x", 5)))
		_, stop = beginSaver(t, NewSaver(d, id, r, ends.Chance{}))
		stop() // while it follows

		d.set(func() { d.block = make(chan struct{}) })
		_, stop = beginSaver(t, NewSaver(d, id, r, ends.Chance{}))
		stop() // while the disk is busy

		d.set(func() { d.block, d.fails = nil, store.ErrFull })
		_, stop = beginSaver(t, NewSaver(d, id, r, ends.Chance{}))
		stop() // in a pause

		d.set(func() { d.fails = nil })
		ended, _ := beginSaver(t, NewSaver(d, id, r, ends.Chance{}))
		r.Close()
		<-ended
	})
}

// model is what a replica was at each of its revisions.
type model struct {
	states map[edge.Revision]string
	names  map[string]bool
	at     edge.Revision
}

// step changes a replica at random, and notes what it was.
func (m *model) step(t *testing.T, random *rand.Rand, r *replica.Replica) {
	t.Helper()
	m.at++
	name := fmt.Sprint("o", random.IntN(8))
	switch {
	case random.IntN(20) == 0:
		apply(t, r, stream.Bookmark, stream.Object{Revision: m.at})
	case m.names[name] && random.IntN(2) == 0:
		apply(t, r, stream.Deleted, savedObject(name, m.at))
		delete(m.names, name)
	case m.names[name]:
		apply(t, r, stream.Modified, savedObject(name, m.at))
	default:
		apply(t, r, stream.Added, savedObject(name, m.at))
		m.names[name] = true
	}
	m.states[m.at] = textOf(t, r)
}

// Whatever happens to the disk, it has an earlier state of the replica, and in the end the present one.
func TestModel(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 4))
			d, r := &saverDisk{}, sized(t, 20)
			m := &model{map[edge.Revision]string{}, map[string]bool{}, 100}
			replace(t, r, snapshot(100))
			m.states[100] = textOf(t, r)
			_, stop := beginSaver(t, NewSaver(d, id, r, ends.Chance{}))
			defer func() { stop() }()
			for range 400 {
				switch random.IntN(40) {
				case 0:
					d.set(func() { d.fails = store.ErrUnwritable })
				case 1, 2:
					d.set(func() { d.fails = nil })
				case 3:
					d.set(func() { d.position = 0 })
				case 4:
					stop()
					r = sized(t, 20)
					s := NewSaver(d, id, r, ends.Chance{})
					if err := s.Restore(t.Context()); err != nil { // the cloud fills it
						replace(t, r, snapshot(m.at))
						m.names = map[string]bool{}
						m.states[m.at] = textOf(t, r)
					} else {
						m.at = r.Position()
						m.names = map[string]bool{}
						for _, o := range d.content.Objects {
							m.names[o.Key.Name] = true
						}
					}
					_, stop = beginSaver(t, s)
				case 5:
					time.Sleep(time.Duration(random.IntN(100)) * time.Second)
				case 6:
					synctest.Wait()
				}
				m.step(t, random, r)
				if s, err := d.Load(id); err == nil && text(s) != m.states[s.Revision] {
					t.Fatalf("seed %d: the disk has\n%s, at that revision it was\n%s", seed, text(s), m.states[s.Revision])
				}
			}
			d.set(func() { d.fails = nil })
			time.Sleep(5 * time.Minute)
			same(t, d, r)
		})
	}
}

// The store itself, reopened in the middle of everything: whatever has reached it is an earlier state of the replica.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		m := &model{map[edge.Revision]string{}, map[string]bool{}, 100}
		random := rand.New(rand.NewPCG(1, 2))
		reached := edge.Revision(0)
		for round := range 8 {
			before := reached
			reached = crash(t, dir, m, random, reached)
			if reached <= before {
				t.Fatalf("round %d: the disk has got no further than revision %d", round, reached)
			}
		}
	})
}

// crash resumes from the disk, which must have what was flushed before, goes on, and ends without a last flush.
func crash(t *testing.T, dir string, m *model, random *rand.Rand, before edge.Revision) (reached edge.Revision) {
	t.Helper()
	disk, err := store.Open(store.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	r := newReplica(t)
	s := NewSaver(disk, id, r, ends.Chance{})
	if err := s.Restore(t.Context()); err != nil {
		if before != 0 || !errors.Is(err, store.ErrMiss) {
			t.Fatal(err)
		}
		replace(t, r, snapshot(100))
		m.states[100] = textOf(t, r)
	}
	got, err := r.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if text(got) != m.states[got.Revision] || got.Revision < before {
		t.Fatalf("it resumes at\n%s, it was\n%s; revision %d had been flushed", text(got), m.states[got.Revision], before)
	}
	m.at, m.names = got.Revision, map[string]bool{}
	for _, o := range got.Objects {
		m.names[o.Key.Name] = true
	}
	_, stop := beginSaver(t, s)
	for i := range 200 {
		m.step(t, random, r)
		if i == 100 {
			synctest.Wait() // at least once the disk has caught up; else it is somewhere
		}
		if i%50 == 0 {
			if err := disk.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s, err := disk.Load(id); err == nil {
				reached = s.Revision
			}
		}
	}
	stop()
	if err := disk.Close(); err != nil {
		t.Fatal(err)
	}
	return reached
}

// A client that is told to list again forgets how far it was. What it has been told is on the disk then.
func TestSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r := &saverDisk{block: make(chan struct{})}, newReplica(t)
		s := NewSaver(d, id, r, ends.Chance{})
		_, stop := beginSaver(t, s)
		defer stop()
		replace(t, r, snapshot(9, savedObject("x", 5)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while the disk takes nothing: %v", err)
		}
		close(d.block)
		for revision := edge.Revision(10); revision < 20; revision++ {
			apply(t, r, stream.Modified, savedObject("x", revision))
			if err := s.Sync(t.Context()); err != nil || d.flushed != revision {
				t.Errorf("at %d: flushed at %d, %v", revision, d.flushed, err)
			}
		}
		d.set(func() { d.fails = store.ErrUnwritable })
		apply(t, r, stream.Modified, savedObject("x", 20))
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Sync(ctx); err == nil {
			t.Error("a disk that cannot be written has everything")
		}
	})
}

// TestWhatAFillerBroughtIsNotKept: it is of no use with what comes from the cloud. What comes then is kept.
func TestWhatAFillerBroughtIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r := &saverDisk{}, newReplica(t)
		filled := snapshot(500, savedObject("ghost", 400))
		filled.History = edge.History(0).Filled()
		replace(t, r, filled)
		s := NewSaver(d, id, r, ends.Chance{})
		_, stop := beginSaver(t, s)
		defer stop()
		apply(t, r, stream.Modified, savedObject("ghost", 501))
		synctest.Wait()
		if at := d.Position(); at != 0 {
			t.Errorf("the disk has it, at revision %s", at)
		}
		if err := s.Sync(t.Context()); err != nil {
			t.Errorf("it waits for what is not to be kept: %v", err)
		}
		replace(t, r, snapshot(200, savedObject("a", 150)))
		time.Sleep(2 * savePauseMin) // of the bubble's clock
		apply(t, r, stream.Modified, savedObject("b", 201))
		synctest.Wait()
		same(t, d, r)
	})
}
