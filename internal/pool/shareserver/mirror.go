package shareserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/replica"
)

// The mirror is how a pool's resources come into the coordinator, and where the pool's hubs read them, with the cloud's
// revisions:
//
//	GET  /mirror/v1                                   what is there, and how far each resource has come
//	GET  /mirror/v1/{group|core}/{version}/{resource} list, or watch, as an API server would serve it
//	POST /mirror/v1/{group|core}/{version}/{resource} the leader, or a filler, pushes
//
// An acknowledged revision is in the mirror's replica, which hubs read. If kube-apiserver serves the resource, it is also in etcd
// under kube-apiserver's keys, which everybody else reads through the API.
const (
	// maxMirrored bounds how many resources the mirror keeps.
	maxMirrored = 32
	// mirrorWait is how long a read waits for a resource that is being filled for the first time.
	mirrorWait = time.Second
)

// Mirror keeps the pool's resources. Its methods may be called concurrently.
type Mirror struct {
	*share
	instance string
	quota    int64 // bytes, in all
	clock    ends.Clock
	began    time.Time
	current  func(r schema.GroupResource) (now bool, last time.Time)
	leads    func(ctx context.Context, n edge.NodeName, term int32) error
	fills    func(ctx context.Context, n edge.NodeName, turn int32) error
	write    Writer
	builtIns map[schema.GroupVersionResource]BuiltIn

	// The share's mu guards these.
	mirrored map[schema.GroupVersionResource]*mirrored
	reading  int64 // bytes read from bodies that are not in a replica yet
}

// MirrorConfig says what a mirror needs. All fields but Stalled and Current must be set.
type MirrorConfig struct {
	Quota int64 // of all resources, including their history
	Clock ends.Clock
	// Leads returns why a node that claims to lead under a term must not push; nil means that it may.
	Leads func(ctx context.Context, n edge.NodeName, term int32) error
	// Fills returns why a node that claims to be the filler under a turn must not push; nil means that it may.
	Fills func(ctx context.Context, n edge.NodeName, turn int32) error
	Write Writer
	// BuiltIns are the resources that kube-apiserver also serves, with where it keeps them.
	BuiltIns map[schema.GroupVersionResource]BuiltIn
	// Current reports whether the leader declares a resource current now, and when it last did; the zero time means never. A nil
	// Current means that nobody ever does.
	Current func(r schema.GroupResource) (now bool, last time.Time)
	Stalled time.Duration // how long a body may bring nothing; 0 means exchange.StallTimeout
}

// NewMirror returns a mirror that holds nothing yet.
func NewMirror(c MirrorConfig) *Mirror {
	if c.Current == nil {
		c.Current = func(schema.GroupResource) (bool, time.Time) { return false, time.Time{} }
	}
	m := &Mirror{
		instance: rand.Text(),
		quota:    c.Quota,
		clock:    c.Clock,
		began:    c.Clock.Wall(),
		current:  c.Current,
		leads:    c.Leads,
		fills:    c.Fills,
		write:    c.Write,
		builtIns: c.BuiltIns,
		mirrored: map[schema.GroupVersionResource]*mirrored{},
	}
	m.share = newShare(edge.PathMirror, m, c.Quota+exchange.MaxFrame, cmp.Or(c.Stalled, exchange.StallTimeout))
	return m
}

// Close ends all watches and all streams of changes.
func (m *Mirror) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeLocked()
	for _, each := range m.mirrored {
		each.replica.Close()
	}
	return nil
}

// accepts returns why a push may not bring a resource; nil means that it may. It allows the few resources in builtIns. It also
// allows any resource of a group that is not Kubernetes' own, because kube-apiserver does not serve those here. So no push can
// write a Secret, a role, a Lease, a Node or a Pod.
func (m *Mirror) accepts(r schema.GroupVersionResource) error {
	if _, ok := m.builtIns[r]; ok {
		return nil
	}
	for known := range m.builtIns {
		if known.GroupResource() == r.GroupResource() {
			return exchange.Refused(http.StatusUnprocessableEntity, "%s is stored as %s here: push that version",
				r.GroupResource(), known.Version)
		}
	}
	// Kubernetes' groups have no dot (apps, batch) or end in k8s.io; a CRD's group must have a dot.
	if !strings.Contains(r.Group, ".") || r.Group == "k8s.io" || strings.HasSuffix(r.Group, ".k8s.io") {
		return exchange.Refused(http.StatusForbidden, "%s is not a resource that can be pushed: of Kubernetes' own there are "+
			"endpoints, endpointslices.discovery.k8s.io and services", r.GroupResource())
	}
	return nil
}

