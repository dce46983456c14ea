package compare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/role"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

// world is a cloud with one resource, what the coordinator says of it, and the followers of a pool, n1 to nN.
type world struct {
	t *testing.T

	mu       sync.Mutex
	revision edge.Revision
	cloud    map[stream.Key]stream.Object
	behind   edge.Revision // how far the coordinator lags, in revisions
	history  edge.History
	fed      bool
	lies     func(map[stream.Key]stream.Object) // changes what the coordinator says
	fail     error                              // what the cloud answers
	asked    map[string]int
	spent    int64
	told     []string
	stop     []func()
	standing []*live.Value[role.Standing]
	timing   Timing
	registry []*prometheus.Registry
	past     []snapshot
	apart    time.Duration // between one node's first heartbeat and the next one's
}

type snapshot struct {
	at      edge.Revision
	objects map[stream.Key]stream.Object
}

func newWorld(t *testing.T, objects int) *world {
	w := &world{
		t: t, revision: 100, cloud: map[stream.Key]stream.Object{}, fed: true, asked: map[string]int{}, timing: Standard(),
	}
	for i := range objects {
		w.put(i)
	}
	return w
}

func key(i int) stream.Key { return stream.Key{Namespace: "shop", Name: fmt.Sprintf("o%04d", i)} }

// put makes or changes an object in the cloud.
func (w *world) put(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision++
	w.cloud[key(i)] = object(key(i), w.revision, fmt.Sprintf("content of %d", w.revision))
	w.keepLocked()
}

func (w *world) remove(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision++
	delete(w.cloud, key(i))
	w.keepLocked()
}

func (w *world) keepLocked() {
	if w.past = append(w.past, snapshot{w.revision, maps.Clone(w.cloud)}); len(w.past) > 50 {
		w.past = w.past[1:]
	}
}

func object(k stream.Key, revision edge.Revision, content string) stream.Object {
	return stream.Object{Key: k, Revision: revision, Raw: []byte(content)}
}

// start starts the Comparers of so many followers; n0 leads.
func (w *world) start(followers int) {
	ctx, cancel := context.WithCancel(klog.NewContext(w.t.Context(), klog.Logger{}))
	var all sync.WaitGroup
	began := time.Now()
	var nodes []edge.NodeName
	for i := range followers {
		nodes = append(nodes, edge.NodeName(fmt.Sprintf("n%d", i+1)))
	}
	for _, node := range nodes {
		standing := live.NewValue(role.Standing{Role: role.Follower, Leader: "n0", Transitions: 5})
		registry := prometheus.NewRegistry()
		w.standing, w.registry = append(w.standing, standing), append(w.registry, registry)
		c := New(Config{
			Node: node, Standing: standing, CloudLink: live.NewValue(link.Up), Resources: w.resources,
			Followers: func(context.Context, edge.NodeName) ([]edge.NodeName, error) {
				return slices.DeleteFunc(slices.Clone(nodes), func(other edge.NodeName) bool {
					return other != node && time.Since(began) < time.Duration(slices.Index(nodes, other))*w.apart
				}), nil
			},
			Timing: func() Timing { w.mu.Lock(); defer w.mu.Unlock(); return w.timing },
			Spent:  func() int64 { w.mu.Lock(); defer w.mu.Unlock(); return w.spent / int64(followers) },
			Tell:   w.tell, Metrics: registry,
		})
		all.Go(func() {
			if err := c.Run(ctx); err != nil {
				w.t.Errorf("Run = %v", err)
			}
		})
	}
	w.stop = append(w.stop, func() { cancel(); all.Wait() })
}

func (w *world) end() {
	for _, stop := range w.stop {
		stop()
	}
}

func (w *world) tell(_ context.Context, lie Lie) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, fmt.Sprintf("%s %s by %s %v", lie.Kind, lie.Key, lie.Leader, lie.Earlier))
	return nil
}

func (w *world) resources() []Resource {
	return []Resource{{Name: "services", Replica: said{w}, Cloud: truth{w}, Fed: func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.fed
	}}}
}

// lie has the coordinator say something else from now on.
func (w *world) lie(how func(map[stream.Key]stream.Object)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lies = how
}

func (w *world) atLocked() snapshot {
	at := w.past[0]
	for _, p := range w.past {
		if p.at+w.behind <= w.revision {
			at = p
		}
	}
	return at
}

