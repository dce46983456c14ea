package openings

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
)

const (
	// maxTaken bounds the openings in an answer, and so what waits for a leader's word and does not grow.
	maxTaken = 16
	// maxRequest bounds a leader's request, in bytes: the numbers of maxTaken openings.
	maxRequest = 4 << 10
)

// Openings keeps who opened what. Its methods may be called concurrently.
type Openings struct {
	clock    clock.PassiveClock
	instance string
	nodes    nodeidentifier.NodeIdentifier
	counted  *prometheus.CounterVec

	mu     sync.Mutex
	ledger *ledger
}

// New returns the Openings of a coordinator that begins.
func New(c clock.PassiveClock) *Openings {
	o := &Openings{
		clock: c, instance: strings.ToLower(rand.Text()), nodes: nodeidentifier.NewDefaultNodeIdentifier(),
		ledger: newLedger(c.Now()),
		counted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "yurt_coordinator_openings_total",
			Help: "Streams into containers (exec, attach, port-forward) that were opened or refused.",
		}, []string{"act"}),
	}
	for _, act := range []edge.Act{edge.ActOpened, edge.ActRefused} {
		o.counted.WithLabelValues(string(act))
	}
	return o
}

// Metrics returns what there is to count. The caller registers it.
func (o *Openings) Metrics() []prometheus.Collector {
	return []prometheus.Collector{o.counted, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurt_coordinator_openings_untold",
		Help: "Openings that the cloud does not know yet; equal ones are one.",
	}, func() float64 {
		o.mu.Lock()
		defer o.mu.Unlock()
		return float64(len(o.ledger.entries))
	})}
}

// Opened notes a stream that was let in. The caller calls ended once, when it is over.
func (o *Openings) Opened(a edge.Attempt) (ended func()) {
	a.Act = edge.ActOpened
	o.counted.WithLabelValues(string(a.Act)).Inc()
	began := o.clock.Now().UTC()
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.ledger.add(a, began, began)
	return func() {
		now := o.clock.Now().UTC()
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ledger.end(e, began, now)
	}
}

// Refused notes a stream that was refused.
func (o *Openings) Refused(a edge.Attempt) {
	a.Act = edge.ActRefused
	o.counted.WithLabelValues(string(a.Act)).Inc()
	now := o.clock.Now().UTC()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ledger.add(a, now, now)
}

// Leads refuses who does not lead the pool under a term.
type Leads func(ctx context.Context, n edge.NodeName, term int32) error

// Handler returns what serves edge.PathOpenings to the pool's leader. kube-apiserver has already authenticated the caller and
// asked RBAC.
func (o *Openings) Handler(leads Leads) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &exchange.Reply{ResponseWriter: w}
		answer, err := o.serve(w, r, leads)
		if err != nil {
			a.Refuse(r.Context(), err)
			return
		}
		_ = a.Tell(http.StatusOK, answer) // on failure the caller is gone, and asks again
	})
}

func (o *Openings) serve(w http.ResponseWriter, r *http.Request, leads Leads) (*edge.OpeningsAnswer, error) {
	if r.URL.Path != edge.PathOpenings || r.Method != http.MethodPost {
		return nil, exchange.Refused(http.StatusMethodNotAllowed, "POST to %s", edge.PathOpenings)
	}
	caller, ok := request.UserFrom(r.Context())
	if !ok {
		return nil, exchange.Refused(http.StatusForbidden, "only the leader hears who opened what")
	}
	name, isNode := o.nodes.NodeIdentity(caller)
	if !isNode || name == "" {
		return nil, exchange.Refused(http.StatusForbidden, "only the leader hears who opened what, and %q is no node",
			caller.GetName())
	}
	var asked edge.OpeningsRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&asked); err != nil {
		return nil, exchange.Refused(http.StatusBadRequest, "not a leader's request: %v", err)
	}
	if err := leads(r.Context(), edge.NodeName(name), asked.Term); err != nil {
		return nil, err
	}
	now := o.clock.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if asked.Instance == o.instance {
		o.ledger.told(asked.Told)
	}
	return &edge.OpeningsAnswer{Instance: o.instance, Openings: o.ledger.take(maxTaken, now)}, nil
}
