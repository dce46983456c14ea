package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
)

// anHour is what hubs without a line do in an hour: each dials once a second, as upstream's detour does.
type anHour struct {
	hubs  int
	asked int64        // questions to the coordinator
	tried atomic.Int64 // connections to neighbours
}

func (h *anHour) pass(t *testing.T, members map[edge.NodeName]string) {
	ca := newAuthority(t)
	coordinator := pool(members)
	ctx, over := context.WithTimeout(t.Context(), time.Hour)
	defer over()
	for range h.hubs {
		c := ca.asks(t, coordinator)
		c.cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
			h.tried.Add(1)
			return nil, errors.New("refused")
		}
		go func() {
			for run.Pause(ctx, 900*time.Millisecond) == nil {
				if _, err := c.DialContext(ctx, "tcp", "10.0.0.1:6443"); err == nil {
					t.Error("somebody relays")
				}
			}
		}()
	}
	<-ctx.Done()
	synctest.Wait()
	h.asked = coordinator.asked.Load()
}

// TestAnHourWithoutALine: the cost of a cut for the coordinator and the neighbours does not grow with the pool. A pause is 15
// to 30 s, and a try comes 0 to 0.9 s after it: 3600/(22.5+0.45) = 157 in an hour, and 5 before that. Each neighbour is tried
// as often.
func TestAnHourWithoutALine(t *testing.T) {
	const hubs, most = 20, 170
	everybody := map[edge.NodeName]string{}
	for _, n := range []edge.NodeName{"n2", "n3", "n4", "n5", "n6"} {
		everybody[n] = ""
	}
	t.Run("nobody relays", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := anHour{hubs: hubs}
			h.pass(t, everybody)
			t.Logf("%d questions of %d hubs", h.asked, hubs)
			if got := h.asked; got > hubs*most || h.tried.Load() != 0 {
				t.Errorf("%d questions, want at most %d; %d neighbours were tried, want none", got, hubs*most, h.tried.Load())
			}
		})
	})
	t.Run("one relays, and refuses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			everybody["n2"] = "10.0.0.2:10269"
			h := anHour{hubs: hubs}
			h.pass(t, everybody)
			t.Logf("%d questions of %d hubs, %d tries", h.asked, hubs, h.tried.Load())
			if asked, tried := h.asked, h.tried.Load(); asked > hubs*most || tried > hubs*most || tried < hubs*100 {
				t.Errorf("%d questions and %d tries, want at most %d each", asked, tried, hubs*most)
			}
		})
	})
}

// TestKnownBeforeNeeded: a hub whose line is up asks once a minute who relays, and keeps the answer. If the coordinator fails,
// and then the line, the hub is still relayed, even after a restart.
func TestKnownBeforeNeeded(t *testing.T) {
	ca, s := newAuthority(t), cloud(t)
	m := ca.relays(t, "n2", generous(), s.Listener.Addr().String())
	coordinator := pool(map[edge.NodeName]string{"n2": m.at, "n3": ""})
	c := ca.asks(t, coordinator)
	synctest.Test(t, func(t *testing.T) {
		ctx, over := context.WithTimeout(t.Context(), 10*time.Minute)
		defer over()
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
		if n := coordinator.asked.Load(); n < 9 || n > 13 {
			t.Errorf("%d questions in ten minutes, want one a minute", n)
		}
	})
	coordinator.fails(errors.New("gone"))
	if text, err := through(t, c, s, ""); text != "cloud" || err != nil {
		t.Errorf("%q, %v, though a neighbour was known", text, err)
	}
	restarted := ca.asks(t, coordinator)
	if _, err := through(t, restarted, s, ""); !errors.Is(err, ErrNobody) {
		t.Errorf("%v, though nothing was ever known", err)
	}
	restarted = ca.asks(t, coordinator)
	restarted.cfg.Disk = c.cfg.Disk
	if text, err := through(t, restarted, s, ""); text != "cloud" || err != nil || restarted.By() != "n2" {
		t.Errorf("restarted: %q, %v, though a neighbour is on the disk", text, err)
	}
	moved := ca.asks(t, coordinator)
	moved.cfg.Disk, moved.cfg.Pool = c.cfg.Disk, "p2"
	if _, err := through(t, moved, s, ""); !errors.Is(err, ErrNobody) {
		t.Errorf("%v, though the disk has another pool's", err)
	}
}

// memory is a disk in memory.
type memory struct {
	mu     sync.Mutex
	blobs  map[string][]byte
	writes int
	fails  error
}

func (m *memory) PutBlob(key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails == nil {
		m.blobs[key] = value
		m.writes++
	}
	return m.fails
}

func (m *memory) Blob(key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if value, ok := m.blobs[key]; ok {
		return value, nil
	}
	return nil, errors.New("there is none")
}

// TestWhatIsKept: the disk has whoever was named last, and is written when that changes.
func TestWhatIsKept(t *testing.T) {
	disk := &memory{blobs: map[string][]byte{}}
	asks := func() *Client {
		c := newAuthority(t).asks(t, pool(map[edge.NodeName]string{"n2": "10.0.0.2:10269"}))
		c.cfg.Disk = disk
		return c
	}
	n := func(name edge.NodeName) edge.Neighbour {
		return edge.Neighbour{Name: name, At: netip.MustParseAddrPort("10.0.0.2:10269")}
	}
	c := asks()
	var before []edge.Neighbour
	hears := func(writes int, want []edge.Neighbour, all ...edge.Neighbour) {
		t.Helper()
		c.search.answered(all, nil)
		before = c.keep(t.Context(), before)
		restarted := asks()
		restarted.recall()
		if got := restarted.search.candidates(time.Now()); !slices.Equal(got, want) || disk.writes != writes {
			t.Errorf("%v are kept after %d writes, want %v after %d", got, disk.writes, want, writes)
		}
	}
	hears(0, nil)
	hears(1, []edge.Neighbour{n("n2"), n("n3")}, n("n2"), n("n3"))
	hears(1, []edge.Neighbour{n("n2"), n("n3")}, n("n2"), n("n3"))
	hears(2, []edge.Neighbour{n("n3")}, n("n3"))
	disk.fails = errors.New("the disk is full")
	hears(2, []edge.Neighbour{n("n3")}, n("n2"))
	disk.fails = nil
	hears(3, []edge.Neighbour{n("n2")}, n("n2"))
	hears(4, []edge.Neighbour{n("n3")}, n("n3"))
	hears(4, []edge.Neighbour{n("n3")}) // of nobody, nothing is to be remembered
	c.search.answered([]edge.Neighbour{n("n3")}, nil)
	c.search.answered(nil, errors.New("the coordinator is gone"))
	if all := c.search.candidates(time.Now()); len(all) != 1 || all[0] != n("n3") {
		t.Errorf("%v are tried while nothing is said, want n3", all)
	}
	var many []edge.Neighbour
	for i := range 2 * edge.MostRelaying {
		many = append(many, n(edge.NodeName(fmt.Sprintf("m%d", i))))
	}
	hears(5, many[:edge.MostRelaying], many...)
	for _, content := range []string{"", "{", `[{"name":"n2","at":"nowhere"}]`} {
		disk.blobs[blobOf("p1")] = []byte(content)
		broken := asks()
		broken.recall()
		if all := broken.search.candidates(time.Now()); len(all) > 0 {
			t.Errorf("%q says %v", content, all)
		}
	}
}
