package coordinator

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

// Values of the label state of a YurtCoordinator.
const (
	stateReady    = "Ready"
	statePending  = "Pending"
	stateNoCerts  = "NoCertificates"
	stateNotReady = "NotReady"
	stateRemoving = "Removing"
)

// certKind is the label kind of a certificate.
type certKind string

const (
	kindAuthority certKind = "authority"
	kindServing   certKind = "serving"
	kindOperator  certKind = "operator"
	kindKubelet   certKind = "kubelet-client"
)

// metrics is a prometheus.Collector. It computes its gauges from records when it is asked for them. A YurtCoordinator without
// problems has no series with its own name or its pool's.
type metrics struct {
	clock        clock.PassiveClock
	coordinators *prometheus.Desc
	notReady     *prometheus.Desc
	lacking      *prometheus.Desc
	ofPools      []poolGauge
	foreign      *prometheus.Desc
	expiry, left *prometheus.Desc
	issued       *prometheus.CounterVec
	failures     *prometheus.CounterVec
	removals     appset.RemovalsWaiting

	mu sync.Mutex
	// byName are the present YurtCoordinators. ends are their certificates.
	byName map[string]standing
	ends   map[certOf]validity
	// looksLike counts the Pods that bear the labels of a pool's coordinator and are not it.
	looksLike map[edge.PoolName]int
}

// poolGauge counts something of each pool. A pool that has none of it has no series.
type poolGauge struct {
	desc  *prometheus.Desc
	count func(standing) int
}

// standing is what is counted of a YurtCoordinator.
type standing struct {
	pool          edge.PoolName
	state, reason string
	// lacks says why a coordinator that serves lacks a certificate; empty means that it has all.
	lacks   string
	outside int
	unknown int // kubelets
	// incomplete and stale are how many of the pool's resources are not complete at the coordinator, and not current.
	incomplete, stale int
	// missing is how many of the pool's coordinators do not serve, where it is to have standbys.
	missing int
}

type certOf struct {
	name string
	kind certKind
	slot edge.Slot // of a serving certificate
}

type validity struct{ from, to time.Time }

// left returns the share of the life that is left.
func (v validity) left(now time.Time) float64 {
	return max(0, v.to.Sub(now).Seconds()/v.to.Sub(v.from).Seconds())
}

func newMetrics(c clock.PassiveClock) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("coordinator_controller_"+name, help, labels, nil)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		opts := prometheus.CounterOpts{Name: "coordinator_controller_" + name, Help: help}
		return prometheus.NewCounterVec(opts, []string{"kind"})
	}
	return &metrics{
		clock: c,
		coordinators: desc("coordinators", "YurtCoordinators by state (Ready, NotReady, NoCertificates, Pending, Removing) and "+
			"the reason of the condition that says so; none on a replica that does not lead.", "state", "reason"),
		notReady: desc("coordinator_not_ready", "1 for each YurtCoordinator that is not Ready; Ready ones have no series.",
			"yurtcoordinator", "pool", "state", "reason"),
		lacking: desc("coordinator_certificates_lacking", "1 for each YurtCoordinator that is Ready and lacks a certificate: "+
			"logs, exec and top may fail there, or nothing is renewed.", "yurtcoordinator", "pool", "reason"),
		ofPools: []poolGauge{
			{desc("outside_pool_nodes", "Nodes that do not reach their pool's coordinator, of pools with any.", "pool"),
				func(s standing) int { return s.outside }},
			{desc("kubelets_unverifiable", "Nodes whose kubelets their pool's coordinator can't verify, so that "+
				"logs, exec and top do not work there, of pools with any. The condition KubeletsVerifiable says why.", "pool"),
				func(s standing) int { return s.unknown }},
			{desc("pool_resources_not_complete", "Resources that a pool shares and that its coordinator has not had all "+
				"of since it started, of pools with any. The condition PoolResourcesComplete names them.", "pool"),
				func(s standing) int { return s.incomplete }},
			{desc("pool_resources_not_current", "Resources that a pool shares and whose changes do not come to its "+
				"coordinator, of pools with any. The condition PoolResourcesCurrent names them.", "pool"),
				func(s standing) int { return s.stale }},
			{desc("coordinators_missing", "Coordinators that do not serve, of pools that are to have standbys and lack "+
				"any. The condition StandbysReady says why.", "pool"),
				func(s standing) int { return s.missing }},
		},
		foreign: desc("foreign_pods", "Pods that bear the labels of a pool's coordinator, but that no ReplicaSet controls, "+
			"of pools with any. They are ignored; a node can make such a Pod by itself.", "pool"),
		expiry: desc("certificate_expiry_timestamp_seconds",
			"When the first certificate of a kind ends (Unix time): authority, serving, operator, kubelet-client.", "kind"),
		left: desc("certificate_life_left_ratio",
			"Smallest share of life left among the certificates of a kind. They are renewed at a third.", "kind"),
		issued: counter("certificates_issued_total", "Certificates issued, by kind."),
		failures: counter("certificate_failures_total",
			"Failures to read, issue or store a certificate, by kind, without conflicts."),
		removals: appset.NewRemovalsWaiting("YurtCoordinator"),
		byName:   make(map[string]standing), ends: make(map[certOf]validity),
		looksLike: make(map[edge.PoolName]int),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.coordinators, m.notReady, m.lacking, m.foreign, m.expiry, m.left} {
		ch <- d
	}
	for _, g := range m.ofPools {
		ch <- g.desc
	}
	m.issued.Describe(ch)
	m.failures.Describe(ch)
	m.removals.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.issued.Collect(ch)
	m.failures.Collect(ch)
	m.removals.Collect(ch)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counts := make(map[[2]string]int)
	first, least := make(map[certKind]time.Time), make(map[certKind]float64)
	now := m.clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.byName {
		counts[[2]string{s.state, s.reason}]++
		if s.state != stateReady {
			gauge(m.notReady, 1, name, string(s.pool), s.state, s.reason)
		}
		if s.lacks != "" {
			gauge(m.lacking, 1, name, string(s.pool), s.lacks)
		}
		for _, g := range m.ofPools {
			if n := g.count(s); n > 0 {
				gauge(g.desc, float64(n), string(s.pool))
			}
		}
	}
	for pool, n := range m.looksLike {
		gauge(m.foreign, float64(n), string(pool))
	}
	for of, n := range counts {
		gauge(m.coordinators, float64(n), of[0], of[1])
	}
	for of, v := range m.ends {
		if t, found := first[of.kind]; !found || v.to.Before(t) {
			first[of.kind] = v.to
		}
		if l, found := least[of.kind]; !found || v.left(now) < l {
			least[of.kind] = v.left(now)
		}
	}
	for kind, t := range first {
		gauge(m.expiry, float64(t.Unix()), string(kind))
		gauge(m.left, least[kind], string(kind))
	}
}

