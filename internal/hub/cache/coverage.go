package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

const (
	// coverFresh is how long a declaration counts after it was seen to be renewed. The leader renews it every 2 s, and
	// after its crash the next leader declares anew within 2 s + 4.3 s (role) + 1 s, so that followers stay where they
	// are.
	coverFresh = 10 * time.Second

	// fillFresh is how long a list that the leader is reading counts after its last page came. A page is chosen to take 5 s; on a
	// line that has become thin it may take nine times as long.
	fillFresh = 45 * time.Second

	// fillPushed is how much longer a list counts that has come to its end: the leader still has to push it and to declare it. It
	// has as long as it would have from the beginning (coverWait).
	fillPushed = coverWait

	// maxDeclared bounds the annotation that is read, in bytes: API servers keep 256 KiB of annotations in all.
	maxDeclared = 256 << 10
)

// errUnreachable ends the watch of what the leader declares.
var errUnreachable = errors.New("the coordinator can no longer be reached")

// CoverageConfig says where declarations are. All fields are required.
type CoverageConfig struct {
	// Leases is a client of the coordinator. The hub must be allowed to list and watch, by the field selector
	// metadata.name, the Lease kube-system/leader-informer-sync there.
	Leases coordinationv1client.LeasesGetter
	// Link is the state of the link to the coordinator.
	Link *live.Value[link.State]
}

// Coverage follows what the pool's leader declares about the coordinator's mirror. A declaration that was there when
// the watch began counts only once it changes, and each change counts for coverFresh by this machine's monotonic clock.
// So no wall clock matters, and a leader that has died declares nothing. Make one with NewCoverage.
type Coverage struct {
	ends    ends.Ends
	history *live.Value[edge.History]

	mu     sync.Mutex
	values map[schema.GroupResource]*live.Value[bool]
	fills  map[schema.GroupResource]*underWay
	seen   declaration
	until  time.Time   // what was declared counts until then
	fading *time.Timer // until then; Run makes it
}

// underWay is a list that the leader is reading.
type underWay struct {
	value *live.Value[bool]
	pages int       // as declared; 0 means that none is under way
	until time.Time // it counts until then
}

// declaration is what a Lease says.
type declaration struct {
	uid     string
	renewed int64 // microseconds of its writer's clock: opaque
	text    string
	history edge.History // that the mirror's content is of
	applied map[schema.GroupResource]struct{}
	filling map[schema.GroupResource]int
}

// NewCoverage returns a Coverage that takes its times from e; nothing is covered until Run.
func NewCoverage(e ends.Ends) *Coverage {
	return &Coverage{
		ends:    e,
		history: &live.Value[edge.History]{}, values: map[schema.GroupResource]*live.Value[bool]{},
		fills: map[schema.GroupResource]*underWay{},
	}
}

// History returns the history of what is covered, as last declared, by whomever: so a hub that has not seen the cloud's
// history change hears of it.
func (c *Coverage) History() *live.Value[edge.History] { return c.history }

// Of returns whether a resource is covered, now and as it changes. It keeps every value that it returns: ask for the
// resources of a configuration, not for those of requests.
func (c *Coverage) Of(r schema.GroupResource) *live.Value[bool] {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.values[r]
	if v == nil {
		v = &live.Value[bool]{}
		c.values[r] = v
		c.publishLocked(c.ends.Running())
	}
	return v
}

// Filling returns whether the leader is reading a resource from the cloud and its list comes on, now and as it changes. It keeps
// every value that it returns, as Of does.
func (c *Coverage) Filling(r schema.GroupResource) *live.Value[bool] {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.fills[r]
	if f == nil {
		f = &underWay{value: &live.Value[bool]{}}
		c.fills[r] = f
		c.fillLocked(c.ends.Running())
	}
	return f.value
}

// fillLocked takes in which lists the leader is reading, and forgets those that do not come on, or have come.
func (c *Coverage) fillLocked(now time.Time) {
	for r, f := range c.fills {
		switch pages := c.seen.filling[r]; pages {
		case f.pages:
		case 0:
			f.pages = 0
			if pushed := now.Add(fillPushed); pushed.Before(f.until) {
				f.until = pushed
			}
		default:
			f.pages, f.until = pages, now.Add(fillFresh)
		}
		f.value.Set(now.Before(f.until))
	}
}

