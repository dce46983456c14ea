package share

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

const (
	// fillLook is the pause between two checks of the mirror; fillAgain replaces it after a failure if no leader is known. A
	// random time of up to half the pause is added, so that the pool's hubs check at different times.
	fillLook, fillAgain = 10 * time.Second, time.Second
	// turnMargin is how much earlier than the coordinator a filler considers its turn over.
	turnMargin = time.Second
	// offerPause is the pause before the hub offers an unchanged resource again that the mirror has refused.
	offerPause = 30 * time.Second
)

// FillerConfig configures a Filler. All fields are required.
type FillerConfig struct {
	Config
	// Resources are the resources to push, as for a Pool.
	Resources Set
	// Leases is a client of the coordinator. The hub must be allowed to get and update kube-system/yurthub-filler.
	Leases coordinationv1client.LeasesGetter
	// CloudLink and Link are the states of the links to the cloud and to the coordinator.
	CloudLink, Link *live.Value[link.State]
	// Leader returns the pool's leader as far as this hub knows; empty means none. The channel is closed when the leader may
	// have changed.
	Leader func() (edge.NodeName, <-chan struct{})
}

// Filler brings this hub's copies of the pool's resources to a coordinator without a leader, while this hub has no link to the
// cloud. Make one with NewFiller.
type Filler struct {
	config  FillerConfig
	lease   lease
	refused map[schema.GroupVersionResource]refusedOffer // Run's alone
	said    string                                       // the last failure that was logged; Run's alone
	fills   *prometheus.CounterVec
}

// refusedOffer is an offer that the mirror refused.
type refusedOffer struct {
	moment   edge.Moment
	instance string
	at       time.Time
}

// NewFiller returns a Filler. It registers its metrics, and does no I/O.
func NewFiller(c FillerConfig) *Filler {
	return &Filler{
		config: c, lease: lease{c.Leases, edge.LeaseFiller}, refused: map[schema.GroupVersionResource]refusedOffer{},
		fills: promauto.With(c.Metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_fills_total",
			Help: "Times that this hub, without a link to the cloud, brought a resource to a coordinator that nobody led.",
		}, []string{"resource"}),
	}
}

