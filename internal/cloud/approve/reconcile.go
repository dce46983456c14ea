package approve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

const (
	controllerName = "approve"

	// reasonHub and the others are the reasons of the approving Condition and of the Events.
	reasonHub, reasonKubelet, reasonCoordinator = "HubServing", "KubeletServing", "CoordinatorKubeletClient"

	// lookFirst and lookLast bound the wait before a request that was not approved is judged again, because a node may get its
	// addresses later. Between them, the wait equals the request's age. Kubernetes removes a request without an answer after a
	// day.
	lookFirst, lookLast = 2 * time.Second, 5 * time.Minute

	// reconcileTimeout bounds one judgement with its write; workers is how many judgements run at a time. A write takes some
	// milliseconds. If 10,000 nodes ask at once, each waits for at most 2 minutes.
	reconcileTimeout = 15 * time.Second
	workers          = 4

	// maxOpen is how many open requests of one node are judged, the newest first. A kubelet waits only for its last request, and
	// makes another every 15 minutes.
	maxOpen = 4
	// maxSaid bounds the requests of which it is known what was said in the log.
	maxSaid = 10_000

	// byAddress and byUser are the indexes of Nodes by their addresses, and of open requests by who made them.
	byAddress, byUser = "address", "open-by-user"
)

// Config is what an Approver needs. All fields but Kubelets and Allowed are required.
type Config struct {
	// Kubelets enables the approval of requests from kubelets whose nodes are in a pool, within what is Allowed.
	Kubelets bool
	Allowed  Allowed
	// Server is the API server as this program knows it, a URL or HOST:PORT, and Resolver finds its addresses.
	Server   string
	Resolver Resolver

	// Client writes, and reads requests and Nodes from the manager's cache. The cache needs the options of Cached.
	Client client.Client
	// Reader reads from the API server itself.
	Reader client.Reader
	// Events receives the Events on requests, and bounds their rate.
	Events events.EventRecorder
	Clock  clock.PassiveClock
}

// Approver is the controller.
type Approver struct {
	cfg    Config
	places *places
	judged *prometheus.CounterVec
	said   *lru.Cache // a request, or all of a node beyond maxOpen → what was said of it last
}

// New returns an Approver. AddTo registers it.
func New(c Config) *Approver {
	return &Approver{
		cfg: c, said: lru.New(maxSaid),
		places: &places{reader: c.Reader, server: c.Server, resolver: c.Resolver, clock: c.Clock},
		judged: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coordinator_controller_serving_requests_total",
			Help: "Judgements of requests for certificates, by whose it is (kubelet, hub, coordinator) and what came of it: " +
				"approved, left (judged again later), crowd (not looked at, for its node has newer ones).",
		}, []string{"of", "outcome"}),
	}
}

// Metrics returns the metrics of the controller.
func (a *Approver) Metrics() prometheus.Collector { return a.judged }

// Cached says what the manager's cache must hold, for this controller and for package operators.
func Cached() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&certificatesv1.CertificateSigningRequest{}: {
			// Client certificates of kubelets, which are most requests, are left out. Our own signers can't be selected: their
			// names contain the pool's, and a field selector knows no prefixes.
			Field: fields.OneTermNotEqualSelector("spec.signerName", certificatesv1.KubeAPIServerClientKubeletSignerName),
		},
	}
}

// AddTo registers the controller with a manager, to run while the manager leads.
func (a *Approver) AddTo(mgr manager.Manager) error {
	for _, i := range indexes() {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), i.of, i.name, i.values); err != nil {
			return err
		}
	}
	type request = *certificatesv1.CertificateSigningRequest
	requests := source.Kind(mgr.GetCache(), &certificatesv1.CertificateSigningRequest{},
		&handler.TypedEnqueueRequestForObject[request]{}, predicate.TypedFuncs[request]{
			CreateFunc: func(e event.TypedCreateEvent[request]) bool { return a.concerns(e.Object) },
			UpdateFunc: func(e event.TypedUpdateEvent[request]) bool { return a.concerns(e.ObjectNew) },
			DeleteFunc: func(event.TypedDeleteEvent[request]) bool { return false },
		})
	return control.Controller{
		Name: controllerName, Reconciler: a, Workers: workers, Timeout: reconcileTimeout, RetryMax: lookLast,
		Watch: []source.Source{requests},
	}.AddTo(mgr)
}

