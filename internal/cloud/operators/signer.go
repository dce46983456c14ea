package operators

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/cloud/keys"
	"yurtcoordinator/internal/edge"
)

const (
	controllerName = "operators"

	// reason and reasonHubs are those of Events, and of the condition Failed.
	reason, reasonHubs = "OperatorCertificate", "HubCertificate"

	// retryMax is the longest wait before a request whose signing failed is tried again.
	retryMax = time.Minute
	// reconcileTimeout bounds one answer with its reads and its write.
	reconcileTimeout = 15 * time.Second

	resultSigned, resultRefused = "signed", "refused"
)

// Config is what a Signer needs. All fields are required.
type Config struct {
	// Client writes, and reads requests and Nodes from the manager's cache. The cache must hold the requests for both signers.
	Client client.Client
	// Reader reads from the API server itself.
	Reader client.Reader
	// Lives are those of authorities; zero fields mean the defaults.
	Lives certs.Lives
	// Events receives the Events on requests, and bounds their rate.
	Events events.EventRecorder
	Clock  clock.PassiveClock
}

// Signer is the controller.
type Signer struct {
	cfg      Config
	requests *prometheus.CounterVec
	hubs     *prometheus.CounterVec
}

// New returns a Signer. AddTo registers it.
func New(c Config) *Signer {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "coordinator_controller_operator_requests_total",
		Help: "Approved requests for certificates of operators, by result (signed, refused)",
	}, []string{"result"})
	hubs := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "coordinator_controller_hub_requests_total",
		Help: "Approved requests for certificates that hubs serve with, by result (signed, refused)",
	}, []string{"result"})
	for _, result := range []string{resultSigned, resultRefused} {
		requests.WithLabelValues(result)
		hubs.WithLabelValues(result)
	}
	c.Lives = c.Lives.Completed()
	return &Signer{cfg: c, requests: requests, hubs: hubs}
}

// Metrics returns what the Signer counts.
func (s *Signer) Metrics() []prometheus.Collector { return []prometheus.Collector{s.requests, s.hubs} }

// AddTo registers the controller with a manager, to run while the manager leads.
func (s *Signer) AddTo(mgr manager.Manager) error {
	type request = *certificatesv1.CertificateSigningRequest
	requests := source.Kind(mgr.GetCache(), &certificatesv1.CertificateSigningRequest{},
		&handler.TypedEnqueueRequestForObject[request]{}, predicate.TypedFuncs[request]{
			CreateFunc: func(e event.TypedCreateEvent[request]) bool { return due(e.Object) },
			UpdateFunc: func(e event.TypedUpdateEvent[request]) bool { return due(e.ObjectNew) },
			DeleteFunc: func(event.TypedDeleteEvent[request]) bool { return false },
		})
	return control.Controller{
		Name: controllerName, Reconciler: s, Timeout: reconcileTimeout, RetryMax: retryMax, Watch: []source.Source{requests},
	}.AddTo(mgr)
}

// Reconcile implements reconcile.Reconciler.
func (s *Signer) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := s.cfg.Client.Get(ctx, r.NamespacedName, csr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !due(csr) {
		return reconcile.Result{}, nil
	}
	csr = csr.DeepCopy()
	sign, why := s.sign, reason
	if csr.Spec.SignerName == edge.SignerHubs {
		sign, why = s.signHubs, reasonHubs
	}
	signed, refused, err := sign(ctx, csr)
	if err != nil {
		return reconcile.Result{}, err
	}
	if refused != nil {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: why, Message: refused.Error(),
			LastUpdateTime: metav1.NewTime(s.cfg.Clock.Now()),
		})
	}
	csr.Status.Certificate = signed
	if err := s.cfg.Client.SubResource("status").Update(ctx, csr); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // it has changed, which comes as an event
		}
		return reconcile.Result{}, fmt.Errorf("answer %s: %w", csr.Name, err)
	}
	if csr.Spec.SignerName == edge.SignerHubs {
		s.tellHubs(ctx, csr, refused)
	} else {
		s.record(ctx, csr, refused)
	}
	return reconcile.Result{}, nil
}

// sign returns the certificate for a request, followed by the authorities by which its holder verifies the coordinator. refused
// is why it does not sign; err says that it can't find out.
func (s *Signer) sign(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) (signed []byte, refused, err error) {
	wanted, asked, refused := read(csr)
	if refused != nil {
		return nil, refused, nil
	}
	pool, _ := poolOf(csr)
	stored, err := keys.Get(ctx, s.cfg.Reader, pool.AuthoritySecret())
	if err != nil {
		return nil, nil, fmt.Errorf("authority of pool %s: %w", pool, err)
	}
	if stored.UID == "" {
		return nil, fmt.Errorf("pool %s has no coordinator", pool), nil
	}
	authority := keys.AuthorityIn(stored)
	signed, err = authority.SignFor(asked.PublicKey, wanted, s.cfg.Clock.Now())
	if err != nil {
		return nil, nil, fmt.Errorf("authority of pool %s: %w", pool, err)
	}
	return append(signed, authority.Trusted...), nil, nil
}

// record counts an answer, and says it in the log and in an Event.
func (s *Signer) record(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, refused error) {
	pool, _ := poolOf(csr)
	if refused != nil {
		s.requests.WithLabelValues(resultRefused).Inc()
		klog.FromContext(ctx).Info("Refused an operator's certificate", "request", csr.Name, "user", csr.Spec.Username,
			"why", refused.Error())
		s.cfg.Events.Eventf(csr, nil, corev1.EventTypeWarning, reason, "Sign", "Not signed: %v", refused)
		return
	}
	s.requests.WithLabelValues(resultSigned).Inc()
	cert := certs.Certificates(csr.Status.Certificate)[0]
	groups, end := strings.Join(cert.Subject.Organization, ","), cert.NotAfter.UTC().Format(time.RFC3339)
	klog.FromContext(ctx).Info("Signed an operator's certificate", "request", csr.Name, "user", csr.Spec.Username,
		"pool", pool, "groups", groups, "until", end)
	s.cfg.Events.Eventf(csr, nil, corev1.EventTypeNormal, reason, "Sign",
		"Signed for %s, of %s, in pool %s, until %s", csr.Spec.Username, groups, pool, end)
}
