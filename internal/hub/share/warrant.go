package share

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
)

// complainAgain is the least time between two log lines about refusals.
const complainAgain = time.Minute

// WarrantsConfig configures Warrants.
type WarrantsConfig struct {
	Node edge.NodeName
	Pool edge.PoolName
	// Word returns what the cloud has said about the coordinator. nil means that it has said nothing.
	Word func() Word
	// Metrics registers the metrics. nil means that they are not exported.
	Metrics prometheus.Registerer
}

// Warrants answers access reviews about coordinators. Make one with NewWarrants; safe for concurrent use.
type Warrants struct {
	cfg      WarrantsConfig
	answers  *prometheus.CounterVec
	complain rate.Sometimes
}

// NewWarrants returns Warrants. It registers its metrics, and does no I/O.
func NewWarrants(c WarrantsConfig) *Warrants {
	if c.Word == nil {
		c.Word = func() Word { return Word{} }
	}
	v := &Warrants{
		cfg: c, complain: rate.Sometimes{Interval: complainAgain},
		answers: promauto.With(c.Metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_coordinator_warrants_total",
			Help: "kubelet's questions whether a coordinator may use it, by the hub's answer: allowed, refused. " +
				"kubelet keeps an answer.",
		}, []string{"answer"}),
	}
	for _, answer := range []string{"allowed", "refused"} {
		v.answers.WithLabelValues(answer)
	}
	return v
}

// Answer answers an access review about a coordinator, or returns false and has written nothing. It implements front.Warrants.
func (v *Warrants) Answer(w http.ResponseWriter, r *http.Request, body []byte) bool {
	var review authorizationv1.SubjectAccessReview
	if body == nil || r.Header.Get("Content-Encoding") != "" {
		return false
	}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review); err != nil {
		return false // the cloud says what is wrong with it
	}
	about, why := reviewKubelet(review.Spec, v.cfg.Node, v.cfg.Pool, v.cfg.Word())
	if !about {
		return false
	}
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: why == "", Reason: "it is the coordinator of this pool"}
	if why != "" {
		review.Status.Reason = "yurthub: " + why
		v.refused(r.Context(), review.Spec, why)
	} else {
		v.answers.WithLabelValues("allowed").Inc()
	}
	var a answer
	raw, err := review.Marshal()
	if err == nil {
		kind := authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview")
		a, err = answerOf(r, http.StatusCreated, kind, raw, &authorizationv1.SubjectAccessReview{})
	}
	if err != nil {
		panic(err) // what was decoded can be encoded
	}
	a.write(w, "no-store")
	return true
}

// refused counts a refusal, and logs at most one per complainAgain.
func (v *Warrants) refused(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec, why string) {
	v.answers.WithLabelValues("refused").Inc()
	v.complain.Do(func() {
		klog.FromContext(ctx).Info("A coordinator may not use this node's kubelet", "user", spec.User,
			"credential", spec.Extra[user.CredentialIDKey], "why", why)
	})
}
