package cache

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/store"
)

const (
	// reasonTooLarge is the reason of an Event about this node.
	reasonTooLarge = "TooLargeToCache"
	// eventEvery is the least time between two such Events, and eventWithin is how long one may take.
	eventEvery, eventWithin = time.Minute, 10 * time.Second
)

// TooLarge tells people which selections the hub no longer caches because of their size. Otherwise people would find out only in
// a cut, when the hub refuses the program that needs such a selection.
type TooLarge struct {
	node   string
	count  *prometheus.CounterVec
	events chan *corev1.Event
	ends   ends.Ends
}

// NewTooLarge returns a TooLarge for a node. It registers its metric.
func NewTooLarge(node string, r prometheus.Registerer, e ends.Ends) *TooLarge {
	return &TooLarge{
		node: node, ends: e, events: make(chan *corev1.Event, 8),
		count: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_too_large_total",
			Help: "Selections that the hub stopped caching because they exceed a bound of bytes.",
		}, []string{"resource"}),
	}
}

// Tell counts a selection that does not fit into its bound (most, in bytes), and makes an Event of it unless eight others wait.
// It never blocks.
func (t *TooLarge) Tell(what store.Collection, most int) {
	t.count.WithLabelValues(what.Resource.GroupResource().String()).Inc()
	now := metav1.NewTime(t.ends.Wall())
	select {
	case t.events <- &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: t.node + "."},
		// kubectl describe finds Events of a Node by this UID, which kubelet uses too.
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: t.node, UID: types.UID(t.node)},
		Source:         corev1.EventSource{Component: "yurthub", Host: t.node},
		Type:           corev1.EventTypeWarning, Reason: reasonTooLarge,
		Message: fmt.Sprintf("This node's hub does not cache %s: it does not fit within %d MiB. The cloud answers it. "+
			"While the cloud can't be reached, the client is refused.", what, most>>20),
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}:
	default:
	}
}

// Run posts the Events, one at a time, until ctx ends. It logs those that the cloud does not take.
func (t *TooLarge) Run(ctx context.Context, cloud corev1client.EventsGetter) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-t.events:
			posting, cancel := context.WithTimeout(ctx, eventWithin)
			if _, err := cloud.Events(event.Namespace).Create(posting, event, metav1.CreateOptions{}); err != nil {
				klog.FromContext(ctx).Info("The cloud did not take an Event", "message", event.Message, "err", err)
			}
			cancel()
			_ = run.Pause(ctx, eventEvery) // cut short by the end of ctx, which the loop sees
		}
	}
}