// Run follows the declarations at one coordinator until ctx ends, and returns nil. Nothing is covered afterwards. It must not run
// twice at a time.
func (c *Coverage) Run(ctx context.Context, at CoverageConfig) error {
	c.fading = time.AfterFunc(coverFresh, c.fade)
	defer c.fading.Stop()
	follow := lead.LeaseWatchConfig{
		Leases:        at.Leases.Leases(edge.NamespaceSystem),
		FieldSelector: fields.OneTermEqualSelector("metadata.name", edge.LeaseInformerSync).String(),
		Beating:       true, Ends: c.ends,
	}
	for ctx.Err() == nil {
		if _, err := at.Link.Wait(ctx, link.State.Answers); err != nil {
			return nil // only the context ends it
		}
		reachable, stop := at.Link.While(ctx, link.State.Answers, errUnreachable)
		_ = lead.FollowLeases(reachable, follow, sight{c}) // it returns only the end of its context
		stop()
		c.forget()
	}
	return nil
}

// fade ends what no longer counts.
func (c *Coverage) fade() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.ends.Running()
	c.publishLocked(now)
	for _, f := range c.fills {
		if f.value.Get() {
			c.fading.Reset(coverFresh) // it fades later than what is covered
		}
	}
}

func (c *Coverage) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.until = declaration{}, time.Time{}
	c.publishLocked(c.ends.Running())
}

func (c *Coverage) publishLocked(now time.Time) {
	if len(c.seen.applied) > 0 {
		c.history.Set(c.seen.history)
	}
	c.fillLocked(now)
	for r, v := range c.values {
		_, declared := c.seen.applied[r]
		v.Set(declared && now.Before(c.until))
	}
}

// take takes in a declaration; happened says that the watch saw it being made.
func (c *Coverage) take(d declaration, happened bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.ends.Running()
	switch {
	case len(d.applied) == 0 || d.uid != c.seen.uid && !happened:
		c.until = time.Time{}
	case happened && (d.renewed != c.seen.renewed || d.text != c.seen.text || d.history != c.seen.history || d.uid != c.seen.uid):
		c.until = now.Add(coverFresh)
		c.fading.Reset(coverFresh)
	}
	c.seen = d
	c.publishLocked(now)
	if happened && len(d.filling) > 0 {
		c.fading.Reset(coverFresh)
	}
}

// sight hands Coverage what the watch finds.
type sight struct{ *Coverage }

// Baseline implements lead.LeaseSink.
func (s sight) Baseline(leases []coordinationv1.Lease) {
	var d declaration
	if len(leases) > 0 {
		d = declared(&leases[0])
	}
	s.take(d, false)
}

// Changed implements lead.LeaseSink.
func (s sight) Changed(kind watch.EventType, lease *coordinationv1.Lease) {
	d := declared(lease)
	if kind == watch.Deleted {
		d = declaration{}
	}
	s.take(d, true)
}

// declared reads a Lease. A Lease that nobody holds, or whose annotation cannot be read, declares nothing.
func declared(lease *coordinationv1.Lease) declaration {
	d := declaration{uid: string(lease.UID), text: lease.Annotations[edge.AnnotationAppliedRevisions]}
	if lease.Spec.RenewTime != nil {
		d.renewed = lease.Spec.RenewTime.UnixMicro()
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return d
	}
	history, err := edge.ParseHistory(lease.Annotations[edge.AnnotationHistory])
	if err != nil {
		return d
	}
	d.filling = parseFilling(lease.Annotations[edge.AnnotationFilling])
	if applied, err := parseApplied(d.text); err == nil {
		d.applied, d.history = applied, history
	}
	return d
}

// parseFilling returns how many pages have come of each resource that the annotation edge.AnnotationFilling names; one that
// can't be read names none.
func parseFilling(text string) map[schema.GroupResource]int {
	var raw map[string]int
	if len(text) > maxDeclared || json.Unmarshal([]byte(text), &raw) != nil {
		return nil
	}
	filling := make(map[schema.GroupResource]int, len(raw))
	for name, pages := range raw {
		filling[schema.ParseGroupResource(name)] = pages
	}
	return filling
}

// parseApplied returns the resources that the annotation edge.AnnotationAppliedRevisions names. It skips a resource with a
// malformed revision; the others still count. The revisions are for people: the mirror itself says where it stands.
func parseApplied(text string) (map[schema.GroupResource]struct{}, error) {
	if len(text) > maxDeclared {
		return nil, fmt.Errorf("annotation %s: %d bytes are more than any leader writes",
			edge.AnnotationAppliedRevisions, len(text))
	}
	var raw map[string]string
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", edge.AnnotationAppliedRevisions, err)
	}
	applied := make(map[schema.GroupResource]struct{}, len(raw))
	for name, revision := range raw {
		if _, err := edge.ParseRevision(revision); err == nil && name != "" {
			applied[schema.ParseGroupResource(name)] = struct{}{}
		}
	}
	return applied, nil
}