// get returns a resource that has been pushed, or nil.
func (m *Mirror) get(r schema.GroupVersionResource) *mirrored {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mirrored[r]
}

// getOrMake returns a resource to push into.
func (m *Mirror) getOrMake(r schema.GroupVersionResource) (*mirrored, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errStopping
	}
	if each, ok := m.mirrored[r]; ok {
		return each, nil
	}
	return m.makeLocked(r, r)
}

// makeLocked makes a resource that is pushed as r, and served as this or another.
func (m *Mirror) makeLocked(r, as schema.GroupVersionResource) (*mirrored, error) {
	if len(m.mirrored) >= maxMirrored {
		return nil, exchange.Refused(http.StatusUnprocessableEntity, "%d resources are already mirrored, which is the limit; "+
			"let the hubs share fewer", maxMirrored)
	}
	each := newMirrored(r, as, m.write, m.builtIns[r])
	m.mirrored[r] = each
	return each, nil
}

// reserve reserves bytes of the quota while a body is read. give returns them.
func (m *Mirror) reserve(bytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := m.reading
	for _, each := range m.mirrored {
		stats := each.replica.Stats()
		used += int64(stats.ObjectBytes) + int64(stats.Objects)*exchange.ObjectOverhead + int64(stats.HistoryBytes)
	}
	if used+bytes > m.quota {
		return exchange.Refused(http.StatusRequestEntityTooLarge,
			"the pool's resources, with what is being pushed, take more than "+
				"%d bytes; share fewer, or raise --mirror-quota-bytes of the coordinator", m.quota)
	}
	m.reading += bytes
	return nil
}

func (m *Mirror) give(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading -= bytes
}

// read serves a list or a watch.
func (m *Mirror) read(w http.ResponseWriter, r *http.Request, resource schema.GroupVersionResource) error {
	each := m.get(resource)
	if each == nil {
		return &exchange.Refusal{
			Code: http.StatusServiceUnavailable, RetryAfter: time.Second,
			Message: fmt.Sprintf("%s has not been pushed here yet; read it from the cloud", resource.GroupResource()),
		}
	}
	in, at := each.replica.History(), each.Position()
	verb := "list"
	if MayLast(r) {
		verb = "watch"
		// Revisions of two histories can't be compared: a client that resumes in another one must list again.
		asked, err := edge.ParseHistory(r.Header.Get(edge.HeaderHistory))
		if err != nil {
			return exchange.Refused(http.StatusBadRequest, "%s: %v", edge.HeaderHistory, err)
		}
		switch {
		case asked == in || at == 0:
		case in.IsFilled():
			return &exchange.Refusal{
				Code: http.StatusServiceUnavailable, RetryAfter: completeRetry, Message: fmt.Sprintf("%s was brought here by a "+
					"node without a link to the cloud, and follows on from nothing of the cloud's", resource.GroupResource()),
			}
		default:
			return exchange.Refused(http.StatusGone, "the mirror is in history %d of the cloud, not %d: list it", in, asked)
		}
	}
	w.Header().Set(edge.HeaderHistory, in.String())
	w.Header().Set(edge.HeaderRevision, at.String())
	each.handler.Serve(w, r, replica.Request{Verb: verb})
	return nil
}

// answerState answers with what is here.
func (m *Mirror) answerState(a *exchange.Reply, _ *http.Request) error {
	return a.Tell(http.StatusOK, m.state())
}

func (m *Mirror) state() edge.PoolState {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := edge.PoolState{Instance: m.instance, Resources: []edge.ResourceState{}}
	for r, each := range m.mirrored {
		stats, in := each.replica.Stats(), each.replica.History()
		found.Resources = append(found.Resources, edge.ResourceState{
			Group: r.Group, Version: r.Version, Resource: r.Resource, Applied: stats.Position,
			History: in.OfCloud(), Filled: in.IsFilled(),
			Objects: stats.Objects, Bytes: stats.ObjectBytes + stats.HistoryBytes, Watchers: stats.Watchers,
		})
	}
	slices.SortFunc(found.Resources, func(a, b edge.ResourceState) int {
		return strings.Compare(a.Group+"/"+a.Resource+"/"+a.Version, b.Group+"/"+b.Resource+"/"+b.Version)
	})
	return found
}
