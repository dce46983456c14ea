package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/e2e/watchcheck"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/load"
	"yurtcoordinator/internal/lab/wire"
)

func deletedWhileCut(t *T) {
	node := t.follower(t.settledAway())
	pods := t.deployWeb()
	t.deployNeedy(node)
	others := on(pods, node)
	servers := t.processes(node, "httpd -f -p 80")

	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, node, wire.Drop))
	t.delegated(node, cut)
	t.say("deleting the Pod %s and its ConfigMap while %s is cut off", needyName, node)
	t.must(t.cloud.CoreV1().Pods(namespace).Delete(t.ctx, needyName, metav1.DeleteOptions{}))
	t.must(t.cloud.CoreV1().ConfigMaps(namespace).Delete(t.ctx, needyName, metav1.DeleteOptions{}))
	t.must(t.lab.Node(t.ctx, lab.Restart, node, lab.Hub))
	t.hold(t.cfg.Timing.Grace, "a grace period")
	if _, err := t.needyAnswers(node); err != nil {
		t.fail("nobody has told the node yet, and the Pod %s is gone: %w", needyName, err)
	}

	t.must(t.lab.Heal(t.ctx, lab.WAN, node))
	healed := time.Now()
	t.eventually(60*time.Second, "the Pod "+needyName+" is gone, in the cloud, at the hub and on the node", func() error {
		list, err := t.cloud.CoreV1().Pods(namespace).List(t.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + needyName})
		t.must(err)
		if len(list.Items) > 0 {
			return errors.New("it is in the cloud")
		}
		known, err := t.listFrom(node, "/api/v1/pods?fieldSelector=spec.nodeName%3D"+node)
		if err != nil {
			return err
		}
		if strings.Contains(fmt.Sprint(known), needyName) {
			return errors.New("the hub still has it")
		}
		if left := t.processes(node, fmt.Sprintf("httpd -f -p 127.0.0.1:%d", needyPort)); len(left) > 0 {
			return fmt.Errorf("it still runs: %v", left)
		}
		return nil
	})
	t.figure("healed_to_deleted_s", time.Since(healed).Seconds())
	t.must(t.seen.untouched(others, cut))
	if now := t.processes(node, "httpd -f -p 80"); !sameKeys(now, servers) {
		t.fail("containers were restarted: %v, before %v", now, servers)
	}
}

// asKubelet is a User-Agent whose reads hubs keep.
const asKubelet = "kubelet/scenario"

// seatKept seats, on each node, a client whose reads its hub keeps.
func (a *audience) seatKept(t *T, nodes []string) {
	for _, node := range nodes {
		through, err := t.lab.HubConfig(node)
		t.must(err)
		config := t.watcher(through, a.path)
		config.Agent = asKubelet
		recorder, err := watchcheck.New(config)
		t.must(err)
		a.seats = append(a.seats, seat{node, "kept", recorder})
		t.background.Go(func() { _ = recorder.Run(t.ctx) })
	}
	a.caughtUp(t, 60*time.Second)
}

func crashAnywhere(t *T) {
	const crashes = 200
	t.settledAway()
	shared, kept := t.record(endpointSlices), t.record(allNodePools)
	spec := load.Spec{Services: 20, EndpointsEach: 10, Nodes: t.nodeNames()}
	_, err := load.Services(t.ctx, t.cloud, spec)
	t.must(err)
	var paths []string
	for i := range 5 {
		t.makePool(fmt.Sprintf("more-%d", i))
		paths = append(paths, fmt.Sprintf("%s/more-%d", allNodePools.path, i))
	}
	t.shared(30*time.Second, shared.name)
	shared.seat(t, t.nodeNames())
	kept.seatKept(t, t.nodeNames())
	t.hold(2*time.Second, "the hub's disk is written once a second")
	victim := t.nodeNames()[2]
	before := map[string]int{}
	for _, a := range []*audience{shared, kept} {
		before[a.resource] = len(t.listsOverWAN(a.resource))
	}

	changes := t.churn(spec, 30)
	stop := t.patching(paths...)
	t.say("killing the hub of %s %d times", victim, crashes)
	for range crashes {
		alive := time.Duration(rand.Int64N(int64(700 * time.Millisecond)))
		if rand.IntN(20) == 0 {
			alive = 8 * time.Second // long enough to lead, or to follow the pool
		}
		select {
		case <-time.After(alive):
		case <-t.ctx.Done():
			t.fail("interrupted")
		}
		t.must(t.lab.Node(t.ctx, lab.Restart, victim, lab.Hub))
	}
	t.settled(60 * time.Second)
	for _, a := range []*audience{shared, kept} {
		a.caughtUp(t, 60*time.Second)
	}
	t.figure("changes", float64(t.end(changes)))
	stop()
	// A client that knows more than the disk of a hub that was killed waits until it is reached; one that had what this
	// node showed through another process is told to list again.
	allowed := map[string]int{victim: 2 * crashes}
	shared.judge(t, allowed)
	kept.judge(t, nil)
	for _, a := range []*audience{shared, kept} {
		for _, l := range t.newLists(a.resource, before[a.resource]) {
			// The node's own NodePool, which nothing changes: a hub that never lives for a minute is told no bookmark of it, and
			// the cloud forgets the revision. What changes is resumed wherever it was.
			if !strings.Contains(l.URI, "fieldSelector=metadata.name") {
				t.fail("another list of %s over the WAN: %+v", a.name, l)
			}
		}
	}
	t.diskIsRight(victim)
}

