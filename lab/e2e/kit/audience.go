package kit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/watchcheck"
)

// Collection is what an audience watches.
type Collection struct {
	// Name is the name that hubs use, Resource the name in the audit log.
	Name, Resource, Path string
	Protobuf             bool
}

// EndpointSlices are what nodes read most.
var EndpointSlices = Collection{
	"endpointslices.discovery.k8s.io", "endpointslices", "/apis/discovery.k8s.io/v1/endpointslices", true,
}

// AllServices and AllNodePools are what a pool may share besides endpoints.
var (
	AllServices  = Collection{"services", "services", "/api/v1/services", true}
	AllNodePools = Collection{
		"nodepools.apps.openyurt.io", "nodepools", "/apis/apps.openyurt.io/v1beta2/nodepools", false,
	}
)

// Audience is all that watch a collection while things break: the truth at the cloud, and clients on nodes.
type Audience struct {
	Collection
	Truth *watchcheck.Truth
	Seats []Seat
	stop  func() // ends the recording of the truth
}

// Seat is one client of a node's hub.
type Seat struct {
	Node, Name string
	Recorder   *watchcheck.Recorder
}

// Watcher returns a configuration that records a collection.
func (t *T) Watcher(access *rest.Config, path string) watchcheck.Config {
	access = rest.CopyConfig(access)
	access.Timeout = 0
	client, err := rest.HTTPClientFor(access)
	t.Must(err)
	return watchcheck.Config{Client: client, URL: strings.TrimSuffix(access.Host, "/") + path}
}

// Record begins to record the truth about a collection, at the cloud and without any hub. Call it before everything that the
// audience is to be judged by.
func (t *T) Record(collection Collection) *Audience {
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	config := t.Watcher(access, collection.Path)
	config.Protobuf = collection.Protobuf
	truth, err := watchcheck.NewTruth(config)
	t.Must(err)
	a := &Audience{Collection: collection, Truth: truth}
	a.record(t)
	t.Eventually(30*time.Second, "the truth about "+collection.Name+" is being recorded", func() error {
		if truth.Position() == 0 {
			return errors.New("it has not been listed")
		}
		return nil
	})
	return a
}

// record records the truth until stop is called, or the scenario ends.
func (a *Audience) record(t *T) {
	ctx, cancel := context.WithCancel(t.Ctx)
	ended := make(chan struct{})
	t.Background.Go(func() {
		defer close(ended)
		_ = a.Truth.Run(ctx)
	})
	a.stop = func() {
		cancel()
		<-ended
	}
}

// Pause ends the recording of the truth once that has everything. Nothing may be written from before it until Resume has
// returned.
func (a *Audience) Pause(t *T) {
	ctx, cancel := context.WithTimeout(t.Ctx, 60*time.Second)
	defer cancel()
	_, err := a.Truth.Facts(ctx)
	t.Must(err)
	a.stop()
}

// Resume goes on with the recording, when the cloud tells the truth again. After a restart of kube-apiserver that begins with a
// 410, which comes in a watch, and a list.
func (a *Audience) Resume(t *T) {
	a.record(t)
	t.Eventually(60*time.Second, "the truth about "+a.Name+" is being recorded again", func() error {
		history := a.Truth.History()
		last := history[len(history)-1]
		watching := []watchcheck.Kind{watchcheck.Began, watchcheck.Event, watchcheck.Bookmark}
		if !slices.Contains(watching, last.Kind) || time.Since(last.At) < 2*time.Second {
			return fmt.Errorf("its last: %v", last)
		}
		return nil
	})
}

// Seat puts two clients on each node. One lists and watches, in protobuf where that exists, as kube-proxy does. The other
// begins with a watch and reads JSON, as kubectl may.
func (a *Audience) Seat(t *T, nodes []string) {
	began := a.Truth.Position()
	t.Eventually(60*time.Second, "all hubs have "+a.Name+" of the truth's time", func() error {
		for node, h := range t.Pool.Hubs() {
			if r, ok := h.Replica(a.Name); slices.Contains(nodes, node) && (!ok || r.Revision < began) {
				return fmt.Errorf("%s has %+v, want at least revision %d", node, r, began)
			}
		}
		return nil
	})
	for _, node := range nodes {
		a.sit(t, node, "listing", func(c *watchcheck.Config) { c.Protobuf = a.Protobuf })
		a.sit(t, node, "JSON", func(c *watchcheck.Config) { c.WatchList = true })
	}
	a.CaughtUp(t, 60*time.Second)
}

