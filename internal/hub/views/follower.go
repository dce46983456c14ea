package views

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

const (
	// settling is how long the pool's knowledge still counts after the cloud is back. kubelet compares its Pods with the cloud
	// every 10 s, and the cloud's controllers then need some time to act.
	settling = 30 * time.Second
	// longest is how long, after the cloud is back, the pool's knowledge counts if the cloud's state still differs from it.
	longest = 2 * time.Minute
	// lookAgain is how often the Follower checks for that difference.
	lookAgain = time.Second
	// firstWord is how long, from the start of a cut, the Follower waits until all coordinators that it reaches have said which
	// nodes they hear. Before that it takes no node for silent.
	firstWord = 2 * time.Second
	// gather is how long the Follower collects changes that come together.
	gather = 20 * time.Millisecond
	// restFor is the pause after the Follower has updated the view, as a multiple of the time that the update took. An update
	// goes over all Pods of the pool, and changes can come without end. The pause limits updates to some 2 % of a processor.
	restFor = 50
)

// isCut reports whether the cloud can't be asked, so that the pool's knowledge counts.
func isCut(cloud link.State) bool { return cloud == link.Down }

// FollowerConfig configures a Follower. All fields are required unless they say otherwise.
type FollowerConfig struct {
	Node edge.NodeName
	// CloudLink is the state of the link to the cloud.
	CloudLink *live.Value[link.State]
	// Coordinators are the pool's coordinators, in the order of their slots. Home is the slot of the coordinator whose reports
	// about Pods count.
	Coordinators []Coordinator
	Home         *live.Value[int]
	// Own returns this node's Pods as the cloud has them, from the selection that kubelet follows; false means unknown.
	Own func(ctx context.Context) (stream.Snapshot, bool)
	// Said returns the Pods for which kubelet has written a status that the cloud lacks, with that status, in protobuf. Each has
	// the cloud's revision to which the status was applied.
	Said func() []stream.Object
	// Services is the source of all Services.
	Services stream.Beginner
	// History returns the cloud's history, as far as is known.
	History func() edge.History
	// View shows endpoints as the pool knows them.
	View *EndpointsView
	// Metrics registers the metrics. nil means that they are not exported.
	Metrics prometheus.Registerer
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Coordinator is one of the pool's coordinators. All fields are required.
type Coordinator struct {
	// Link is the state of the link to the coordinator.
	Link *live.Value[link.State]
	// Told brings the coordinator's reports; lead.State implements it. Until ctx ends, Presence passes the reports about nodes to
	// the function hear, and those about Pods if the parameter pods is true.
	Told interface {
		Presence(ctx context.Context, pods bool, hear func(edge.State))
	}
}

// Follower follows what the pool reports about its Pods and nodes while the cloud is cut off. Make one with NewFollower.
type Follower struct {
	config  FollowerConfig
	news    chan struct{} // holds a value when something may have changed
	metrics metrics
}

type metrics struct {
	active, pods, silent prometheus.Gauge
}

// NewFollower returns a Follower. It registers its metrics, and does no I/O.
func NewFollower(c FollowerConfig) *Follower {
	m := promauto.With(c.Metrics)
	m.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurthub_overlay_objects",
		Help: "EndpointSlices and Endpoints that are shown as the pool knows them, and otherwise than the cloud had them.",
	}, func() float64 { return float64(c.View.Changed()) })
	return &Follower{config: c, news: make(chan struct{}, 1), metrics: metrics{
		active: m.NewGauge(prometheus.GaugeOpts{
			Name: "yurthub_overlay_active", Help: "1 while endpoints are shown as the pool knows them.",
		}),
		pods: m.NewGauge(prometheus.GaugeOpts{
			Name: "yurthub_overlay_pods", Help: "Pods of the pool of which this hub knows what their kubelets said last.",
		}),
		silent: m.NewGauge(prometheus.GaugeOpts{
			Name: "yurthub_overlay_silent_nodes",
			Help: "Nodes whose endpoints are shown as not ready, because they have fallen silent.",
		}),
	}}
}