// Run fills until ctx ends, and returns nil.
func (f *Filler) Run(ctx context.Context) error {
	for {
		if _, err := f.config.CloudLink.Wait(ctx, isCut); err != nil {
			return nil //nolint:nilerr // only the context ends it
		}
		if _, err := f.config.Link.Wait(ctx, link.State.Answers); err != nil {
			return nil //nolint:nilerr // only the context ends it
		}
		err := f.round(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // asked to stop
		}
		f.report(ctx, err)
		leader, changed := f.config.Leader()
		_, moved := f.config.Link.Watch() // a coordinator that starts anew is empty
		pause := fillLook
		if leader == "" && err != nil {
			pause = fillAgain
		}
		timer := time.NewTimer(pause + f.config.Ends.Below(pause/2))
		select {
		case <-timer.C:
		case <-changed:
			_ = run.Pause(ctx, fillAgain) // whoever leads now brings what it has
		case <-moved:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// isCut reports whether the cloud is known not to answer.
func isCut(s link.State) bool { return s == link.Down || s == link.Failing }

// report logs the first of equal failures.
func (f *Filler) report(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != f.said {
		klog.FromContext(ctx).V(1).Info("This hub, which cannot reach the cloud, cannot fill the coordinator now; trying again",
			"err", err)
	}
	f.said = text
}

// round checks the mirror, and takes a turn if this hub has something better.
func (f *Filler) round(ctx context.Context) error {
	mirror := poolShare{f.config.client(edge.PathMirror)}
	known, err := mirror.positions(ctx)
	if err != nil {
		return err
	}
	resources, _ := f.config.Resources.Resources()
	if len(f.offers(resources, known, f.config.Ends.Running())) == 0 {
		return nil
	}
	term, done, err := f.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if known, err = mirror.positions(ctx); err != nil { // another may have filled it meanwhile
		return err
	}
	for _, r := range f.offers(resources, known, f.config.Ends.Running()) {
		if err := f.offer(ctx, mirror, term, r, known.instance); err != nil {
			return err
		}
	}
	return nil
}

// offers returns the resources of which the mirror has nothing, or something older that a filler brought. It leaves out what the
// mirror has refused within offerPause.
func (f *Filler) offers(resources []Resource, known positions, now time.Time) (better []Resource) {
	for _, r := range resources {
		mine := momentOf(r.Replica)
		if mine.Revision == 0 {
			continue
		}
		if at := known.at[r.GVR]; at.Revision != 0 && (!at.History.IsFilled() || !at.Before(mine)) {
			continue
		}
		if no, was := f.refused[r.GVR]; was && no.moment == mine && no.instance == known.instance && now.Sub(no.at) < offerPause {
			continue
		}
		better = append(better, r)
	}
	return better
}

// momentOf returns a replica's position as a moment of its filled history.
func momentOf(r Replica) edge.Moment {
	return edge.Moment{History: r.History().Filled(), Revision: r.Position()}
}

// offer pushes all of a resource. A refusal by the mirror is no error: then another node has brought something better.
func (f *Filler) offer(ctx context.Context, mirror poolShare, term edge.Term, r Resource, instance string) error {
	s, err := r.Replica.Snapshot(ctx)
	if errors.Is(err, stream.ErrNotReady) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the replica: %w", err)
	}
	moment := edge.Moment{History: s.History.Filled(), Revision: s.Revision}
	err = mirror.everything(ctx, r.GVR, moment.History, term, s)
	name := r.GVR.GroupResource().String()
	var why *refusal
	if errors.As(err, &why) && why.code != http.StatusForbidden && why.code < http.StatusInternalServerError {
		f.refused[r.GVR] = refusedOffer{moment, instance, f.config.Ends.Running()}
		klog.FromContext(ctx).Info("The coordinator, which nobody leads, does not take what this hub has", "resource", name,
			"revision", moment.Revision.String(), "history", moment.History.String(), "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	delete(f.refused, r.GVR)
	f.fills.WithLabelValues(name).Inc()
	klog.FromContext(ctx).Info("Filled the coordinator, which nobody leads, with what this hub has", "resource", name,
		"objects", len(s.Objects), "revision", moment.Revision.String(), "history", moment.History.String())
	return nil
}

// turn takes the filler's Lease for one turn; the function done releases the Lease. The coordinator refuses the Lease while
// another hub has its turn, while a hub leads, and for some seconds after a leader's end or the coordinator's own start.
func (f *Filler) turn(ctx context.Context) (term edge.Term, done func(), err error) {
	lease, err := f.lease.get(ctx)
	if err != nil {
		return term, nil, err
	}
	next := lease.DeepCopy()
	now, holder := metav1.NewMicroTime(f.config.Ends.Wall()), string(f.config.Node)
	seconds, transitions := int32(edge.FillerTurn/time.Second), int32(1)
	if lease.Spec.LeaseTransitions != nil {
		transitions += *lease.Spec.LeaseTransitions
	}
	next.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions,
		AcquireTime: &now, RenewTime: &now,
	}
	began := f.config.Ends.Now() // before the request: the turn is never thought younger than it is
	held, err := f.lease.update(ctx, next)
	if err != nil {
		return term, nil, err
	}
	term = edge.Term{Transitions: transitions, Valid: func() bool {
		return f.config.Ends.Now().Sub(began) < edge.FillerTurn-turnMargin && isCut(f.config.CloudLink.Get())
	}}
	return term, func() { f.release(ctx, held) }, nil
}

// release releases the Lease, so that another hub need not wait for the end of the turn.
func (f *Filler) release(ctx context.Context, held *coordinationv1.Lease) {
	nobody, now := "", metav1.NewMicroTime(f.config.Ends.Wall())
	held = held.DeepCopy()
	held.Spec.HolderIdentity, held.Spec.RenewTime = &nobody, &now
	if _, err := f.lease.update(context.WithoutCancel(ctx), held); err != nil && !apierrors.IsConflict(err) {
		klog.FromContext(ctx).V(1).Info("The filler's Lease was not released; the turn ends by itself", "err", err)
	}
}
