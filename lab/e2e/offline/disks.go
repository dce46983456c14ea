package offline

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/load"
	"yurtcoordinator/lab/wire"
)

func crashAnywhere(t *kit.T) {
	const crashes = 200
	t.Pool.SettledAway()
	shared, kept := t.Record(kit.EndpointSlices), t.Record(kit.AllNodePools)
	spec := load.Spec{Services: 20, EndpointsEach: 10, Nodes: t.Pool.Nodes()}
	_, err := load.Services(t.Ctx, t.Cloud, spec)
	t.Must(err)
	var paths []string
	for i := range 5 {
		t.Cloud.MakePool(fmt.Sprintf("more-%d", i))
		paths = append(paths, fmt.Sprintf("%s/more-%d", kit.AllNodePools.Path, i))
	}
	t.Pool.Shared(30*time.Second, shared.Name)
	shared.Seat(t, t.Pool.Nodes())
	kept.SeatKept(t, t.Pool.Nodes())
	t.Hold(2*time.Second, "the hub's disk is written once a second")
	victim := t.Pool.Nodes()[2]
	before := map[string]int{}
	for _, a := range []*kit.Audience{shared, kept} {
		before[a.Resource] = len(t.Pool.ListsOverWAN(a.Resource))
	}

	changes := t.Churn(spec, 30)
	stop := t.Patching(paths...)
	t.Say("killing the hub of %s %d times", victim, crashes)
	for range crashes {
		alive := time.Duration(rand.Int64N(int64(700 * time.Millisecond)))
		if rand.IntN(20) == 0 {
			alive = 8 * time.Second // long enough to lead, or to follow the pool
		}
		select {
		case <-time.After(alive):
		case <-t.Ctx.Done():
			t.Fail("interrupted")
		}
		t.Must(t.Lab.Node(t.Ctx, lab.Restart, victim, lab.Hub))
	}
	t.Pool.Settled(60 * time.Second)
	for _, a := range []*kit.Audience{shared, kept} {
		a.CaughtUp(t, 60*time.Second)
	}
	t.Figure("changes", float64(t.End(changes)))
	stop()
	// A client that knows more than the disk of a killed hub waits until that is reached. One that had what this node
	// showed through another process is told to list again.
	allowed := map[string]int{victim: 2 * crashes}
	shared.Judge(t, allowed)
	kept.Judge(t, nil)
	for _, a := range []*kit.Audience{shared, kept} {
		for _, l := range t.Pool.NewLists(a.Resource, before[a.Resource]) {
			// The node's own NodePool never changes: a hub that never lives for a minute gets no bookmark for it, and
			// the cloud forgets the revision. Changing resources are resumed wherever they were.
			if !strings.Contains(l.URI, "fieldSelector=metadata.name") {
				t.Fail("another list of %s over the WAN: %+v", a.Name, l)
			}
		}
	}
	diskIsRight(t, victim)
}

// diskIsRight expects a hub that starts with nothing reachable to answer what it had.
func diskIsRight(t *kit.T, node string) {
	t.Cut(node)
	t.Must(t.Lab.Cut(t.Ctx, lab.LAN, node, wire.Drop))
	paths := []string{kit.EndpointSlices.Path, kit.AllNodePools.Path}
	t.Hold(3*time.Second, "the hub's disk is written once a second")
	var before []map[string]any
	for _, path := range paths {
		list, err := t.Node(node).List(path)
		t.Must(err)
		before = append(before, list)
	}
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, node, lab.Hub))
	for i, path := range paths {
		t.Eventually(20*time.Second, "after a restart GET "+path+" is answered from the disk as before", func() error {
			now, err := t.Node(node).List(path)
			if err != nil {
				return err
			}
			return kit.Differs(before[i], now)
		})
	}
	t.Must(t.Lab.Heal(t.Ctx, lab.LAN, node))
	t.Heal(node)
	t.Pool.Settled(60 * time.Second)
}

// filledDisk makes every hub store things on its disk, and returns the node to try it with.
func filledDisk(t *kit.T) string {
	t.Pool.SettledAway()
	_, err := load.Services(t.Ctx, t.Cloud, load.Spec{Services: 50, EndpointsEach: 20, Nodes: t.Pool.Nodes()})
	t.Must(err)
	t.Pool.Shared(30*time.Second, kit.EndpointSlices.Name)
	node := t.Pool.Nodes()[2]
	t.Eventually(20*time.Second, "the hub has everything", func() error { return rightOrRefused(t, node, false) })
	return node
}