func (w *world) saidLocked() (map[stream.Key]stream.Object, edge.Revision) {
	at := w.atLocked()
	if w.lies == nil {
		return at.objects, at.at
	}
	objects := maps.Clone(at.objects)
	w.lies(objects)
	return objects, at.at
}

// said is what the coordinator says.
type said struct{ w *world }

func (s said) Snapshot(context.Context) (stream.Snapshot, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	objects, at := s.w.saidLocked()
	return snapshotOf(objects, at), nil
}

func (s said) Get(k stream.Key) (stream.Object, bool) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	objects, _ := s.w.saidLocked()
	o, ok := objects[k]
	return o, ok
}

func (s said) Position() edge.Revision {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.w.atLocked().at
}

func (s said) History() edge.History {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.w.history
}

func snapshotOf(objects map[stream.Key]stream.Object, at edge.Revision) stream.Snapshot {
	s := stream.Snapshot{Revision: at}
	for _, o := range objects {
		s.Objects = append(s.Objects, o)
	}
	slices.SortFunc(s.Objects, func(a, b stream.Object) int { return a.Key.Compare(b.Key) })
	return s
}

// truth is the cloud.
type truth struct{ w *world }

func (c truth) ask(what string, bytes int64) error {
	c.w.asked[what]++
	c.w.spent += bytes
	return c.w.fail
}

func (c truth) One(_ context.Context, k stream.Key) (stream.Snapshot, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	s := stream.Snapshot{Revision: c.w.revision}
	if o, ok := c.w.cloud[k]; ok {
		s.Objects = []stream.Object{o}
	}
	return s, c.ask("one", 2000)
}

func (c truth) Count(context.Context) (int, edge.Revision, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return len(c.w.cloud), c.w.revision, c.ask("count", 1000)
}

func (c truth) Snapshot(context.Context) (stream.Snapshot, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return snapshotOf(c.w.cloud, c.w.revision), c.ask("list", int64(len(c.w.cloud))*200)
}

// until passes time until something was told, at most for so long, and returns how long it took.
func (w *world) until(limit time.Duration) (time.Duration, []string) {
	began := time.Now()
	for time.Since(began) < limit {
		time.Sleep(time.Minute)
		synctest.Wait()
		w.mu.Lock()
		told := slices.Clone(w.told)
		w.mu.Unlock()
		if len(told) > 0 {
			return time.Since(began), told
		}
	}
	return limit, nil
}

func test(t *testing.T, objects, followers int, run func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, objects)
		w.start(followers)
		defer w.end()
		run(w)
	})
}

// TestHonest: whatever changes, and however far the coordinator lags, an honest one is not accused, for a day.
func TestHonest(t *testing.T) {
	for name, behind := range map[string]edge.Revision{"at once": 0, "five changes behind": 5, "four minutes behind": 8} {
		t.Run(name, func(t *testing.T) {
			test(t, 60, 3, func(w *world) {
				w.mu.Lock()
				w.behind = behind
				w.mu.Unlock()
				for i := range 26 * 60 * 2 { // every 30 s something changes
					if i%7 == 3 {
						w.remove(i % 60)
					} else {
						w.put((i * 13) % 70)
					}
					time.Sleep(30 * time.Second)
				}
				synctest.Wait()
				if len(w.told) > 0 {
					t.Errorf("told %q", w.told)
				}
				results := w.results()
				if results["same"] < 24*30 || results["listed"] < 1 || results["counted"] < 24 {
					t.Errorf("compared %v", results)
				}
			})
		})
	}
}

