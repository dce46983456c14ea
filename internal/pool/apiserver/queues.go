package apiserver

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

const (
	// mostQueued bounds what waits for a caller in all of its watches together, and mostQueuedOfAll what waits for all callers.
	// While more than mostQueuedOfAll waits, each caller may have only queuedShare. All are bytes as etcd stores them. A decoded
	// object takes two to four times as many.
	mostQueued      = 16 << 20
	mostQueuedOfAll = 48 << 20
	queuedShare     = 512 << 10
	// mostListing bounds a caller's watches that have not sent all of their initial list. It is the same number as that of a
	// caller's ordinary requests (package limits).
	mostListing = 16
	// unknownSize is what an object counts whose size nobody can tell, in bytes.
	unknownSize = 4 << 10
)

// limit is what ends a watch before its client does.
type limit string

const (
	byStall limit = "unread"    // its client has taken nothing for stallTimeout
	byBytes limit = "queued"    // too much waits for its caller, or for all
	byTime  limit = "slow-list" // its list has taken listTimeout
	byLists limit = "listing"   // its caller has mostListing that begin with a list; it was refused
)

var limited = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "yurt_coordinator_limited_watches_total",
	Help: "Watches that were ended because their client does not read (unread), because too many bytes wait for their caller " +
		"(queued) or because their first list took too long (slow-list), and that were refused because their caller has too " +
		"many that begin with a list (listing)",
	StabilityLevel: metrics.ALPHA,
}, []string{"limit"})

var registerLimited = sync.OnceFunc(func() {
	legacyregistry.MustRegister(limited)
	for _, why := range []limit{byStall, byBytes, byTime, byLists} {
		limited.WithLabelValues(string(why))
	}
})

// queues know what each caller's watches hold. This process itself has no bound.
type queues struct {
	versions runtime.GroupVersioner // in which objects are stored

	mu    sync.Mutex
	bytes int64            // of all
	of    map[string]*held // by the caller's name; without empty ones
}

// held is what one caller's watches hold.
type held struct {
	bytes   int64
	listing int
}

func newQueues() *queues {
	registerLimited()
	return &queues{
		versions: schema.GroupVersions(legacyscheme.Scheme.PrioritizedVersionsAllGroups()), of: map[string]*held{},
	}
}

// caller returns the name under which a request's caller is counted, and false for this process itself.
func caller(ctx context.Context) (name string, counts bool) {
	of, ok := request.UserFrom(ctx)
	if !ok || slices.Contains(of.GetGroups(), user.SystemPrivilegedGroup) {
		return "", false
	}
	return of.GetName(), true
}

// add counts bytes that wait for a caller, unless they are too many with those that wait already. Negative ones always fit.
func (q *queues) add(caller string, bytes int64) bool {
	return q.change(caller, func(h *held) bool {
		most := int64(mostQueued)
		if q.bytes+bytes > mostQueuedOfAll {
			most = queuedShare
		}
		fits := bytes <= 0 || h.bytes+bytes <= most
		if fits {
			h.bytes += bytes
			q.bytes += bytes
		}
		return fits
	})
}

// list counts a watch that begins with a list, unless there are too many.
func (q *queues) list(caller string) error {
	if q.change(caller, func(h *held) bool {
		fits := h.listing < mostListing
		if fits {
			h.listing++
		}
		return fits
	}) {
		return nil
	}
	limited.WithLabelValues(string(byLists)).Inc()
	return apierrors.NewTooManyRequests(fmt.Sprintf("%d of your watches still send what there was when they began; read these, "+
		"or list and then watch from the list's resourceVersion", mostListing), 1)
}

// listed says that a watch has sent its list.
func (q *queues) listed(caller string) {
	q.change(caller, func(h *held) bool {
		h.listing--
		return true
	})
}

func (q *queues) change(caller string, change func(*held) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.of[caller]
	if h == nil {
		h = &held{}
		q.of[caller] = h
	}
	changed := change(h)
	if *h == (held{}) {
		delete(q.of, caller)
	}
	return changed
}

// sizeOf returns how many bytes an object takes in etcd.
func (q *queues) sizeOf(o runtime.Object) int64 {
	if _, stored := o.(interface{ Size() int }); !stored {
		if as, err := legacyscheme.Scheme.UnsafeConvertToVersion(o, q.versions); err == nil {
			o = as
		}
	}
	if sized, ok := o.(interface{ Size() int }); ok {
		return int64(sized.Size())
	}
	return unknownSize
}
