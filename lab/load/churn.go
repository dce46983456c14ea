package load

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// phase is the state of a rolling update: an object's oldest endpoint terminates, is removed, and a new one is added.
type phase int

const (
	terminate phase = iota
	remove
	add
	phases
)

// Churn changes the EndpointSlices that Services made, like a rolling update. It makes perSecond changes a second (0 means as
// many as Writers can) for the duration d. Each changes one endpoint of one object, and AnnotationSequence numbers it. Churn
// waits up to a minute for a server that is away. At the end of the time it returns no error; if ctx ends, it returns the cause
// and the counts until then.
func Churn(ctx context.Context, client kubernetes.Interface, spec Spec, perSecond float64, d time.Duration,
) (Counts, error) {
	spec = spec.withDefaults()
	all, last, err := spec.rollers(ctx, client)
	if err != nil {
		return Counts{}, err
	}
	limit := rate.Inf
	if perSecond > 0 {
		limit = rate.Limit(perSecond)
	}
	c := churn{pace: rate.NewLimiter(limit, 1), next: spec.Services*spec.EndpointsEach + 1}
	c.sequence.Store(last)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := time.AfterFunc(d, func() { c.over.Store(true) })
	defer over.Stop()
	writing, writeCtx := errgroup.WithContext(ctx)
	// Each object has one writer, so that its changes come in the order of their numbers.
	for w := range min(spec.Writers, len(all)) {
		var mine []*roller
		for i := w; i < len(all); i += spec.Writers {
			mine = append(mine, all[i])
		}
		writing.Go(func() error { return c.roll(writeCtx, mine) })
	}
	err = writing.Wait()
	return Counts{Updates: int(c.updates.Load()), Retries: int(c.retries.Load()), Sequence: c.sequence.Load()}, err
}

// rollers returns all objects of this package in the namespace, and their highest number.
func (s Spec) rollers(ctx context.Context, client kubernetes.Interface) ([]*roller, uint64, error) {
	slices := client.DiscoveryV1().EndpointSlices(s.Namespace)
	list, err := slices.List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelManagedBy + "=" + ManagedBy})
	if err != nil {
		return nil, 0, err
	}
	all := make([]*roller, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &roller{spec: s, client: client, object: &list.Items[i]})
	}
	if len(all) == 0 {
		return nil, 0, fmt.Errorf("namespace %s: %w", s.Namespace, ErrNothingToChange)
	}
	last := uint64(0)
	for _, r := range all {
		last = max(last, sequenceOf(&r.object.ObjectMeta))
	}
	return all, last, nil
}

func sequenceOf(m *metav1.ObjectMeta) uint64 {
	n, err := strconv.ParseUint(m.Annotations[AnnotationSequence], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// churn is one call of Churn.
type churn struct {
	pace *rate.Limiter
	over atomic.Bool
	// next is the number of the first new endpoint.
	next             int
	sequence         atomic.Uint64
	updates, retries atomic.Int64
}

// await waits for the next turn, or returns why ctx ended. The limiter alone would not wait if ctx's deadline came before the
// turn: it would return an error of its own at once.
func await(ctx context.Context, pace *rate.Limiter) error {
	if pace.Wait(ctx) == nil {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// roll changes objects in turn until the time is over.
func (c *churn) roll(ctx context.Context, all []*roller) error {
	for turn := 0; ; turn++ {
		r := all[turn%len(all)]
		p := phase(turn / len(all) % int(phases))
		if err := await(ctx, c.pace); err != nil {
			return err
		}
		if c.over.Load() {
			return nil
		}
		stale := false
		retries, err := persist(ctx, func(ctx context.Context) error {
			// After a failure nobody knows whether the change was made, so the next change builds on what the server
			// has.
			if stale {
				if err := r.read(ctx); err != nil {
					return err
				}
			}
			stale = true
			sequence := c.sequence.Add(1)
			r.step(p, c.next+int(sequence), time.Now())
			r.object.Annotations[AnnotationSequence] = strconv.FormatUint(sequence, 10)
			return r.write(ctx)
		})
		c.retries.Add(int64(retries))
		if err != nil {
			return fmt.Errorf("change of %s/%s: %w", r.object.Namespace, r.object.Name, err)
		}
		c.updates.Add(1)
	}
}

// roller changes one object, one step of a rolling update at a time.
type roller struct {
	spec   Spec
	client kubernetes.Interface
	object *discoveryv1.EndpointSlice
}

// step makes the object's next content; number is the new endpoint's.
func (r *roller) step(p phase, number int, now time.Time) {
	yes, no := true, false
	o := r.object
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[corev1.EndpointsLastChangeTriggerTime] = now.UTC().Format(time.RFC3339Nano)
	switch {
	case p == terminate && len(o.Endpoints) > 0:
		o.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	case p == remove && len(o.Endpoints) > 0:
		o.Endpoints = o.Endpoints[1:]
	case p == add && len(o.Endpoints) < sliceSize:
		e := r.spec.endpoint(o.Labels[discoveryv1.LabelServiceName], number)
		has := map[string]int{}
		for _, other := range o.Endpoints {
			has[ptr.Deref(other.NodeName, "")]++
		}
		if node := r.spec.fewest(has, number); node != "" {
			e.NodeName, e.Zone = &node, &node
		}
		o.Endpoints = append(o.Endpoints, e)
	}
}

func (r *roller) write(ctx context.Context) error {
	o, err := r.client.DiscoveryV1().EndpointSlices(r.object.Namespace).Update(ctx, r.object, metav1.UpdateOptions{})
	if err == nil {
		r.object = o
	}
	return err
}

func (r *roller) read(ctx context.Context) error {
	o, err := r.client.DiscoveryV1().EndpointSlices(r.object.Namespace).Get(ctx, r.object.Name, metav1.GetOptions{})
	if err == nil {
		r.object = o
	}
	return err
}