// Changed says that FollowerConfig.Own or FollowerConfig.Said would return something new. It does not block.
func (f *Follower) Changed() {
	select {
	case f.news <- struct{}{}:
	default: // it will be looked at
	}
}

// Run shows endpoints as the pool knows them while the cloud is cut off, until ctx ends, and then returns nil.
func (f *Follower) Run(ctx context.Context) error {
	reach := make([]live.Value[time.Time], len(f.config.Coordinators)) // since when each has been reached; zero: it is not
	var owned sync.WaitGroup
	defer owned.Wait()
	for slot := range reach {
		owned.Go(func() { f.reach(ctx, f.config.Coordinators[slot].Link, &reach[slot]) })
	}
	for ctx.Err() == nil {
		if _, err := f.config.CloudLink.Wait(ctx, isCut); err != nil {
			break
		}
		klog.FromContext(ctx).Info("Showing endpoints as the pool knows them: the cloud is cut off")
		f.during(ctx, reach)
		f.config.View.Set(nil)
		f.metrics.active.Set(0)
		f.metrics.pods.Set(0)
		f.metrics.silent.Set(0)
		if ctx.Err() == nil {
			klog.FromContext(ctx).Info("Showing endpoints as the cloud has them again")
		}
	}
	return nil
}

// reach records since when a coordinator has been reached without a break.
func (f *Follower) reach(ctx context.Context, is *live.Value[link.State], since *live.Value[time.Time]) {
	for ctx.Err() == nil {
		if _, err := is.Wait(ctx, func(s link.State) bool { return s == link.Up }); err != nil {
			return
		}
		since.Set(f.config.Ends.Running())
		_, _ = is.Wait(ctx, func(s link.State) bool { return s != link.Up })
		since.Set(time.Time{})
		f.Changed()
	}
}

// during shows endpoints as the pool knows them, until the cut is over and the cloud has caught up.
func (f *Follower) during(ctx context.Context, reach []live.Value[time.Time]) {
	ctx, stop := context.WithCancel(ctx)
	var owned sync.WaitGroup
	defer owned.Wait()
	defer stop()
	type told struct {
		slot int
		home bool
		line edge.State
	}
	lines := make(chan told)
	for slot := range f.config.Coordinators {
		owned.Go(func() {
			f.listen(ctx, slot, func(home bool, line edge.State) {
				select {
				case lines <- told{slot, home, line}:
				case <-ctx.Done():
				}
			})
		})
	}
	s := &servicesOf{changed: f.Changed}
	owned.Go(func() { Learn(ctx, f.config.Ends.Chance, Services, f.config.Services, s) })
	now := &round{Follower: f, facts: newFacts(f.config.Node), services: s, reach: reach, began: f.config.Ends.Running()}
	f.Changed()
	for now.goesOn(ctx) {
		select {
		case told := <-lines:
			now.facts.heard(told.slot, told.home, told.line)
			now.soon()
		case <-f.news:
			now.soon()
		case <-now.changed:
		case <-now.timer():
			now.show(ctx)
		case <-ctx.Done():
		}
	}
}

// round is one cut, with the time after it.
type round struct {
	*Follower
	facts    *facts
	services *servicesOf
	reach    []live.Value[time.Time]

	began   time.Time
	healed  time.Time       // zero while the cut lasts
	changed <-chan struct{} // closed when the link to the cloud changes
	until   time.Time       // when to look next; zero means not before something changes
	rested  time.Time       // when the pause after the last look ends
	// cloud and said cache the decoded own Pods.
	cloud, said map[stream.Key]decoded
}

// decoded is a decoded Pod.
type decoded struct {
	raw *byte // the first of the Pod's bytes: Pods with the same pointer are the same
	is  edge.PodPresence
}