// diskIsRight expects a hub that starts with nothing at hand to answer what it had.
func (t *T) diskIsRight(node string) {
	t.must(t.lab.Cut(t.ctx, lab.WAN, node, wire.Drop))
	t.must(t.lab.Cut(t.ctx, lab.LAN, node, wire.Drop))
	paths := []string{endpointSlices.path, allNodePools.path}
	t.hold(3*time.Second, "the hub's disk is written once a second")
	var before []map[string]any
	for _, path := range paths {
		list, err := t.listFrom(node, path)
		t.must(err)
		before = append(before, list)
	}
	t.must(t.lab.Node(t.ctx, lab.Restart, node, lab.Hub))
	for i, path := range paths {
		t.eventually(20*time.Second, "after a restart GET "+path+" is answered from the disk as before", func() error {
			now, err := t.listFrom(node, path)
			if err != nil {
				return err
			}
			return differs(before[i], now)
		})
	}
	t.must(t.lab.Heal(t.ctx, lab.LAN, node))
	t.must(t.lab.Heal(t.ctx, lab.WAN, node))
	t.settled(60 * time.Second)
}

// filledDisk has things on the disk of every hub, and returns the node to try it with.
func (t *T) filledDisk() string {
	t.settledAway()
	_, err := load.Services(t.ctx, t.cloud, load.Spec{Services: 50, EndpointsEach: 20, Nodes: t.nodeNames()})
	t.must(err)
	t.shared(30*time.Second, endpointSlices.name)
	node := t.nodeNames()[2]
	t.eventually(20*time.Second, "the hub has everything", func() error { return t.rightOrRefused(node, false) })
	return node
}

// rightOrRefused compares what a hub lists with the cloud's content, which must be at rest; 503 will do where it may be
// that it does not know.
func (t *T) rightOrRefused(node string, refused bool) error {
	cloud, err := t.lab.CloudConfig()
	t.must(err)
	for _, path := range []string{endpointSlices.path, allNodePools.path} {
		want, err := t.list(cloud, path, "application/json")
		t.must(err)
		has, err := t.listFrom(node, path)
		if err != nil {
			if refused && strings.Contains(err.Error(), "503") {
				continue
			}
			return err
		}
		delete(want, "metadata") // the revision of the list
		delete(has, "metadata")
		if err := differs(want, has); err != nil {
			return err
		}
	}
	return nil
}

func diskCorrupt(t *T) {
	const rounds = 12
	node := t.filledDisk()
	answered := 0
	for round := range rounds {
		t.hold(2*time.Second, "the hub's disk is written once a second")
		t.must(t.lab.Cut(t.ctx, lab.WAN, node, wire.Drop))
		t.must(t.lab.Cut(t.ctx, lab.LAN, node, wire.Drop))
		t.must(t.lab.Node(t.ctx, lab.Kill, node, lab.Hub))
		t.flipBits(node, 1<<round)
		t.must(t.lab.Node(t.ctx, lab.Start, node, lab.Hub))
		t.eventually(40*time.Second, "the hub serves", func() error {
			_, err := t.listFrom(node, endpointSlices.path)
			if err != nil && !strings.Contains(err.Error(), "503") {
				return err
			}
			return nil
		})
		if err := t.rightOrRefused(node, true); err != nil {
			t.fail("after %d flipped bits: %w", 1<<round, err)
		}
		if t.rightOrRefused(node, false) == nil {
			answered++
		}
		h := t.hubs()[node]
		t.say("%d flipped bits: the hub says %+v", 1<<round, h.Disk)
		t.must(t.lab.Heal(t.ctx, lab.LAN, node))
		t.must(t.lab.Heal(t.ctx, lab.WAN, node))
		t.eventually(60*time.Second, "the hub has everything again", func() error { return t.rightOrRefused(node, false) })
	}
	t.figure("answered_in_full", float64(answered))
}

// flipBits changes some bits of each file of a hub's disk.
func (t *T) flipBits(node string, n int) {
	files, err := t.lab.HubCache(node)
	t.must(err)
	flipped := 0
	for _, path := range files {
		content, err := os.ReadFile(path)
		t.must(err)
		if len(content) == 0 || strings.HasSuffix(path, ".corrupt") {
			continue
		}
		for range n {
			content[rand.IntN(len(content))] ^= 1 << rand.IntN(8)
		}
		t.must(os.WriteFile(path, content, 0o600))
		flipped++
	}
	if flipped == 0 {
		t.fail("the hub of %s has nothing on disk: %v", node, files)
	}
}

func diskFull(t *T) {
	node := t.filledDisk()
	mount := func(argv ...string) {
		dir, err := t.lab.HubCacheDir(node)
		t.must(err)
		_, err = t.lab.Output(t.ctx, node, slices.Concat([]string{"mount"}, argv, []string{dir})...)
		t.must(err)
	}
	t.must(t.lab.Node(t.ctx, lab.Kill, node, lab.Hub))
	mount("-t", "tmpfs", "-o", "size=64k", "tmpfs")
	t.must(t.lab.Node(t.ctx, lab.Start, node, lab.Hub))
	t.eventually(30*time.Second, "the hub serves everything, and says that its disk is full", func() error {
		if err := t.rightOrRefused(node, false); err != nil {
			return err
		}
		if h := t.hubs()[node]; h.Disk == nil || h.Disk.Error == "" {
			return fmt.Errorf("its disk: %+v", h.Disk)
		}
		return nil
	})
	t.say("the hub says: %s", t.hubs()[node].Disk.Error)
	t.keptInMemory(node)
	mount("-o", "remount,size=64m")
	t.eventually(90*time.Second, "with space again, the hub's disk is fine", func() error {
		if h := t.hubs()[node]; h.Disk == nil || h.Disk.Error != "" || h.Disk.Bytes < 1000 {
			return fmt.Errorf("its disk: %+v", h.Disk)
		}
		return nil
	})
	t.hold(65*time.Second, "what could not be written is tried again within a minute")
	t.diskIsRight(node)
}
