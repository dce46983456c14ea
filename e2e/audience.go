package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"yurtcoordinator/e2e/watchcheck"
	"yurtcoordinator/internal/lab"
)

// collection is what is watched.
type collection struct {
	// name is as hubs say it, resource as the audit log does.
	name, resource, path string
	protobuf             bool
}

// endpointSlices are what nodes read most.
var endpointSlices = collection{
	"endpointslices.discovery.k8s.io", "endpointslices", "/apis/discovery.k8s.io/v1/endpointslices", true,
}

// audience is who watches a collection while things are broken: the truth at the cloud, and clients on nodes.
type audience struct {
	collection
	truth *watchcheck.Truth
	seats []seat
}

// seat is one client of a node's hub.
type seat struct {
	node, name string
	recorder   *watchcheck.Recorder
}

// watcher returns a way to record a collection.
func (t *T) watcher(access *rest.Config, path string) watchcheck.Config {
	access = rest.CopyConfig(access)
	access.Timeout = 0
	client, err := rest.HTTPClientFor(access)
	t.must(err)
	return watchcheck.Config{Client: client, URL: strings.TrimSuffix(access.Host, "/") + path}
}

// record begins to record the truth about a collection, at the cloud and without any hub. It must begin before what the
// audience is to be judged by.
func (t *T) record(collection collection) *audience {
	access, err := t.lab.CloudConfig()
	t.must(err)
	config := t.watcher(access, collection.path)
	config.Protobuf = collection.protobuf
	truth, err := watchcheck.NewTruth(config)
	t.must(err)
	a := &audience{collection: collection, truth: truth}
	t.background.Go(func() { _ = truth.Run(t.ctx) })
	t.eventually(10*time.Second, "the truth about "+collection.name+" is being recorded", func() error {
		if truth.Position() == 0 {
			return errors.New("it has not been listed")
		}
		return nil
	})
	return a
}

// seat seats clients on each node: one that lists and watches, in protobuf if there is such a thing, as kube-proxy does,
// and one that begins with a watch and reads JSON, as kubectl may.
func (a *audience) seat(t *T, nodes []string) {
	began := a.truth.Position()
	t.eventually(60*time.Second, "all hubs have "+a.name+" of the truth's time", func() error {
		for node, h := range t.hubs() {
			if r, ok := h.Replica(a.name); slices.Contains(nodes, node) && (!ok || r.Revision < began) {
				return fmt.Errorf("%s has %+v, want at least revision %d", node, r, began)
			}
		}
		return nil
	})
	for _, node := range nodes {
		through, err := t.lab.HubConfig(node)
		t.must(err)
		for _, kind := range []struct {
			name                string
			protobuf, watchList bool
		}{{"listing", a.protobuf, false}, {"JSON", false, true}} {
			config := t.watcher(through, a.path)
			config.Protobuf, config.WatchList = kind.protobuf, kind.watchList
			recorder, err := watchcheck.New(config)
			t.must(err)
			a.seats = append(a.seats, seat{node, kind.name, recorder})
			t.background.Go(func() { _ = recorder.Run(t.ctx) })
		}
	}
	a.caughtUp(t, 60*time.Second)
}

// told is the revision of the last thing that the truth was told, bookmarks aside: those come once a minute, to everyone
// at another moment.
func (a *audience) told() uint64 {
	for _, o := range slices.Backward(a.truth.History()) {
		if o.Kind == watchcheck.Event || o.Kind == watchcheck.Listed {
			return o.Revision
		}
	}
	return 0
}

// caughtUp waits until all clients know what the truth knows now.
func (a *audience) caughtUp(t *T, within time.Duration) {
	reached := a.told()
	ctx, cancel := context.WithTimeout(t.ctx, within)
	defer cancel()
	for _, s := range a.seats {
		if err := s.recorder.Wait(ctx, reached); err != nil {
			h := s.recorder.History()
			last := "nothing"
			if len(h) > 0 {
				last = h[len(h)-1].String()
			}
			t.fail("%s: the %s client on %s is at revision %d, not %d, after %v; the last that it saw: %s",
				a.name, s.name, s.node, s.recorder.Position(), reached, within, last)
		}
	}
}

// judge holds what every client was told against what happened. Nothing must be written any more. The clients on a node
// may have been told 410 as often as expired says for it.
func (a *audience) judge(t *T, expired map[string]int) {
	a.caughtUp(t, 60*time.Second)
	ctx, cancel := context.WithTimeout(t.ctx, 60*time.Second)
	defer cancel()
	facts, err := a.truth.Facts(ctx)
	t.must(err)
	var worst time.Duration
	for _, s := range a.seats {
		report := watchcheck.Check(facts, s.recorder.History(), watchcheck.Bounds{Expired: expired[s.node]})
		t.say("%s, the %s client on %s: %v", a.name, s.name, s.node, report)
		if err := report.Err(); err != nil {
			t.fail("%s: the %s client on %s: %w", a.name, s.name, s.node, err)
		}
		worst = max(worst, report.P50)
	}
	t.figure("lateness_p50_ms", float64(worst.Microseconds())/1000)
}

// listsOverWAN returns how often the first pool's nodes have had the cloud send all of a resource since the start of the lab.
func (t *T) listsOverWAN(resource string) []lab.FullRead { return t.listsBy(t.nodeNames(), resource) }

// listsBy is listsOverWAN of any nodes.
func (t *T) listsBy(ours []string, resource string) []lab.FullRead {
	all, err := t.lab.CloudLists(t.ctx, resource)
	t.must(err)
	return slices.DeleteFunc(all, func(l lab.FullRead) bool {
		node, isNode := strings.CutPrefix(l.User, "system:node:")
		return !isNode || !slices.Contains(ours, node)
	})
}

// firstLists is how many lists over the WAN a resource had cost when the pool was complete: one; in an installed lab, where
// hubs are there before their coordinator, those until all had from it what they share.
func (t *T) firstLists(resource string) int {
	if !t.cfg.Installed {
		return 1
	}
	return max(1, t.alone[resource])
}

// listedOnce expects no list of the collection over the WAN after the first.
func (a *audience) listedOnce(t *T) {
	if lists := t.listsOverWAN(a.resource); len(lists) != t.firstLists(a.resource) {
		t.fail("%s were listed over the WAN %d times, want %d: %+v", a.name, len(lists), t.firstLists(a.resource), lists)
	}
}

// shared waits until each hub has a resource from where it should: the leader from the cloud, the others from the
// coordinator.
func (t *T) shared(within time.Duration, resource string) {
	short, _, _ := strings.Cut(resource, ".")
	_, noted := t.alone[short]
	first := t.cfg.Installed && !noted
	if first { // a hub goes back to no earlier state, and a quiet resource goes on once a minute
		within += 90 * time.Second
	}
	t.eventually(within, "the leader reads "+resource+" from the cloud, the others from the coordinator", func() error {
		for node, h := range t.hubs() {
			want := "coordinator"
			if h.Role == roleLeader {
				want = "cloud"
			}
			r, ok := h.Replica(resource)
			if !ok || r.Source != want || r.Revision == 0 {
				return fmt.Errorf("%s (%s) has %+v", node, h.Role, r)
			}
		}
		return nil
	})
	if first {
		if t.alone == nil {
			t.alone = map[string]int{}
		}
		t.alone[short] = len(t.listsOverWAN(short))
	}
}