// stands records what a YurtCoordinator's status says.
func (m *metrics) stands(name string, pool edge.PoolName, w wantedStatus) {
	s := standing{pool: pool, outside: len(w.outside), missing: w.missing}
	if s.state, s.reason = w.state(); s.state == stateReady && !w.certs.OK {
		s.lacks = w.certs.Reason
	}
	_, _, s.unknown = verifiable(w.nodes, w.kubelets)
	s.incomplete, s.stale = len(w.fillings.lacking(edge.Filling.Complete)), len(w.fillings.lacking(isCurrent))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byName[name] = s
}

// foreigners records how many Pods look like a pool's coordinator and are not it.
func (m *metrics) foreigners(pool edge.PoolName, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n == 0 {
		delete(m.looksLike, pool)
		return
	}
	m.looksLike[pool] = n
}

// state returns the state of a YurtCoordinator, and the reason of the condition that explains this state. A coordinator that
// serves is Ready even if it lacks a certificate; standing.lacks then says why. While the Pod has no node, there can't be a
// certificate, and the state is not NoCertificates.
func (w wantedStatus) state() (state, reason string) {
	switch {
	case w.ready.Reason == ReasonRemoving:
		return stateRemoving, ReasonRemoving
	case !w.pending.OK:
		return statePending, w.pending.Reason
	case w.ready.OK:
		return stateReady, w.ready.Reason
	case !w.certs.OK && w.certs.Reason != ReasonNotScheduled:
		return stateNoCerts, w.certs.Reason
	}
	return stateNotReady, w.ready.Reason
}

// gone records that a YurtCoordinator was deleted.
func (m *metrics) gone(name string) {
	m.cleared(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.looksLike, m.byName[name].pool)
	delete(m.byName, name)
}

// cleared records that a YurtCoordinator's certificates were deleted.
func (m *metrics) cleared(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, kind := range []certKind{kindAuthority, kindServing, kindOperator, kindKubelet} {
		for _, slot := range edge.Slots() {
			delete(m.ends, certOf{name, kind, slot})
		}
	}
}

// holds records a certificate in use.
func (m *metrics) holds(of certOf, pair certs.Pair) {
	found := certs.Certificates(pair.Cert)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(found) == 0 {
		delete(m.ends, of)
		return
	}
	m.ends[of] = validity{found[0].NotBefore, found[0].NotAfter}
}

func (m *metrics) made(kind certKind) { m.issued.WithLabelValues(string(kind)).Inc() }

// tried counts err as a failure, and returns it.
func (m *metrics) tried(kind certKind, err error) error {
	if err != nil && !apierrors.IsConflict(err) {
		m.failures.WithLabelValues(string(kind)).Inc()
	}
	return err
}
