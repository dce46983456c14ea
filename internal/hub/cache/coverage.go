package cache

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/live"
)

const (
	// coverFresh is how long a declaration counts after this hub saw its last renewal. The leader renews it every 2 s. If the
	// leader crashes, the next one declares at most 7.3 s after the last renewal, so followers keep their source. Its election
	// takes at most 4.3 s of that time.
	coverFresh = 10 * time.Second

	// fillFresh is how long the leader's list counts as making progress after its last page. A page is sized to take 5 s. It may
	// take nine times as long if the link has become slow.
	fillFresh = 45 * time.Second

	// fillPushed bounds how long a list still counts as making progress after its end. In that time the leader pushes the list
	// and declares the resource current.
	fillPushed = coverWait

	// maxDeclared bounds an annotation of the declaration in bytes: an API server keeps at most 256 KiB of annotations.
	maxDeclared = 256 << 10
)

// Coverage follows the pool leader's declarations of which resources are current in the coordinator's mirror ("covered"). The
// declaration that Coverage finds at first may be a dead leader's, so it counts only once it has changed. Each change counts for
// coverFresh by this machine's monotonic clock. Make one with NewCoverage.
type Coverage struct {
	ends    ends.Ends
	history *live.Value[edge.History]

	mu     sync.Mutex
	values map[schema.GroupResource]*live.Value[bool]
	fills  map[schema.GroupResource]*underWay
	seen   declaration
	until  time.Time   // when the declaration stops counting
	fading *time.Timer // fires at until; Run makes it
}

// underWay is a list that the leader is reading from the cloud.
type underWay struct {
	value *live.Value[bool]
	pages int       // as declared; 0 means that no list is under way
	until time.Time // when the list stops counting
}

// declaration is the content of the leader's Lease.
type declaration struct {
	uid     string
	renewed int64 // microseconds of its writer's clock: opaque
	text    string
	history edge.History // of the mirror's content
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

// History returns the history of the mirror's content, as a leader last declared it. From this value a hub learns of a change of
// history that it has not itself seen at the cloud.
func (c *Coverage) History() *live.Value[edge.History] { return c.history }

// Of returns a value that says, now and later, whether a resource is covered. Coverage keeps a value for each resource that was
// asked for, so ask only for configured resources, never for those of requests.
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

// Filling returns a value that says, now and later, whether the leader's list of a resource from the cloud makes progress. Ask
// only for configured resources, as with Of.
func (c *Coverage) Filling(r schema.GroupResource) *live.Value[bool] {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.fills[r]
	if f == nil {
		f = &underWay{value: &live.Value[bool]{}}
		c.fills[r] = f
		c.fillLocked(c.ends.Running())
		if f.value.Get() {
			c.fading.Reset(coverFresh) // the leader may be silent from now on
		}
	}
	return f.value
}

// fillLocked records which lists the leader is reading, and drops those that make no progress or have ended.
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

// Run follows the declarations at one coordinator, as lead.State.Declared shows them, until ctx ends, and returns nil.
// Afterwards nothing is covered. Only one Run may be active at a time.
func (c *Coverage) Run(ctx context.Context, at *live.Value[lead.Sighting]) error {
	fading := time.AfterFunc(coverFresh, c.fade)
	defer fading.Stop()
	c.mu.Lock()
	c.fading = fading
	c.mu.Unlock()
	defer c.forget()
	for first := true; ; first = false {
		seen, changed := at.Watch()
		switch {
		case !seen.Known:
			c.forget()
		case seen.Lease == nil:
			c.apply(declaration{}, !first && !seen.Found)
		default:
			c.apply(declared(seen.Lease), !first && !seen.Found)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// fade withdraws what no longer counts.
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

// apply records a declaration; happened says that it was seen to change.
func (c *Coverage) apply(d declaration, happened bool) {
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

// parseFilling parses the annotation edge.AnnotationFilling: for each resource that the leader lists, a number that grows with
// the list's progress. It returns nil for an unreadable annotation.
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

// parseApplied returns the resources that the annotation edge.AnnotationAppliedRevisions names. It skips a resource without a
// name or with a malformed revision. The revisions are only for people: hubs learn the mirror's revision from the mirror itself.
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