func (w *world) results() map[string]float64 {
	sum := map[string]float64{}
	for _, r := range w.registry {
		families, err := r.Gather()
		if err != nil {
			w.t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "yurthub_pool_comparisons_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				sum[m.GetLabel()[0].GetValue()] += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestATenth: every kind of lie about a tenth of the objects is found within two hours at most, and told with the leader's name.
// Within one it is found in 99 of 100 cases, which plan_test.go plays.
func TestATenth(t *testing.T) {
	tenth := func(do func(map[stream.Key]stream.Object, stream.Key)) func(map[stream.Key]stream.Object) {
		return func(all map[stream.Key]stream.Object) {
			for i := range 10 {
				do(all, key(i*10))
			}
		}
	}
	bumped := edge.Revision(0)
	for name, tt := range map[string]struct {
		kind string
		how  func(map[stream.Key]stream.Object)
	}{
		"other content": {"differs", tenth(func(all map[stream.Key]stream.Object, k stream.Key) {
			all[k] = object(k, all[k].Revision, "a lie")
		})},
		"what was before": {"differs", tenth(func(all map[stream.Key]stream.Object, k stream.Key) {
			all[k] = object(k, all[k].Revision-3, "content from before")
		})},
		"a revision from the future": {"ahead", tenth(func(all map[stream.Key]stream.Object, k stream.Key) {
			all[k] = object(k, 1<<40, "a lie")
		})},
		"left out": {"omitted", tenth(func(all map[stream.Key]stream.Object, k stream.Key) { delete(all, k) })},
		"made up": {"invented", func(all map[stream.Key]stream.Object) {
			for i := range 12 {
				k := stream.Key{Namespace: "evil", Name: fmt.Sprint(i)}
				all[k] = object(k, 90, "a lie")
			}
		}},
		"made up, and anew with each look": {"ahead", func(all map[stream.Key]stream.Object) {
			bumped++
			for i := range 12 {
				k := stream.Key{Namespace: "evil", Name: fmt.Sprint(i)}
				all[k] = object(k, 1000+bumped, "a lie")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, 100, 3, func(w *world) {
				w.lie(tt.how)
				took, told := w.until(2 * time.Hour)
				if len(told) == 0 || !strings.HasPrefix(told[0], tt.kind+" ") || !strings.Contains(told[0], " by n0 []") {
					t.Fatalf("after %v told %q, want %s by n0", took, told, tt.kind)
				}
				lies := 0.0
				for _, r := range w.registry {
					n, err := testutil.GatherAndCount(r, "yurthub_pool_lies_total")
					if err != nil {
						t.Fatal(err)
					}
					lies += float64(n)
				}
				if lies == 0 {
					t.Error("no metric names the liar")
				}
			})
		})
	}
}

// TestASingleOne: a lie about one object of 300 is found within a day, whoever's turn it is, and the pool spends no more than
// it may.
func TestASingleOne(t *testing.T) {
	for name, how := range map[string]func(map[stream.Key]stream.Object){
		"left out":      func(all map[stream.Key]stream.Object) { delete(all, key(277)) },
		"other content": func(all map[stream.Key]stream.Object) { all[key(277)] = object(key(277), 378, "a lie") },
	} {
		t.Run(name, func(t *testing.T) {
			test(t, 300, 3, func(w *world) {
				time.Sleep(w.timing.Window) // in its first window a hub lists nothing
				w.lie(how)
				took, told := w.until(24*time.Hour + 2*late)
				if len(told) == 0 || !strings.Contains(told[0], "shop/o0277 by n0") {
					t.Fatalf("after %v told %q", took, told)
				}
				if perDay := float64(w.spent); perDay > 1.5*float64(w.timing.PerDay) {
					t.Errorf("spent %.1f MB in a day and a half", perDay/1e6)
				}
			})
		})
	}
}

// TestYoungPool: ten followers that see each other one by one look at no more in the first hour than a pool may, give or take
// what is drawn at random.
func TestYoungPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100)
		w.apart = 10 * time.Second
		w.start(10)
		defer w.end()
		w.until(w.timing.Period)
		w.mu.Lock()
		defer w.mu.Unlock()
		if looks, may := w.asked["one"]+w.asked["count"], looksFor(100)+countsEach; looks < may/2 || looks > may*2 {
			t.Errorf("looked %d times in an hour, where a pool may %d times", looks, may)
		}
	})
}

// TestWithheld: a coordinator that does not come on, though it is said to be current, is told of, too.
func TestWithheld(t *testing.T) {
	test(t, 50, 2, func(w *world) {
		w.mu.Lock()
		w.behind = 1 << 40
		w.mu.Unlock()
		w.put(3)
		if took, told := w.until(2 * time.Hour); len(told) == 0 || !strings.HasPrefix(told[0], "withheld  by n0") {
			t.Fatalf("after %v told %q", took, told)
		}
	})
}

