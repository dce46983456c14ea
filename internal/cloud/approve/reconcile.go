package approve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
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

	// reasonHub and reasonKubelet are the reasons of the approving Condition and of the Events.
	reasonHub, reasonKubelet = "HubServing", "KubeletServing"

	// lookFirst and lookLast bound the time until a request that was not approved is judged again: a node may get its
	// addresses after it asks. It is judged when it is twice as old. The cloud removes a request after a day.
	lookFirst, lookLast = 2 * time.Second, 5 * time.Minute

	// reconcileTimeout bounds one judgement with its write.
	reconcileTimeout = 15 * time.Second
)

// Config is what an Approver needs. All fields but Kubelets are required.
type Config struct {
	// Kubelets enables the approval of requests from kubelets whose nodes are in a pool.
	Kubelets bool

	// Client writes, and reads requests and Nodes with their addresses from the manager's cache. The cache needs the
	// options of Cached.
	Client client.Client
	// Reader reads from the API server itself.
	Reader client.Reader
	// Events receives the Events on requests, and bounds their rate.
	Events events.EventRecorder
	Clock  clock.PassiveClock
}

// Approver is the controller.
type Approver struct{ cfg Config }

// New returns an Approver. AddTo registers it.
func New(c Config) *Approver { return &Approver{c} }

// Cached says what the manager's cache must hold, for this controller and for package operators.
func Cached() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&certificatesv1.CertificateSigningRequest{}: {
			// Not those for Kubernetes' own clients, which are most. Our own signers have a name for each pool, and a
			// field selector has no prefixes.
			Field: fields.AndSelectors(
				fields.OneTermNotEqualSelector("spec.signerName", certificatesv1.KubeAPIServerClientSignerName),
				fields.OneTermNotEqualSelector("spec.signerName", certificatesv1.KubeAPIServerClientKubeletSignerName)),
		},
	}
}

// AddTo registers the controller with a manager, to run while the manager leads.
func (a *Approver) AddTo(mgr manager.Manager) error {
	type request = *certificatesv1.CertificateSigningRequest
	requests := source.Kind(mgr.GetCache(), &certificatesv1.CertificateSigningRequest{},
		&handler.TypedEnqueueRequestForObject[request]{}, predicate.TypedFuncs[request]{
			CreateFunc: func(e event.TypedCreateEvent[request]) bool { return a.concerns(e.Object) },
			UpdateFunc: func(e event.TypedUpdateEvent[request]) bool { return a.concerns(e.ObjectNew) },
			DeleteFunc: func(event.TypedDeleteEvent[request]) bool { return false },
		})
	return control.Controller{
		Name: controllerName, Reconciler: a, Timeout: reconcileTimeout, RetryMax: lookLast, Watch: []source.Source{requests},
	}.AddTo(mgr)
}

func (a *Approver) concerns(r *certificatesv1.CertificateSigningRequest) bool {
	return waits(r) && (isHubs(r) || a.cfg.Kubelets)
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
	why, err := a.judge(ctx, asked)
	if err != nil {
		return reconcile.Result{}, err
	}
	if errors.Is(why, errNotOurs) { // the node may join a pool while its kubelet waits
		return reconcile.Result{RequeueAfter: lookLast}, nil
	}
	reason := reasonHub
	if !isHubs(asked) {
		reason = reasonKubelet
	}
	if why != nil {
		klog.FromContext(ctx).Info("Did not approve a request", "request", asked.Name, "why", why.Error())
		a.cfg.Events.Eventf(asked, nil, corev1.EventTypeWarning, reason, "Approve",
			"Not approved: %v. To approve it anyway: kubectl certificate approve %s", why, asked.Name)
		age := a.cfg.Clock.Since(asked.CreationTimestamp.Time)
		return reconcile.Result{RequeueAfter: min(max(age, lookFirst), lookLast)}, nil
	}
	asked = asked.DeepCopy()
	asked.Status.Conditions = append(asked.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: reason,
		Message: "The node asked for it itself, for addresses that are its own.",
	})
	if err := a.cfg.Client.SubResource("approval").Update(ctx, asked); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // another replica was faster; the change comes as an event
		}
		return reconcile.Result{}, fmt.Errorf("approve %s: %w", asked.Name, err)
	}
	klog.FromContext(ctx).Info("Approved a request", "request", asked.Name, "for", reason, "node", nodeOf(asked))
	return reconcile.Result{}, nil
}

// judge returns the reason against a request, or an error if it can't find out.
func (a *Approver) judge(ctx context.Context, asked *certificatesv1.CertificateSigningRequest) (why, err error) {
	name := nodeOf(asked)
	if name == "" && !isHubs(asked) {
		return errNotOurs, nil
	}
	if name == "" {
		return fmt.Errorf("%s, which made it, is not a node", asked.Spec.Username), nil
	}
	nodes := &corev1.NodeList{}
	if err := a.cfg.Client.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("addresses of nodes: %w", err)
	}
	master := &corev1.Service{}
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
	if err := a.cfg.Reader.Get(ctx, key, master); err != nil {
		return nil, fmt.Errorf("addresses of the API server: %w", err)
	}
	i := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == string(name) })
	if !isHubs(asked) && (i < 0 || nodes.Items[i].Labels[edge.LabelNodePool] == "") {
		return errNotOurs, nil
	}
	if i < 0 {
		return fmt.Errorf("there is no node %s", name), nil
	}
	return Judge(asked, &nodes.Items[i], func(ip net.IP) string {
		if slices.ContainsFunc(master.Spec.ClusterIPs, func(s string) bool { return ip.Equal(net.ParseIP(s)) }) {
			return "the API server"
		}
		for _, n := range nodes.Items {
			if n.Name != string(name) && has(&n, ip) {
				return "node " + n.Name
			}
		}
		return ""
	}), nil
}