// index is one of what the manager's cache holds.
type index struct {
	of     client.Object
	name   string
	values client.IndexerFunc
}

func indexes() []index {
	return []index{
		{&corev1.Node{}, byAddress, func(o client.Object) (all []string) {
			if node, ok := o.(*corev1.Node); ok {
				for _, ip := range addressesOf(node) {
					all = append(all, ip.String())
				}
			}
			return all
		}},
		{&certificatesv1.CertificateSigningRequest{}, byUser, func(o client.Object) []string {
			if r, ok := o.(*certificatesv1.CertificateSigningRequest); ok && waits(r) {
				return []string{r.Spec.Username}
			}
			return nil
		}},
	}
}

func (a *Approver) concerns(r *certificatesv1.CertificateSigningRequest) bool {
	return waits(r) && (isHubs(r) || isCoordinators(r) || a.cfg.Kubelets)
}

// errNotOurs says that the node is in no pool, so no coordinator calls its kubelet.
var errNotOurs = errors.New("its node is in no pool")

// Reconcile implements reconcile.Reconciler.
func (a *Approver) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	asked := &certificatesv1.CertificateSigningRequest{}
	if err := a.cfg.Client.Get(ctx, r.NamespacedName, asked); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !a.concerns(asked) {
		return reconcile.Result{}, nil
	}
	if isCoordinators(asked) {
		return reconcile.Result{}, a.coordinators(ctx, asked)
	}
	of, reason := "kubelet", reasonKubelet
	if isHubs(asked) {
		of, reason = "hub", reasonHub
	}
	newer, err := a.newer(ctx, asked)
	if err != nil {
		return reconcile.Result{}, err
	}
	if newer {
		a.judged.WithLabelValues(of, "crowd").Inc()
		a.say(ctx, asked, "crowd "+asked.Spec.Username, fmt.Sprintf("its node has %d newer ones", maxOpen))
		return reconcile.Result{}, nil
	}
	why, err := a.judge(ctx, asked)
	if err != nil {
		return reconcile.Result{}, err
	}
	if errors.Is(why, errNotOurs) { // the node may join a pool while its kubelet waits
		return reconcile.Result{RequeueAfter: lookLast}, nil
	}
	if why != nil {
		a.judged.WithLabelValues(of, "left").Inc()
		reads := bounded(why.Error())
		a.say(ctx, asked, asked.Name, reads)
		a.cfg.Events.Eventf(asked, nil, corev1.EventTypeWarning, reason, "Approve",
			"Not approved: %s. To approve it anyway: kubectl certificate approve %s", reads, asked.Name)
		age := a.cfg.Clock.Since(asked.CreationTimestamp.Time)
		return reconcile.Result{RequeueAfter: min(max(age, lookFirst), lookLast)}, nil
	}
	const message = "The node asked for it itself, for its own addresses."
	return reconcile.Result{}, a.approve(ctx, asked, of, reason, message)
}

// coordinators answers a request for a coordinator's client certificate. If it does not approve the request, it sets no time to
// judge it again, because what a request asks for never changes.
func (a *Approver) coordinators(ctx context.Context, asked *certificatesv1.CertificateSigningRequest) error {
	const of = "coordinator"
	if why := JudgeCoordinators(asked); why != nil {
		a.judged.WithLabelValues(of, "left").Inc()
		reads := bounded(why.Error())
		a.say(ctx, asked, asked.Name, reads)
		a.cfg.Events.Eventf(asked, nil, corev1.EventTypeWarning, reasonCoordinator, "Approve",
			"Not approved: %s. Check whether somebody has taken over coordinator-controller.", reads)
		return nil
	}
	const message = "It only lets a pool's coordinator call kubelets."
	return a.approve(ctx, asked, of, reasonCoordinator, message)
}

