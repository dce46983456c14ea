package cloudscale

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
)

const (
	// inFlight bounds how many heartbeats are under way.
	inFlight = 64
	// directConnections is how many connections direct heartbeats share.
	directConnections = 4
	// reportEvery is how often a kubelet reports an unchanged status (nodeStatusReportFrequency).
	reportEvery = 5 * time.Minute
)

// member is a node as the load knows it.
type member struct {
	name edge.NodeName
	pool int

	mu    sync.Mutex
	lease *coordinationv1.Lease // as the API server returned it last
	cut   bool                  // the state of its link: its heartbeats are delegated
}

// load renews Leases and reports statuses.
type load struct {
	members []*member // the first of each pool, then the second of each, and so on
	direct  []coordinationclient.LeaseInterface
	leaders []coordinationclient.LeaseInterface // by pool; pools are numbered from 1
	nodes   coreclient.NodeInterface

	rate                              atomic.Int64 // heartbeats a second
	sentDirect, sentDelegated, failed atomic.Int64
	reported                          atomic.Int64

	mu    sync.Mutex
	lasts error           // the last failure
	took  []time.Duration // of heartbeats, while timed
	timed bool
}

// newLoad returns a load that may send requests as any node, over its own connections.
func newLoad(admin *rest.Config, members []*member) (*load, error) {
	l := &load{members: members}
	for range directConnections {
		cfg := binary(admin)
		cfg.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext // a different function makes a different connection
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return asNode{next} })
		client, err := coordinationclient.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		l.direct = append(l.direct, client.Leases(corev1.NamespaceNodeLease))
	}
	core, err := coreclient.NewForConfig(binary(admin))
	if err != nil {
		return nil, err
	}
	l.nodes = core.Nodes()
	return l, nil
}

func binary(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf
	return cfg
}

// connectLeaders gives each pool the connection of its leader's node, which sends the forwarded heartbeats.
func (l *load) connectLeaders(c *cluster, pools int) error {
	l.leaders = make([]coordinationclient.LeaseInterface, 1+pools)
	return each(pools, func(i int) error {
		pool := 1 + i
		name := nodeName(pool, 1)
		cfg, err := c.as("leader-"+string(name), name.User(), edge.GroupNodes)
		if err != nil {
			return err
		}
		cfg = binary(cfg)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: poolName(pool).ForwardingUser()}
		client, err := coordinationclient.NewForConfig(cfg)
		if err != nil {
			return err
		}
		l.leaders[pool] = client.Leases(corev1.NamespaceNodeLease)
		return nil
	})
}

// userOf is a context key: the node that sends a request.
type userOf struct{}

// asNode sends each request as the node in its context.
type asNode struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a asNode) RoundTrip(r *http.Request) (*http.Response, error) {
	if n, ok := r.Context().Value(userOf{}).(edge.NodeName); ok {
		r = r.Clone(r.Context())
		r.Header.Set("Impersonate-User", n.User())
		r.Header.Set("Impersonate-Group", edge.GroupNodes)
	}
	return a.next.RoundTrip(r)
}

// run renews Leases at l.rate, and reports statuses, until ctx ends.
func (l *load) run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() {
		paced(ctx, 2, func() float64 { return float64(len(l.members)) / reportEvery.Seconds() }, func(i int) {
			l.count(ctx, &l.reported, l.report(ctx, l.members[i%len(l.members)]))
		})
	})
	paced(ctx, inFlight, func() float64 { return float64(l.rate.Load()) }, func(i int) {
		_ = l.beat(ctx, l.members[i%len(l.members)]) // it counts failures itself
	})
}

// paced calls do for 0, 1, 2 … at a rate per second that may change, on a number of workers. When all workers are busy, it
// waits, and does not catch up on missed calls.
func paced(ctx context.Context, workers int, rate func() float64, do func(i int)) {
	var working sync.WaitGroup
	defer working.Wait()
	work := make(chan int)
	defer close(work)
	for range workers {
		working.Go(func() {
			for i := range work {
				do(i)
			}
		})
	}
	const slack = 50 * time.Millisecond
	due := time.Now()
	for i := 0; ; i++ {
		due = due.Add(time.Duration(float64(time.Second) / max(rate(), 0.01)))
		if wait := time.Until(due); wait < -slack {
			due = time.Now()
		} else if wait > time.Millisecond {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		}
		select {
		case work <- i:
		case <-ctx.Done():
			return
		}
	}
}

// beat renews a node's Lease once, in the way that suits its link.
func (l *load) beat(ctx context.Context, m *member) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return l.beatLocked(ctx, m)
}

// link cuts or heals a node's link. It returns when the first heartbeat after that is answered, with that time.
func (l *load) link(ctx context.Context, m *member, cut bool) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = cut
	err := l.beatLocked(ctx, m)
	return time.Now(), err
}

func (l *load) beatLocked(ctx context.Context, m *member) error {
	by, sent := l.direct[m.pool%len(l.direct)], &l.sentDirect
	ctx = context.WithValue(ctx, userOf{}, m.name)
	if m.cut {
		by, sent = l.leaders[m.pool], &l.sentDelegated
	}
	began := time.Now()
	lease := m.lease.DeepCopy()
	lease.Spec.RenewTime = &metav1.MicroTime{Time: began}
	delete(lease.Annotations, edge.DelegateHeartbeat)
	if m.cut {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
	}
	written, err := by.Update(ctx, lease, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) { // an answer was lost
		if fresh, err := by.Get(ctx, lease.Name, metav1.GetOptions{}); err == nil {
			m.lease = fresh
		}
	}
	if err == nil {
		m.lease = written
		l.time(time.Since(began))
	}
	l.count(ctx, sent, err)
	return err
}

// report writes a Node's status as its kubelet does for an unchanged status.
func (l *load) report(ctx context.Context, m *member) error {
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`,
		time.Now().UTC().Format(time.RFC3339))
	_, err := l.nodes.Patch(ctx, string(m.name), types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

func (l *load) count(ctx context.Context, done *atomic.Int64, err error) {
	if err == nil {
		done.Add(1)
		return
	}
	if ctx.Err() != nil {
		return // it was cancelled
	}
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lasts = err
}

func (l *load) time(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed {
		l.took = append(l.took, took)
	}
}

// clock begins to time heartbeats, or stops and returns the times.
func (l *load) clock(on bool) []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := l.took
	l.timed, l.took = on, nil
	return took
}

// beats returns how many heartbeats have been answered.
func (l *load) beats() int64 { return l.sentDirect.Load() + l.sentDelegated.Load() }

// trouble returns the last failure; nil means none.
func (l *load) trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lasts
}

// writers is how many objects are created at a time.
const writers = 16

// each calls do for 0 to n-1, several at a time, and returns the first error.
func each(n int, do func(i int) error) error {
	working, going := errgroup.WithContext(context.Background())
	working.SetLimit(writers)
	for i := 0; i < n && going.Err() == nil; i++ {
		working.Go(func() error { return do(i) })
	}
	return working.Wait()
}