// sit puts a client on a node, which reads through the node's hub.
func (a *Audience) sit(t *T, node, name string, as func(*watchcheck.Config)) {
	through, err := t.Lab.HubConfig(node)
	t.Must(err)
	a.sitWith(t, through, node, name, as)
}

// sitWith is sit with an access of the client's own.
func (a *Audience) sitWith(t *T, through *rest.Config, node, name string, as func(*watchcheck.Config)) {
	config := t.Watcher(through, a.Path)
	as(&config)
	recorder, err := watchcheck.New(config)
	t.Must(err)
	a.Seats = append(a.Seats, Seat{node, name, recorder})
	t.Background.Go(func() { _ = recorder.Run(t.Ctx) })
}

// asKubelet is a User-Agent whose reads hubs keep.
const asKubelet = "kubelet/scenario"

// SeatKept puts a client whose reads the hub keeps on each node.
func (a *Audience) SeatKept(t *T, nodes []string) {
	for _, node := range nodes {
		a.sit(t, node, "kept", func(c *watchcheck.Config) { c.Agent = asKubelet })
	}
	a.CaughtUp(t, 60*time.Second)
}

// SeatGuest puts a client with an administrator's token on each node. The hub keeps its reads for it alone.
func (a *Audience) SeatGuest(t *T, nodes []string) {
	for _, node := range nodes {
		through, err := t.Lab.HubConfigAs(node, lab.AdminToken)
		t.Must(err)
		a.sitWith(t, through, node, "guest", func(c *watchcheck.Config) { c.Agent = asKubelet })
	}
	a.CaughtUp(t, 60*time.Second)
}

// told returns the revision of the last list or event that the recording of the truth has. Bookmarks don't count, because each
// client gets them at another moment, once a minute.
func (a *Audience) told() uint64 {
	for _, o := range slices.Backward(a.Truth.History()) {
		if o.Kind == watchcheck.Event || o.Kind == watchcheck.Listed {
			return o.Revision
		}
	}
	return 0
}

// CaughtUp waits until all clients know what the truth knows now.
func (a *Audience) CaughtUp(t *T, within time.Duration) {
	reached := a.told()
	ctx, cancel := context.WithTimeout(t.Ctx, within)
	defer cancel()
	for _, s := range a.Seats {
		if err := s.Recorder.Wait(ctx, reached); err != nil {
			h := s.Recorder.History()
			last := "nothing"
			if len(h) > 0 {
				last = h[len(h)-1].String()
			}
			t.Fail("%s: the %s client on %s is at revision %d, not %d, after %v; the last that it saw: %s",
				a.Name, s.Name, s.Node, s.Recorder.Position(), reached, within, last)
		}
	}
}

// Judge compares what every client was told with what happened. Nothing may be written any more. expired is how often the
// clients on a node may have been told 410.
func (a *Audience) Judge(t *T, expired map[string]int) {
	a.CaughtUp(t, 60*time.Second)
	ctx, cancel := context.WithTimeout(t.Ctx, 60*time.Second)
	defer cancel()
	facts, err := a.Truth.Facts(ctx)
	t.Must(err)
	var worst time.Duration // how late the latest client's events were, as their median
	for _, s := range a.Seats {
		report := watchcheck.Check(facts, s.Recorder.History(), watchcheck.Bounds{Expired: expired[s.Node]})
		t.Say("%s, the %s client on %s: %v", a.Name, s.Name, s.Node, report)
		if err := report.Err(); err != nil {
			t.Fail("%s: the %s client on %s: %w", a.Name, s.Name, s.Node, err)
		}
		worst = max(worst, report.P50)
	}
	t.Figure("lateness_p50_ms", float64(worst.Microseconds())/1000)
}

// ListedOnce expects no list of the collection over the WAN after the first.
func (a *Audience) ListedOnce(t *T) {
	if lists := t.Pool.ListsOverWAN(a.Resource); len(lists) != t.Pool.firstLists(a.Resource) {
		t.Fail("%s were listed over the WAN %d times, want %d: %+v", a.Name, len(lists), t.Pool.firstLists(a.Resource), lists)
	}
}
