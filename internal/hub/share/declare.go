package share

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
)

const (
	// declareEvery is how often the Lease is renewed. A change of the resources in it is written at once.
	declareEvery = 2 * time.Second
	// declareGap is the least time between two writes.
	declareGap = 500 * time.Millisecond
	// leaseSeconds is the duration in the Lease; followers use a bound of their own (package cache).
	leaseSeconds = 10

	// stillLive is how long a resource stays declared current after the cloud has stopped feeding its replica. stillAcked is how
	// long it stays declared current while the mirror is behind the replica or ahead of it.
	stillLive  = 5 * time.Second
	stillAcked = 5 * time.Second

	// overAfter is how long a mirror may be ahead of a replica that the cloud feeds. If the mirror is ahead for longer, its
	// content seems to belong to another history, and the carrier pushes everything.
	overAfter = 20 * time.Second

	// laggingFor is how long a resource may be undeclared before the reason is logged: each term begins without declarations.
	laggingFor = 15 * time.Second

	// conflicts is how often a write is tried if it meets a conflict.
	conflicts = 3
)

// declarer writes the Lease. Only declare's goroutine uses it.
type declarer struct {
	*duty
	lease    *coordinationv1.Lease // as last read or written; nil: read it first
	names    []string              // as last written
	written  time.Time             // when the last write was acknowledged
	tried    time.Time             // when the last was begun
	complain string
	lagging  map[string]lag
}

// lag is why a resource is not declared.
type lag struct {
	since time.Time
	why   string
	told  bool
}

