package access

import (
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/coordination"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

const (
	// maxDeclared bounds the resources that are remembered: twice what the mirror keeps.
	maxDeclared = 64
	// maxDeclaredFor bounds for how long a leader may say that its declaration counts.
	maxDeclaredFor = time.Minute
)

// Declared knows which resources the pool's leader declares as current at this coordinator, by renewing the Lease
// edge.LeaseInformerSync. Its methods may be called concurrently.
type Declared struct {
	clock ends.Clock

	mu sync.Mutex
	// last is when each resource was last declared, by the wall clock. named holds the resources of the last declaration. until
	// is when that declaration lapses, by the monotonic clock.
	last  map[schema.GroupResource]time.Time
	named map[schema.GroupResource]struct{}
	until time.Time
}

func newDeclared(c ends.Clock) *Declared {
	return &Declared{clock: c, last: map[schema.GroupResource]time.Time{}}
}

// Current reports whether a resource is declared now, and the wall-clock time of its last declaration; zero means never.
func (d *Declared) Current(r schema.GroupResource) (now bool, last time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, named := d.named[r]
	return named && d.clock.Until(d.until) > 0, d.last[r]
}

// admitted notes a declaration that is about to be stored. One that nobody holds, or that can't be read, declares nothing.
func (d *Declared) admitted(lease *coordination.Lease) {
	var applied map[string]string
	if json.Unmarshal([]byte(lease.Annotations[edge.AnnotationAppliedRevisions]), &applied) != nil ||
		valueOf(lease.Spec.HolderIdentity) == "" {
		applied = nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	d.named = make(map[schema.GroupResource]struct{}, len(applied))
	d.until = now.Running.Add(min(seconds(lease.Spec.LeaseDurationSeconds), maxDeclaredFor))
	for name := range applied {
		r := schema.ParseGroupResource(name)
		if _, known := d.last[r]; known || len(d.last) < maxDeclared {
			d.named[r], d.last[r] = struct{}{}, now.Wall
		}
	}
}
