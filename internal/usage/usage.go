// Package usage serves metrics.k8s.io, which kubectl top asks, from the kubelets of a pool. It consists of metrics-server's
// parts, and works only while somebody asks for metrics.
//
// A CPU figure is the difference between two readings. So the first request waits until each kubelet has been read twice. From
// then on the kubelets are read every Resolution. When nobody has asked for the time Idle, the reading ends, and all figures are
// forgotten.
//
// A figure is only as good as its kubelet's word. A node that lies can report wrong figures for the Pods of others.
package usage

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/metrics/pkg/apis/metrics"
	"k8s.io/utils/clock"
	"sigs.k8s.io/metrics-server/pkg/api"
	"sigs.k8s.io/metrics-server/pkg/scraper"
	"sigs.k8s.io/metrics-server/pkg/storage"
)

const (
	// Resolution is the time between two readings of a kubelet. It is metrics-server's default.
	Resolution = 15 * time.Second
	// Idle is how long the kubelets are read after the last request. So a person who looks twice does not wait twice.
	Idle = 2 * time.Minute

	// firstGap is the time between two readings until all figures are known. A kubelet measures containers only every 10 to 15 s,
	// so several readings may be needed; it measures its node on request.
	firstGap = 3 * time.Second
	// settling is how long a request waits for all figures. Then the known ones must do.
	settling = Resolution
	// patience is how long a request waits for the first figures while one of the kubelets is silent.
	patience = settling + scrapeTimeout
	// scrapeTimeout bounds the reading of one kubelet.
	scrapeTimeout = 5 * time.Second
)

// Scheme has the types of metrics.k8s.io.
var Scheme = api.Scheme

// Meter reads the kubelets while somebody asks for their figures. Make it with New, Install it and Run it.
type Meter struct {
	nodes   nodeLister
	pods    podLister
	scraper scraper.Scraper
	clock   clock.Clock
	wake    chan struct{} // capacity 1: somebody asks

	mu       sync.Mutex
	asked    time.Time
	store    storage.Storage
	complete bool          // store has all figures that can be had
	changed  chan struct{} // closed when store or complete changes
}

func newMeter(nodes nodeLister, pods podLister, s scraper.Scraper, c clock.Clock) *Meter {
	return &Meter{
		nodes: nodes, pods: pods, scraper: s, clock: c, wake: make(chan struct{}, 1),
		store: storage.NewStorage(Resolution), changed: make(chan struct{}),
	}
}

// Install adds metrics.k8s.io to server.
func (m *Meter) Install(server *genericapiserver.GenericAPIServer) error {
	return api.Install(m, m.pods, m.nodes, server, nil)
}

// Run reads kubelets while there are requests, until ctx ends.
func (m *Meter) Run(ctx context.Context) error {
	for {
		select {
		case <-m.wake:
			m.measure(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// measure reads the kubelets until nobody has asked for Idle, then forgets the figures.
func (m *Meter) measure(ctx context.Context) {
	defer m.put(storage.NewStorage(Resolution), false)
	start := m.clock.Now()
	for complete := false; m.wanted(); {
		batch := m.scraper.Scrape(ctx)
		m.store.Store(batch)
		if len(batch.Nodes) == 0 {
			start = m.clock.Now()
		} else if m.clock.Since(start) >= settling || hasAll(m.store, batch) {
			complete = true
		}
		m.put(m.store, complete)
		gap := Resolution
		if !complete {
			gap = firstGap
		}
		timer := m.clock.NewTimer(gap)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// hasAll reports whether store has figures for all that was just read.
func hasAll(store storage.Storage, batch *storage.MetricsBatch) bool {
	nodes := make([]*corev1.Node, 0, len(batch.Nodes))
	for name := range batch.Nodes {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	pods := make([]*metav1.PartialObjectMetadata, 0, len(batch.Pods))
	for key := range batch.Pods {
		pods = append(pods, &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		})
	}
	ofNodes, err := store.GetNodeMetrics(nodes...)
	if err != nil {
		return false
	}
	ofPods, err := store.GetPodMetrics(pods...)
	return err == nil && len(ofNodes) == len(nodes) && len(ofPods) == len(pods)
}

func (m *Meter) wanted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock.Since(m.asked) < Idle
}

func (m *Meter) put(store storage.Storage, complete bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store, m.complete = store, complete
	close(m.changed)
	m.changed = make(chan struct{})
}

// GetNodeMetrics implements metrics-server's getter. It waits for the first figures.
func (m *Meter) GetNodeMetrics(nodes ...*corev1.Node) ([]metrics.NodeMetrics, error) {
	return m.figures().GetNodeMetrics(nodes...)
}

// GetPodMetrics implements metrics-server's getter. It waits for the first figures.
func (m *Meter) GetPodMetrics(pods ...*metav1.PartialObjectMetadata) ([]metrics.PodMetrics, error) {
	return m.figures().GetPodMetrics(pods...)
}

// figures returns the store once it is complete or, after the time patience, as it is.
func (m *Meter) figures() storage.Storage {
	timeout := m.clock.NewTimer(patience)
	defer timeout.Stop()
	for {
		store, complete, changed := m.demand()
		if complete {
			return store
		}
		select {
		case <-changed:
		case <-timeout.C():
			return store
		}
	}
}

func (m *Meter) demand() (store storage.Storage, complete bool, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = m.clock.Now()
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return m.store, m.complete, m.changed
}
