package heartbeat

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
)

// due is something that happens at a moment.
type due struct {
	at   time.Time
	what func()
}

type agenda []due

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(due)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// TestNobodyIsForgotten: when a whole pool is cut off, each node is served in time over the one remaining line, however slow
// that is. The test guards against a queue in which an aged renewal loses its place, which serves nodes at random: of 100 nodes
// at 600 ms, 77 waited for more than 50 s.
func TestNobodyIsForgotten(t *testing.T) {
	for _, tt := range []struct {
		nodes int
		trip  time.Duration
		most  time.Duration // between two writes for a node
	}{
		{100, 600 * time.Millisecond, 30 * time.Second}, {150, 600 * time.Millisecond, 30 * time.Second},
		{200, 300 * time.Millisecond, 30 * time.Second}, {500, 100 * time.Millisecond, 30 * time.Second},
		{500, 200 * time.Millisecond, 30 * time.Second}, {500, time.Second, 30 * time.Second}, // more than 32 at a time can do
	} {
		t.Run(fmt.Sprintf("%d nodes, %s", tt.nodes, tt.trip), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, uint64(tt.nodes)))
			q := newQueue("self", func(edge.NodeName, reason) {})
			written := map[edge.NodeName]time.Time{}
			now, revision := epoch, 0
			var todo agenda
			after := func(d time.Duration, what func()) { heap.Push(&todo, due{now.Add(d), what}) }
			var goOn func()
			goOn = func() {
				for {
					began := now
					s := q.next(now, func(int) bool { return true })
					if s == nil {
						return
					}
					after(tt.trip, func() {
						q.done(s.node, s.lease, now.Sub(began))
						if gap := now.Sub(written[s.node]); gap > tt.most {
							t.Errorf("%s went without for %s", s.node, gap)
						}
						written[s.node] = now
						goOn()
					})
				}
			}
			for i := range tt.nodes {
				node := fmt.Sprintf("n%d", i)
				written[edge.NodeName(node)] = epoch
				var beat func()
				beat = func() {
					revision++
					l := lease(node, revision, 0)
					l.Spec.RenewTime.Time = now
					q.change(0, l, now, now, true)
					goOn()
					after(10*time.Second+time.Duration(random.Int64N(int64(400*time.Millisecond))), beat)
				}
				after(time.Duration(random.Int64N(int64(10*time.Second))), beat)
			}
			for end := epoch.Add(5 * time.Minute); now.Before(end); {
				next := heap.Pop(&todo).(due)
				now = next.at
				next.what()
			}
			for node, at := range written {
				if now.Sub(at) > tt.most {
					t.Errorf("%s goes without since %s", node, now.Sub(at))
				}
			}
		})
	}
}

// TestSeveralSources: a hub that leads at several coordinators sees each renewal at each of them, and writes it once.
func TestSeveralSources(t *testing.T) {
	q := newQueue("self", func(edge.NodeName, reason) {})
	valid := map[int]bool{0: true, 1: true}
	is := func(what string, want int) {
		t.Helper()
		var got []string
		is := func(slot int) bool { return valid[slot] }
		for s := q.next(epoch, is); s != nil; s = q.next(epoch, is) {
			got = append(got, fmt.Sprint(s.slot, renewTime(s.lease).Sub(epoch)))
			q.done(s.node, nil, 0)
		}
		if len(got) != want {
			t.Errorf("%s: written: %v", what, got)
		}
	}
	comes := func(slot, revision, stamp int, options ...string) {
		q.change(slot, lease("a", revision, stamp, options...), epoch, epoch, true)
	}
	comes(0, 10, 1)
	is("a renewal at one", 1)
	comes(1, 77, 1)
	is("the same at the other", 0)
	comes(1, 78, 2)
	comes(0, 11, 2)
	is("the next, at the other first", 1)
	comes(1, 79, 3)
	comes(0, 12, 4)
	is("one that only one of them had, and the next", 1)
	comes(1, 80, 4)
	is("it comes late", 0)

	comes(0, 13, 5, "unmarked")
	if n := q.count(); n != 0 {
		t.Errorf("%d nodes are delegated: one has taken its mark off, and the other coordinator does not know", n)
	}
	comes(1, 81, 6)
	is("it is marked again", 1)
	comes(1, 82, 7)
	valid[1] = false
	is("the term there is over", 0)
	q.end(1)
	comes(0, 14, 8)
	is("the other's goes on", 1)
	comes(0, 15, 9)
	q.end(0)
	is("nothing is left", 0)
	if len(q.nodes) != 0 || q.writing != 0 {
		t.Errorf("%d nodes are known, %d written", len(q.nodes), q.writing)
	}
}