// rightOrRefused compares what a hub lists with the cloud's content, which must be at rest. With refused, an answer of 503 is
// allowed too, because the hub may not know the content.
func rightOrRefused(t *kit.T, node string, refused bool) error {
	cloud, err := t.Lab.CloudConfig()
	t.Must(err)
	for _, path := range []string{kit.EndpointSlices.Path, kit.AllNodePools.Path} {
		want, err := t.List(cloud, path, "application/json")
		t.Must(err)
		has, err := t.Node(node).List(path)
		if err != nil {
			if refused && strings.Contains(err.Error(), "503") {
				continue
			}
			return err
		}
		delete(want, "metadata") // the revision of the list
		delete(has, "metadata")
		if err := kit.Differs(want, has); err != nil {
			return err
		}
	}
	return nil
}

func diskCorrupt(t *kit.T) {
	const rounds = 12
	node := filledDisk(t)
	answered := 0
	for round := range rounds {
		t.Hold(2*time.Second, "the hub's disk is written once a second")
		t.Cut(node)
		t.Must(t.Lab.Cut(t.Ctx, lab.LAN, node, wire.Drop))
		t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.Hub))
		flipBits(t, node, 1<<round)
		t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.Hub))
		t.Eventually(40*time.Second, "the hub serves", func() error {
			_, err := t.Node(node).List(kit.EndpointSlices.Path)
			if err != nil && !strings.Contains(err.Error(), "503") {
				return err
			}
			return nil
		})
		if err := rightOrRefused(t, node, true); err != nil {
			t.Fail("after %d flipped bits: %w", 1<<round, err)
		}
		if rightOrRefused(t, node, false) == nil {
			answered++
		}
		h := t.Pool.Hubs()[node]
		t.Say("%d flipped bits: the hub says %+v", 1<<round, h.Disk)
		t.Must(t.Lab.Heal(t.Ctx, lab.LAN, node))
		t.Heal(node)
		t.Eventually(60*time.Second, "the hub has everything again", func() error { return rightOrRefused(t, node, false) })
	}
	t.Figure("answered_in_full", float64(answered))
}

// flipBits changes some bits of each file of a hub's disk.
func flipBits(t *kit.T, node string, n int) {
	files, err := t.Lab.HubCache(node)
	t.Must(err)
	flipped := 0
	for _, path := range files {
		content, err := os.ReadFile(path)
		t.Must(err)
		if len(content) == 0 {
			continue
		}
		for range n {
			content[rand.IntN(len(content))] ^= 1 << rand.IntN(8)
		}
		t.Must(os.WriteFile(path, content, 0o600))
		flipped++
	}
	if flipped == 0 {
		t.Fail("the hub of %s has nothing on disk: %v", node, files)
	}
}

func diskFull(t *kit.T) {
	node := filledDisk(t)
	mount := func(argv ...string) {
		dir, err := t.Lab.HubCacheDir(node)
		t.Must(err)
		_, err = t.Lab.Output(t.Ctx, node, slices.Concat([]string{"mount"}, argv, []string{dir})...)
		t.Must(err)
	}
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.Hub))
	mount("-t", "tmpfs", "-o", "size=8k", "tmpfs")
	t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.Hub))
	t.Eventually(30*time.Second, "the hub serves everything, and says that its disk is full", func() error {
		if err := rightOrRefused(t, node, false); err != nil {
			return err
		}
		if h := t.Pool.Hubs()[node]; h.Disk == nil || h.Disk.Error == "" {
			return fmt.Errorf("its disk: %+v", h.Disk)
		}
		return nil
	})
	t.Say("the hub says: %s", t.Pool.Hubs()[node].Disk.Error)
	keptInMemory(t, node)
	mount("-o", "remount,size=64m")
	t.Eventually(90*time.Second, "with space again, the hub's disk is fine", func() error {
		if h := t.Pool.Hubs()[node]; h.Disk == nil || h.Disk.Error != "" || h.Disk.Bytes < 1000 {
			return fmt.Errorf("its disk: %+v", h.Disk)
		}
		return nil
	})
	t.Hold(65*time.Second, "what could not be written is tried again within a minute")
	diskIsRight(t, node)
}