// goesOn reports whether the pool's knowledge still counts.
func (r *round) goesOn(ctx context.Context) bool {
	state, changed := r.config.CloudLink.Watch()
	r.changed = changed
	settled := r.healed
	switch {
	case isCut(state):
		r.healed = time.Time{}
	case state.Answers() && r.healed.IsZero(): // over whichever line
		r.healed = r.config.Ends.Running()
	}
	if r.healed.IsZero() != settled.IsZero() {
		r.show(ctx)
	}
	if ctx.Err() != nil || r.healed.IsZero() {
		return ctx.Err() == nil
	}
	since := r.config.Ends.Since(r.healed)
	return since < settling || since < longest && r.config.View.Changed() > 0
}

// timer returns a channel that receives when it is time for the next look, or to check whether the round is over.
func (r *round) timer() <-chan time.Time {
	next := r.until
	if !r.healed.IsZero() {
		end := r.healed.Add(settling)
		if again := r.config.Ends.Running().Add(lookAgain); end.Before(again) {
			end = again
		}
		if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(r.config.Ends.Until(next))
}

// soon schedules a look after the time gather, but not before the pause after the last look is over.
func (r *round) soon() {
	at := r.config.Ends.Running().Add(gather)
	if r.rested.After(at) {
		at = r.rested
	}
	if r.until.IsZero() || at.Before(r.until) {
		r.until = at
	}
}

// show passes the present knowledge to the view.
func (r *round) show(ctx context.Context) {
	began := r.config.Ends.Running()
	defer func() { r.rested = r.config.Ends.Running().Add(restFor * r.config.Ends.Since(began)) }()
	unready, known := r.services.get()
	if cloud, ok := r.config.Own(ctx); ok && cloud.Type.Encoding == stream.Protobuf {
		var pods, words []edge.PodPresence
		pods, r.cloud = r.read(cloud.Objects, r.cloud, false)
		words, r.said = r.read(r.config.Said(), r.said, true)
		r.facts.ownPods(pods, words, cloud.Revision)
	}
	r.until = time.Time{}
	if again := r.decideSilent(); again > 0 {
		r.until = r.config.Ends.Running().Add(again)
	}
	if !known {
		return // nobody knows which endpoints are ready whatever their Pods are
	}
	k := r.facts.known(r.config.History(), !r.healed.IsZero(), unready)
	r.config.View.Set(k)
	r.metrics.active.Set(1)
	r.metrics.pods.Set(float64(len(k.Pods)))
	r.metrics.silent.Set(float64(len(k.Silent)))
}

// decideSilent decides which nodes are silent, by the coordinators that the hub reaches now. It returns the time after which to
// decide anew; 0 means after the next report.
func (r *round) decideSilent() (again time.Duration) {
	reached := map[int]time.Duration{}
	for slot := range r.reach {
		since := r.reach[slot].Get()
		if since.IsZero() {
			continue
		}
		reached[slot] = r.config.Ends.Since(since)
		if left := firstWord - r.config.Ends.Since(r.began); left > 0 && r.facts.from[slot] == "" {
			return left
		}
	}
	return r.facts.decideSilent(reached)
}

// read decodes Pods, and also returns the cache to pass to the next call. It skips a Pod that it can't decode.
func (r *round) read(objects []stream.Object, before map[stream.Key]decoded, said bool) ([]edge.PodPresence,
	map[stream.Key]decoded,
) {
	all, next := make([]edge.PodPresence, 0, len(objects)), make(map[stream.Key]decoded, len(objects))
	for _, o := range objects {
		if len(o.Raw) == 0 {
			continue
		}
		d := before[o.Key]
		if d.raw != &o.Raw[0] {
			var pod corev1.Pod
			if pod.Unmarshal(o.Raw) != nil {
				continue
			}
			d = decoded{&o.Raw[0], edge.PresenceOf(&pod)}
			d.is.Revision, d.is.History, d.is.Said = o.Revision, r.config.History(), said
		}
		next[o.Key] = d
		all = append(all, d.is)
	}
	return all, next
}
