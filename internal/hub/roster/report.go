package roster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
)

const (
	// lookEvery is how often the Leases in the coordinator are listed: half of the shortest time between two heartbeats.
	lookEvery = 5 * time.Second
	// sayEvery is how often a report that has not changed is written again.
	sayEvery = time.Minute
	// callTimeout bounds one request.
	callTimeout = 5 * time.Second
)

// retries are the pauses after failed writes: at first not longer than until the next look, at last sayEvery and a half.
func retries() *wait.Backoff {
	return &wait.Backoff{Duration: lookEvery / 2, Factor: 2, Jitter: 0.5, Steps: 30, Cap: sayEvery}
}

// Term is the leader's term; role.Term is one.
type Term interface {
	// Valid reports whether this hub may act as the leader right now.
	Valid() bool
}

// Config says who reports, and where. All fields are required.
type Config struct {
	Node edge.NodeName
	Pool edge.PoolName
	// Coordinator is a client of the coordinator. The hub must be allowed to list the Leases in kube-node-lease there.
	Coordinator coordinationv1client.LeasesGetter
	// Cloud is a client of the cloud with the pool's forwarding identity, which must be allowed to get, update and create
	// the Lease edge.PoolName.ReportLease in kube-node-lease (see internal/cloud/forwarding).
	Cloud coordinationv1client.LeasesGetter
}

// Reporter reports, for one term at a time.
type Reporter struct{ cfg Config }

// New returns a Reporter.
func New(cfg Config) *Reporter { return &Reporter{cfg} }

// report is what the cloud was last told.
type report struct {
	nodes []edge.NodeName
	at    time.Time // zero: never
}

// Run reports for one term, until ctx ends; it returns nil then. It must not run twice at a time.
func (r *Reporter) Run(ctx context.Context, term Term, transitions int32) error {
	log := klog.FromContext(ctx)
	var book ledger
	var last report
	var next time.Time // it is told: not before
	pauses := retries()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for ; ctx.Err() == nil; waitFor(ctx, ticker.C) {
		leases, err := r.list(ctx)
		now := time.Now()
		if err != nil {
			log.V(2).Info("Cannot see who reaches the coordinator", "err", err)
			continue // nothing is seen to change meanwhile: a coordinator that is gone takes its leader with it
		}
		book.observe(leases, now)
		nodes, ok := book.reached(now)
		due := last.at.IsZero() || now.Sub(last.at) >= sayEvery || !slices.Equal(nodes, last.nodes)
		if !ok || !due || now.Before(next) || !term.Valid() {
			continue
		}
		if err := r.tell(ctx, nodes, book.traffic(nodes), transitions); err != nil {
			log.V(1).Info("Cannot tell the cloud who reaches the coordinator", "err", err)
			next = now.Add(pauses.Step())
			continue
		}
		last, pauses = report{nodes: nodes, at: now}, retries()
	}
	return nil
}

func waitFor(ctx context.Context, tick <-chan time.Time) {
	select {
	case <-tick:
	case <-ctx.Done():
	}
}

func (r *Reporter) list(ctx context.Context) ([]coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := r.cfg.Coordinator.Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// tell writes the report. A Lease that is missing is made by PUT: RBAC cannot allow a POST of one name.
func (r *Reporter) tell(
	ctx context.Context, nodes []edge.NodeName, traffic map[edge.NodeName]edge.Traffic, transitions int32,
) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	name := r.cfg.Pool.ReportLease()
	leases := r.cfg.Cloud.Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: name, Labels: map[string]string{edge.LabelNodePool: string(r.cfg.Pool)},
		}}
	} else if err != nil {
		return fmt.Errorf("get Lease %s: %w", name, err)
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationReachedNodes, edge.JoinNodes(nodes))
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationTraffic, edge.JoinTraffic(traffic))
	lease.Spec.HolderIdentity = ptr.To(string(r.cfg.Node))
	lease.Spec.LeaseTransitions = ptr.To(transitions)
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(2 * sayEvery / time.Second))
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		if apierrors.IsConflict(err) {
			return errors.New("somebody else has just written it") // another leader: this one will know soon
		}
		return fmt.Errorf("write Lease %s: %w", name, err)
	}
	return nil
}
