package openings

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
)

var start = time.Date(2030, 1, 2, 3, 4, 0, 0, time.UTC)

// world drives a ledger, with time in seconds since start. Its coordinator's beginning is told.
type world struct {
	*ledger
	open map[string]func(now time.Time)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{newLedger(start), map[string]func(time.Time){}}
	if got := w.takes(0, 16); got != "1 began x1 0-0" {
		t.Fatalf("first it hands out %q", got)
	}
	if n := w.told([]uint64{1}); n != 1 {
		t.Fatalf("%d were told", n)
	}
	return w
}

func at(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }

func (w *world) opens(second int, user, pod string) {
	now := at(second)
	e := w.add(edge.Attempt{Act: edge.ActOpened, User: user, Pod: pod}, now, now)
	w.open[user+pod] = func(end time.Time) { w.end(e, now, end) }
}

func (w *world) closes(second int, user, pod string) { w.open[user+pod](at(second)) }

func (w *world) refuses(second int, user, pod string) {
	w.add(edge.Attempt{Act: edge.ActRefused, User: user, Pod: pod}, at(second), at(second))
}

// takes returns what is handed out, as "number act user/pod xcount first-last".
func (w *world) takes(second, n int) string {
	var all []string
	for _, o := range w.take(n, at(second)) {
		text := fmt.Sprintf("%d %s", o.Number, o.Act)
		if o.User != "" {
			text += " " + o.User
		}
		if o.Pod != "" {
			text += "/" + o.Pod
		}
		text += fmt.Sprintf(" x%d %.0f-%.0f", o.Count, o.First.Sub(start).Seconds(), o.Last.Sub(start).Seconds())
		if o.End != nil {
			text += fmt.Sprintf(" over %d at %.0f", o.Over, o.End.Sub(start).Seconds())
		}
		if o.Of != 0 {
			text += fmt.Sprintf(" of %d", o.Of)
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

func TestLedger(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(w *world)
		at   int
		want string
	}{
		{"nothing", func(*world) {}, 60, ""},
		{"one that ended is told at once", func(w *world) {
			w.opens(1, "ana", "till")
			w.closes(3, "ana", "till")
		}, 3, "2 opened ana/till x1 1-1 over 1 at 3"},
		{"one that lasts waits", func(w *world) { w.opens(1, "ana", "till") }, 10, ""},
		{"and not for long", func(w *world) { w.opens(1, "ana", "till") }, 11, "2 opened ana/till x1 1-1"},
		{"equal ones are one", func(w *world) {
			w.opens(1, "ana", "till")
			w.closes(2, "ana", "till")
			w.opens(5, "ana", "till")
		}, 11, "2 opened ana/till x2 1-5 over 1 at 2"},
		{"others are others", func(w *world) {
			w.opens(1, "ana", "till")
			w.opens(2, "bob", "till")
			w.opens(3, "ana", "door")
		}, 13, "2 opened ana/till x1 1-1; 3 opened bob/till x1 2-2; 4 opened ana/door x1 3-3"},
		{"refusals wait for more, and come last", func(w *world) {
			w.refuses(1, "eve", "till")
			w.refuses(9, "eve", "till")
			w.opens(9, "ana", "till")
			w.closes(9, "ana", "till")
		}, 11, "3 opened ana/till x1 9-9 over 1 at 9; 2 refused eve/till x2 1-9"},
		{"the end of one that was told", func(w *world) {
			w.opens(1, "ana", "till")
			w.takes(20, 16)
			w.told([]uint64{2})
			w.closes(30, "ana", "till")
		}, 30, "3 ended ana/till x1 1-30 of 2"},
		{"the end of one that was handed out only", func(w *world) {
			w.opens(1, "ana", "till")
			w.takes(20, 16)
			w.closes(30, "ana", "till")
		}, 30, "2 opened ana/till x1 1-1; 3 ended ana/till x1 1-30 of 2"},
		{"what was handed out does not change", func(w *world) {
			w.opens(1, "ana", "till")
			w.takes(20, 16)
			w.opens(21, "ana", "till")
		}, 40, "2 opened ana/till x1 1-1; 3 opened ana/till x1 21-21"},
		{"a new leader hears again what was not said to be told", func(w *world) {
			w.refuses(1, "eve", "till")
			w.takes(20, 16)
			w.opens(20, "ana", "till")
			w.closes(20, "ana", "till")
		}, 20, "2 refused eve/till x1 1-1; 3 opened ana/till x1 20-20 over 1 at 20"},
		{"what was not handed out can't be told", func(w *world) {
			w.opens(1, "ana", "till")
			w.told([]uint64{2, 3, 77})
		}, 11, "2 opened ana/till x1 1-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.do(w)
			if got := w.takes(tc.at, 16); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestWhatIsHandedOutIsBounded(t *testing.T) {
	w := newWorld(t)
	for i := range 40 {
		w.refuses(1, "eve", fmt.Sprint(i))
	}
	var numbers []uint64
	for range 2 {
		numbers = numbers[:0]
		for _, o := range w.take(16, at(20)) {
			numbers = append(numbers, o.Number)
		}
		if len(numbers) != 16 || numbers[0] != 2 || numbers[15] != 17 {
			t.Fatalf("handed out: %v", numbers)
		}
	}
	w.told(numbers)
	if got := w.take(16, at(20)); len(got) != 16 || got[0].Number != 18 {
		t.Errorf("then: %+v", got)
	}
}

// TestAFlood: who makes more different attempts than there is room for is told with his name and their number. Whatever came
// before stays, and refusals take no place of what is opened.
func TestAFlood(t *testing.T) {
	w := newWorld(t)
	w.opens(1, "ana", "first")
	for i := range 10_000 {
		w.opens(2, "eve", fmt.Sprint(i))
		w.refuses(2, "mal", fmt.Sprint(i))
	}
	for i := range 1000 {
		w.refuses(3, fmt.Sprint("many", i), "door")
	}
	w.opens(4, "ana", "last")
	if n, most := len(w.entries), 2*(maxOfAct+maxUsersOfAct+1); n > most {
		t.Errorf("%d are kept, want %d at most", n, most)
	}
	counts, kinds := map[string]int{}, map[string]int{}
	for len(w.entries) > 0 {
		var numbers []uint64
		for _, o := range w.take(16, at(60)) {
			numbers = append(numbers, o.Number)
			who := string(o.Act) + " " + o.User
			if strings.HasPrefix(o.User, "many") {
				who = string(o.Act) + " many"
			}
			counts[who] += o.Count
			kinds[who]++
			if o.User == "ana" && o.Pod == "" {
				kinds["ana without a Pod"]++
			}
		}
		if len(numbers) == 0 {
			t.Fatal("the rest is never handed out")
		}
		w.told(numbers)
	}
	for who, want := range map[string]int{
		"opened ana": 2, "opened eve": 10_000, "refused mal": 10_000,
		"refused many": maxUsersOfAct - 1, "refused ": 1000 - (maxUsersOfAct - 1),
	} {
		if counts[who] != want {
			t.Errorf("%s: %d, want %d", who, counts[who], want)
		}
	}
	if kinds["ana without a Pod"] != 1 || kinds["opened eve"] != maxOfAct || kinds["refused "] != 1 {
		t.Errorf("%v", kinds)
	}
	if len(w.growing) != 0 {
		t.Errorf("%d grow on", len(w.growing))
	}
}

// TestEachAttemptCountsOnce whatever the order of openings, ends, answers and leaders' words is.
func TestEachAttemptCountsOnce(t *testing.T) {
	w := newWorld(t)
	told := map[uint64]edge.Opening{}
	opened, refused := 0, 0
	for second := range 600 {
		user, pod := fmt.Sprint("u", second%7), fmt.Sprint("p", second%5)
		if end := w.open[user+pod]; end != nil {
			end(at(second))
			delete(w.open, user+pod)
		} else {
			w.opens(second, user, pod)
			opened++
		}
		w.refuses(second, user, pod)
		refused++
		if second%3 != 0 {
			continue
		}
		var numbers []uint64
		for _, o := range w.take(4, at(second)) {
			if before, again := told[o.Number]; again && before != o {
				t.Fatalf("told %+v, now %+v", before, o)
			}
			told[o.Number] = o
			numbers = append(numbers, o.Number)
		}
		if second%2 == 0 { // otherwise the leader is lost before it says so
			w.told(numbers)
		}
	}
	for len(w.entries) > 0 {
		var numbers []uint64
		for _, o := range w.take(16, at(1000)) {
			told[o.Number] = o
			numbers = append(numbers, o.Number)
		}
		w.told(numbers)
	}
	sums, over := map[edge.Act]int{}, 0
	for _, o := range told {
		sums[o.Act] += o.Count
		over += o.Over
	}
	numbers := slices.Sorted(func(yield func(uint64) bool) {
		for n := range told {
			if !yield(n) {
				return
			}
		}
	})
	if sums[edge.ActOpened] != opened || sums[edge.ActRefused] != refused || over+sums[edge.ActEnded] != opened-len(w.open) {
		t.Errorf("%v, %d over; want %d opened, %d refused, %d ended", sums, over, opened, refused, opened-len(w.open))
	}
	if numbers[0] != 2 || numbers[len(numbers)-1] != uint64(len(numbers)+1) {
		t.Errorf("numbers %d to %d, of %d openings: some are missing", numbers[0], numbers[len(numbers)-1], len(numbers))
	}
}