// TestEarlierLeaders: what a former leader has left behind is not laid at the present one's door alone.
func TestEarlierLeaders(t *testing.T) {
	test(t, 30, 1, func(w *world) {
		time.Sleep(time.Minute)
		w.standing[0].Set(role.Standing{Role: role.Follower, Leader: "n7", Transitions: 6})
		time.Sleep(time.Minute)
		w.lie(func(all map[stream.Key]stream.Object) {
			for k, o := range all {
				all[k] = object(k, o.Revision, "a lie")
			}
		})
		if _, told := w.until(time.Hour); len(told) == 0 || !strings.HasSuffix(told[0], "by n7 [n0]") {
			t.Errorf("told %q, want that n0 led before", told)
		}
	})
}

// TestSaysNothing: nothing is asked, and nobody accused, where this hub can't compare.
func TestSaysNothing(t *testing.T) {
	lying := func(w *world) {
		w.lie(func(all map[stream.Key]stream.Object) {
			for k, o := range all {
				all[k] = object(k, o.Revision, "a lie")
			}
		})
	}
	for name, prepare := range map[string]func(*world){
		"it leads itself":      func(w *world) { w.standing[0].Set(role.Standing{Role: role.Leader, Leader: "n1"}) },
		"nobody leads":         func(w *world) { w.standing[0].Set(role.Standing{Role: role.Follower}) },
		"the cloud feeds it":   func(w *world) { w.mu.Lock(); w.fed = false; w.mu.Unlock() },
		"it is turned off":     func(w *world) { w.mu.Lock(); w.timing.Period = 0; w.mu.Unlock() },
		"nothing may be spent": func(w *world) { w.mu.Lock(); w.timing.PerDay = 0; w.mu.Unlock() },
	} {
		t.Run(name, func(t *testing.T) {
			test(t, 30, 1, func(w *world) {
				prepare(w)
				lying(w)
				if _, told := w.until(6 * time.Hour); len(told) > 0 || len(w.asked) > 0 {
					t.Errorf("told %q, asked %v", told, w.asked)
				}
			})
		})
	}
	t.Run("the cloud does not answer", func(t *testing.T) {
		test(t, 30, 1, func(w *world) {
			w.mu.Lock()
			w.fail = errors.New("no answer")
			w.mu.Unlock()
			lying(w)
			if _, told := w.until(6 * time.Hour); len(told) > 0 || w.results()["unread"] == 0 {
				t.Errorf("told %q, %v", told, w.results())
			}
		})
	})
}

// TestAnotherHistory: what was asked of a cloud before it was restored is not held against what comes after.
func TestAnotherHistory(t *testing.T) {
	test(t, 30, 1, func(w *world) {
		for i := range 200 {
			w.mu.Lock()
			w.history++
			w.revision -= 20 // what it gives from now on, it has given before
			for k, o := range w.cloud {
				w.cloud[k] = object(k, min(o.Revision, w.revision), string(o.Raw))
			}
			w.keepLocked()
			w.mu.Unlock()
			w.put(i % 30)
			time.Sleep(7 * time.Second)
		}
		if len(w.told) > 0 {
			t.Errorf("told %q", w.told)
		}
	})
}

func TestEvent(t *testing.T) {
	lie := Lie{
		Resource: "services", Key: stream.Key{Namespace: "shop", Name: "till"}, Kind: "differs", Leader: "n1", Transitions: 4,
		Earlier: []edge.NodeName{"n2", "n3"},
	}
	about := corev1.ObjectReference{Kind: "YurtCoordinator", Name: "p1"}
	e := lie.Event("n5", "p1", about, time.Unix(5, 6))
	const want = "services shop/till differs between the coordinator and the cloud. Node n1 leads the pool and " +
		"brings it (transitions 4); or it is older: since the last check without a fault, n2, n3 led, too. Node n5 " +
		"compared. See docs/threat-model.md"
	if e.Message != want || e.Type != corev1.EventTypeWarning || e.InvolvedObject != about || e.Reason != reason {
		t.Errorf("%+v", e)
	}
	lie.Earlier = make([]edge.NodeName, 300)
	if e := lie.Event("n5", "p1", about, time.Unix(5, 6)); len(e.Message) > 1024 {
		t.Errorf("a message of %d bytes", len(e.Message))
	}
	for v := omitted; v <= withheld; v++ {
		if kinds[v.String()] == "" {
			t.Errorf("%s has no sentence", v)
		}
	}
}
