package share

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

// TakerConfig configures a Taker.
type TakerConfig struct {
	// Object returns the cloud's last known state of this node's Node, or of one of its Pods, in protobuf; false means that none
	// is known. It is safe for concurrent use.
	Object func(stream.ID) (stream.Object, bool)
	// CloudLink is the state of the link to the cloud; Events is a client for Events in the cloud, as this node.
	CloudLink *live.Value[link.State]
	Events    corev1client.EventsGetter
	// History returns the cloud's history, as far as is known.
	History func() edge.History
	// Disk keeps the Events that the cloud must still get.
	Disk TakerDisk
	// Changed is called for each change of what is shown. It must not block.
	Changed func()
	// Metrics registers the metrics. nil means that they are not exported.
	Metrics prometheus.Registerer
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Taker accepts writes that the cloud does not answer. Make one with NewTaker; safe for concurrent use.
type Taker struct {
	config   TakerConfig
	metrics  metrics
	events   *eventLog
	statuses *statuses
	written  chan struct{} // holds a value once an Event was written
}

type metrics struct {
	local      *prometheus.CounterVec
	told, lost prometheus.Counter
}

// NewTaker returns a Taker. It registers its metrics, and does no I/O.
func NewTaker(c TakerConfig) *Taker {
	t := &Taker{config: c, metrics: newMetrics(c.Metrics), statuses: newStatuses(c.Changed), written: make(chan struct{}, 1)}
	t.events = newEventLog(c.Disk, c.Ends, c.History, t.metrics.lost.Inc, func() {
		select {
		case t.written <- struct{}{}:
		default:
		}
		c.Changed()
	})
	return t
}

func newMetrics(r prometheus.Registerer) metrics {
	m := promauto.With(r)
	return metrics{
		local: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_own_local_answers_total",
			Help: "Requests of this node's programs that were answered in the cloud's place: event, status.",
		}, []string{"about"}),
		told: m.NewCounter(prometheus.CounterOpts{
			Name: "yurthub_own_events_told_total", Help: "Events of a cut that the cloud was told of afterwards.",
		}),
		lost: m.NewCounter(prometheus.CounterOpts{
			Name: "yurthub_own_events_lost_total",
			Help: "Events of a cut that the cloud was never told of: too many, too old, or refused.",
		}),
	}
}

// Run sends waiting Events to the cloud, and forgets kubelet's statuses after a cut, until ctx ends. Then it returns nil.
func (t *Taker) Run(ctx context.Context) error {
	t.events.restore()
	var owned sync.WaitGroup
	defer owned.Wait()
	owned.Go(func() { t.forgetStatuses(ctx) })
	t.sendEvents(ctx)
	return nil
}

// errCut says that the cloud does not answer any more.
var errCut = errors.New("the cloud is cut off")

// forgetStatuses forgets kubelet's statuses when a cut is over, until ctx ends, because the next cut must not show them. AddTo
// also forgets them, but nobody calls AddTo while no coordinator can be reached.
func (t *Taker) forgetStatuses(ctx context.Context) {
	for {
		select {
		case <-t.statuses.written:
		case <-ctx.Done():
			return
		}
		for over := false; !over; {
			if _, err := t.config.CloudLink.Wait(ctx, link.State.Answers); err != nil || ctx.Err() != nil {
				return
			}
			answers, stop := t.config.CloudLink.While(ctx, link.State.Answers, errCut)
			over = run.Pause(answers, settling) == nil && !t.Cut(t.config.Ends.Running())
			stop()
		}
		t.statuses.forget()
	}
}

// Cut reports whether the hub must still show what the node says about itself: until the cloud has answered for 30 s (settling),
// and kubelet has written no status to the Taker for as long.
func (t *Taker) Cut(now time.Time) bool { return t.statuses.cut(t.config.CloudLink.Get(), now) }

// AddTo implements Overlay. It drops Events that are too old, and the status of an object that the cloud has at another revision.
// Without a cut it drops all statuses.
func (t *Taker) AddTo(
	objects map[stream.ID]stream.Object, in map[stream.ID]edge.History, said map[stream.ID]uint64, cut bool,
) {
	t.statuses.addTo(objects, said, cut)
	t.events.addTo(objects, in, said)
}

// Said returns the Pods for which kubelet has written a status that the cloud lacks, with that status, in protobuf. Each has the
// cloud's revision to which the status was applied.
func (t *Taker) Said() []stream.Object { return t.statuses.pods() }

// HasEvent reports whether an Event must still be shown.
func (t *Taker) HasEvent(k stream.Key) bool { return t.events.has(k) }

// DropEvent drops an Event that is shown nowhere, unless it waits for the cloud.
func (t *Taker) DropEvent(k stream.Key) { t.events.drop(k) }

// AdoptEvent records an Event that has been shown since an earlier run of this hub, so that it expires in due time.
func (t *Taker) AdoptEvent(k stream.Key, as edge.Moment) { t.events.adopt(k, as) }