func (a *Approver) approve(
	ctx context.Context, asked *certificatesv1.CertificateSigningRequest, of, reason, message string,
) error {
	asked = asked.DeepCopy()
	asked.Status.Conditions = append(asked.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: reason, Message: message,
	})
	if err := a.cfg.Client.SubResource("approval").Update(ctx, asked); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // another replica was faster; the change comes as an event
		}
		return fmt.Errorf("approve %s: %w", asked.Name, err)
	}
	a.judged.WithLabelValues(of, "approved").Inc()
	klog.FromContext(ctx).Info("Approved a request", "request", asked.Name, "for", reason, "by", asked.Spec.Username)
	return nil
}

// say logs why a request is not approved, once of each subject while the reason is the same.
func (a *Approver) say(ctx context.Context, asked *certificatesv1.CertificateSigningRequest, subject, why string) {
	if last, ok := a.said.Get(subject); !ok || last != why {
		a.said.Add(subject, why)
		klog.FromContext(ctx).Info("Did not approve a request", "request", asked.Name, "by", asked.Spec.Username, "why", why)
	}
}

// newer reports whether whoever made a request has made so many newer ones that it is not looked at.
func (a *Approver) newer(ctx context.Context, asked *certificatesv1.CertificateSigningRequest) (bool, error) {
	open := &certificatesv1.CertificateSigningRequestList{}
	err := a.cfg.Client.List(ctx, open, client.MatchingFields{byUser: asked.Spec.Username}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("open requests: %w", err)
	}
	newer := 0
	for i := range open.Items {
		if other := &open.Items[i]; a.concerns(other) && cmp.Or(
			other.CreationTimestamp.Compare(asked.CreationTimestamp.Time), cmp.Compare(other.Name, asked.Name)) > 0 {
			newer++
		}
	}
	return newer >= maxOpen, nil
}

// judge returns the reason against a request, or an error if it can't find out.
func (a *Approver) judge(ctx context.Context, asked *certificatesv1.CertificateSigningRequest) (why, err error) {
	name := NodeOf(asked)
	if name == "" && !isHubs(asked) {
		return errNotOurs, nil
	}
	if name == "" {
		return fmt.Errorf("%q, which made it, is not a node", asked.Spec.Username), nil
	}
	node := &corev1.Node{}
	err = a.cfg.Client.Get(ctx, client.ObjectKey{Name: string(name)}, node)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("node %s: %w", name, err)
	}
	if !isHubs(asked) && (err != nil || node.Labels[edge.LabelNodePool] == "") {
		return errNotOurs, nil
	}
	if err != nil {
		return fmt.Errorf("there is no node %s", name), nil
	}
	reserved, err := a.places.reserved(ctx)
	if err != nil {
		return nil, err
	}
	return Judge(asked, node, Situation{
		Allowed: a.cfg.Allowed, Reserved: reserved,
		Others: func(ip netip.Addr) (string, error) { return a.otherWith(ctx, ip, node.Name) },
	})
}

// otherWith returns another Node that says it has an address; empty means none.
func (a *Approver) otherWith(ctx context.Context, ip netip.Addr, name string) (string, error) {
	nodes := &corev1.NodeList{}
	err := a.cfg.Client.List(ctx, nodes, client.MatchingFields{byAddress: ip.String()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return "", fmt.Errorf("nodes with the address %s: %w", ip, err)
	}
	i := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Name != name })
	if i < 0 {
		return "", nil
	}
	return nodes.Items[i].Name, nil
}