// declare renews the Lease until ctx ends.
func (d *duty) declare(ctx context.Context) {
	w := &declarer{duty: d, lagging: map[string]lag{}}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		now := d.config.Ends.Running()
		declared, why := d.current(now)
		w.logMissing(klog.FromContext(ctx), now, why)
		changed := !slices.Equal(slices.Sorted(maps.Keys(declared)), w.names)
		if (changed || now.Sub(w.written) >= declareEvery) && now.Sub(w.tried) >= declareGap && d.term.Valid() {
			w.tried = now
			err := w.write(ctx, declared)
			if ctx.Err() != nil {
				return
			}
			w.report(klog.FromContext(ctx), err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// report logs the first of equal failures, and their end.
func (w *declarer) report(logger klog.Logger, err error) {
	switch {
	case err == nil && w.complain != "":
		w.complain = ""
		logger.Info("The Lease by which the pool's resources are declared current is written again")
	case err != nil && err.Error() != w.complain:
		w.complain = err.Error()
		logger.Info("The pool's resources can't be declared current, trying again", "lease", edge.LeaseInformerSync,
			"err", err)
	}
}

// logMissing logs, once each, which resources have been undeclared for long and why, and when they are declared again.
func (w *declarer) logMissing(logger klog.Logger, now time.Time, why map[string]string) {
	for name, l := range w.lagging {
		if why[name] != "" {
			continue
		}
		if l.told {
			logger.Info("A pool resource is declared current", "resource", name, "after", now.Sub(l.since))
		}
		delete(w.lagging, name)
	}
	for name, text := range why {
		l := w.lagging[name]
		if l.since.IsZero() {
			l.since = now
		}
		if l.why != text {
			l.why, l.told = text, false
		}
		if !l.told && now.Sub(l.since) >= laggingFor {
			logger.Info("A pool resource can't be declared current", "resource", name, "why", text, "for", now.Sub(l.since))
			l.told = true
		}
		w.lagging[name] = l
	}
}

// current returns the carriers whose resource is complete and current in the mirror, as far as this hub knows. The map why has,
// for the other resources, the reason why they are not; an Optional resource may be in neither map. Both maps are by resource
// name.
func (d *duty) current(now time.Time) (declared map[string]*carrier, why map[string]string) {
	declared, why = map[string]*carrier{}, map[string]string{}
	var latest edge.History
	for _, c := range d.all() {
		if text := c.lags(now); text != "" {
			if !c.resource.Optional {
				why[c.label()] = text
			}
			continue
		}
		declared[c.label()] = c
		latest = max(latest, c.observe().history)
	}
	// All declared resources are in one history: a resource in an older one is not current.
	for name, c := range declared {
		if in := c.observe().history; in != latest {
			delete(declared, name)
			why[name] = fmt.Sprintf("it is in history %s, and others are in %s", in, latest)
		}
	}
	return declared, why
}

// lags returns why the carrier's resource is not complete and current in the mirror as far as this hub knows; empty if it is.
func (c *carrier) lags(now time.Time) (why string) {
	live, at, in := c.resource.Live(), c.resource.Replica.Position(), c.resource.Replica.History()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.state
	if live {
		s.live = now
	}
	switch {
	case s.acked <= at:
		s.ahead = time.Time{}
	case s.ahead.IsZero():
		s.ahead = now
	case live && !s.over && now.Sub(s.ahead) > overAfter:
		s.over = true
		c.breakOffLocked()
	}
	within := func(since time.Time) bool { return since.IsZero() || now.Sub(since) <= stillAcked }
	switch {
	case s.acked == 0:
		return "the coordinator has not taken it yet"
	case s.history != in:
		return "this hub's copy is in another history than the coordinator's"
	case s.acked < s.target:
		return "the coordinator has not taken all that this hub had when it began to lead"
	case s.live.IsZero():
		return "the cloud has not brought it yet"
	case now.Sub(s.live) > stillLive:
		return "the cloud brings it no more"
	case !within(s.behind):
		return "the coordinator takes nothing"
	case !within(s.ahead):
		return "the coordinator has more than the cloud has brought to this hub"
	}
	return ""
}

// filling returns the progress of the lists that the hub reads from the cloud, by resource: the number of the page that it is
// reading. For a list that waits for the others, it returns the sum of their numbers plus 1, which grows while they are read.
func (d *duty) filling() map[string]int {
	pages, all := map[string]int{}, 0
	for _, c := range d.all() {
		if c.resource.Filling == nil {
			continue
		}
		if n := c.resource.Filling(); n != 0 {
			pages[c.label()] = n
			all += max(n, 0)
		}
	}
	for name, n := range pages {
		if n < 0 {
			pages[name] = all + 1
		}
	}
	return pages
}

// write asks the mirror whether it still has what is to be declared, and writes the Lease.
func (w *declarer) write(ctx context.Context, declared map[string]*carrier) error {
	known := map[*carrier]state{}
	for _, c := range w.all() {
		known[c] = c.observe() // before the question: what is acknowledged meanwhile must not look like a loss
	}
	mirror, err := w.mirror.positions(ctx)
	if err != nil {
		return err
	}
	for c, s := range known {
		at := mirror.at[c.resource.GVR]
		if s.acked != 0 && (mirror.instance != s.instance || at.History != s.history || at.Revision < s.acked) {
			c.alter(func(now *state) {
				if now.instance == s.instance {
					now.acked = 0
				}
				c.breakOffLocked()
			})
			delete(declared, c.label())
		}
	}
	applied := map[string]string{}
	var in edge.History
	for name, c := range declared {
		applied[name], in = known[c].acked.String(), known[c].history
	}
	filling := w.filling()
	text, err := json.Marshal(applied)
	if err != nil {
		return fmt.Errorf("write the annotation %s: %w", edge.AnnotationAppliedRevisions, err)
	}
	under, err := json.Marshal(filling)
	if err != nil {
		return fmt.Errorf("write the annotation %s: %w", edge.AnnotationFilling, err)
	}
	says := map[string]string{
		edge.AnnotationAppliedRevisions: string(text), edge.AnnotationHistory: in.String(), edge.AnnotationFilling: string(under),
	}
	if err := w.update(ctx, says); err != nil {
		w.fillings.set(w.config.Ends.Running(), known, mirror, nil)
		return err
	}
	w.fillings.set(w.config.Ends.Running(), known, mirror, declared)
	w.written, w.names = w.config.Ends.Running(), slices.Sorted(maps.Keys(declared))
	w.metrics.declared.Reset()
	for _, name := range w.names {
		w.metrics.declared.WithLabelValues(name).Set(1)
	}
	return nil
}

// update writes the annotations and a renewal into the Lease. After a conflict it reads the Lease and tries again.
func (w *declarer) update(ctx context.Context, says map[string]string) (err error) {
	of := lease{w.config.Leases, edge.LeaseInformerSync}
	for range conflicts {
		if w.lease == nil {
			if w.lease, err = of.get(ctx); err != nil {
				return err
			}
		}
		next := renewed(w.lease, w.config.Node, says, metav1.NewMicroTime(w.config.Ends.Wall()))
		if !w.term.Valid() {
			return errDeposed
		}
		if w.lease, err = of.update(ctx, next); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%d times: %w", conflicts, err)
}

// renewed returns the Lease as this node writes it. leaseTransitions counts the changes of holder, as the coordinator requires.
func renewed(
	lease *coordinationv1.Lease, node edge.NodeName, says map[string]string, now metav1.MicroTime,
) *coordinationv1.Lease {
	next := lease.DeepCopy()
	holder, seconds := string(node), int32(leaseSeconds)
	if next.Spec.HolderIdentity == nil || *next.Spec.HolderIdentity != holder {
		transitions := int32(1)
		if next.Spec.LeaseTransitions != nil {
			transitions += *next.Spec.LeaseTransitions
		}
		next.Spec.HolderIdentity, next.Spec.LeaseTransitions, next.Spec.AcquireTime = &holder, &transitions, &now
	}
	next.Spec.LeaseDurationSeconds, next.Spec.RenewTime = &seconds, &now
	for name, value := range says {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, name, value)
	}
	return next
}
