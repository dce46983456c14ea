package fleet

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// SeriesOfPool is how many series there are at most about each pool.
const SeriesOfPool = 7

// MostNodes is how many series there are at most about single nodes.
const MostNodes = 2000

// mostVersions is how many versions have a series; hubs of others are counted as otherVersion.
const mostVersions, otherVersion = 20, "other"

// readTimeout bounds one collection, which reads from a cache.
const readTimeout = 5 * time.Second

// Config is what a Fleet needs. All fields are required.
type Config struct {
	// Client reads Leases and Nodes from a cache.
	Client client.Reader
	// Elected is closed when this replica leads: others say nothing, so that sums are not too high.
	Elected <-chan struct{}
	Clock   ends.Clock
}

// Fleet is a prometheus.Collector.
type Fleet struct {
	cfg Config

	mu sync.Mutex
	// reports has, by Lease, its present version and when that was first seen. pools has the last state of each pool's hubs.
	// carried is the traffic of all pools' links, by kind.
	reports map[string]sighting
	pools   map[edge.PoolName]*seen
	carried edge.Carried
}

// sighting is a version of a report, and when it was seen first.
type sighting struct {
	version string
	at      time.Time
}

// seen is what was seen of a pool's hubs, in the valid report of the lowest slot.
type seen struct {
	// from is that report's Lease, and version its version. led says that a report is valid.
	from, version string
	led           bool
	hubs          edge.PoolHubs
	// versions counts hubs by their version.
	versions map[string]int
	// told is false until this leader has said how hubs are.
	told bool
	// carried is what the pool's links have carried since this program began.
	carried edge.Bytes
}

// New returns a Fleet.
func New(c Config) *Fleet {
	f := &Fleet{cfg: c, reports: map[string]sighting{}, pools: map[edge.PoolName]*seen{}, carried: edge.Carried{}}
	for _, kind := range edge.CarriedKinds {
		f.carried[kind] = edge.Bytes{} // so that the first bytes of a kind show as an increase
	}
	return f
}

// Describe implements prometheus.Collector.
func (f *Fleet) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (f *Fleet) Collect(to chan<- prometheus.Metric) {
	select {
	case <-f.cfg.Elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	var leases coordinationv1.LeaseList
	var nodes corev1.NodeList
	inNodeLease := client.InNamespace(corev1.NamespaceNodeLease)
	err := f.cfg.Client.List(ctx, &leases, inNodeLease, client.UnsafeDisableDeepCopy)
	if err == nil {
		err = f.cfg.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy)
	}
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Cannot say how the fleet is", "err", err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.cfg.Clock.Now()
	f.heedLocked(leases.Items, now)
	for _, v := range f.valuesLocked(membersOf(nodes.Items), now) {
		to <- prometheus.MustNewConstMetric(v.of, v.kind, v.value, v.labels...)
	}
}

// heedLocked takes in the pools' reports.
func (f *Fleet) heedLocked(leases []coordinationv1.Lease, now ends.Moment) {
	valid := map[edge.PoolName][]*coordinationv1.Lease{}
	reports := map[string]sighting{}
	for i := range leases {
		lease := &leases[i]
		pool, ok := poolOf(lease)
		if !ok {
			continue
		}
		is := f.reports[lease.Name]
		if is.version != lease.ResourceVersion {
			is = sighting{lease.ResourceVersion, now.Running}
		}
		reports[lease.Name] = is
		if now.Running.Sub(is.at) < edge.ReportLasts(lease.Spec.LeaseDurationSeconds) {
			valid[pool] = append(valid[pool], lease)
		} else if _, another := valid[pool]; !another {
			valid[pool] = nil
		}
	}
	f.reports = reports
	for pool, of := range valid {
		last := f.pools[pool]
		if last == nil {
			last = &seen{}
			f.pools[pool] = last
		}
		if last.led = len(of) > 0; last.led {
			f.speaksLocked(last, edge.ReportsOf(of)[0])
		}
	}
	for pool := range f.pools {
		if _, there := valid[pool]; !there {
			delete(f.pools, pool)
		}
	}
}

// speaksLocked takes in the report that counts of a pool's.
func (f *Fleet) speaksLocked(last *seen, lease *coordinationv1.Lease) {
	if last.from != lease.Name {
		last.from, last.version, last.told = lease.Name, "", false
	}
	if last.version == lease.ResourceVersion {
		return
	}
	last.version, last.versions = lease.ResourceVersion, map[string]int{}
	for _, version := range edge.SplitVersions(lease.Annotations[edge.AnnotationHubVersion]) {
		last.versions[version]++
	}
	if hubs, ok := edge.ParsePoolHubs(lease.Annotations[edge.AnnotationHubs]); ok {
		f.countLocked(last, hubs)
	}
}

// countLocked adds the traffic that a pool's links have carried since the last report. It leaves out the traffic in the first
// report that it sees of a Lease, because nobody knows when the links carried it.
func (f *Fleet) countLocked(last *seen, hubs edge.PoolHubs) {
	if last.told {
		before := last.hubs.Carried
		if last.hubs.Term != hubs.Term {
			before = nil
		}
		news := hubs.Carried.Since(before)
		f.carried.Add(news)
		for _, b := range news {
			last.carried[0] += b[0]
			last.carried[1] += b[1]
		}
	}
	last.hubs, last.told = hubs, true
}

// poolOf returns the pool whose report a Lease is.
func poolOf(lease *coordinationv1.Lease) (edge.PoolName, bool) {
	pool, _ := edge.ReportOf(lease.Name)
	_, reports := lease.Annotations[edge.AnnotationReachedNodes]
	return pool, pool != "" && reports
}

// member is a node as the cloud knows it.
type member struct {
	pool edge.PoolName
	// cut is when its link went down; zero means that it is up, or that nobody hears of the node.
	cut time.Time
}

func membersOf(nodes []corev1.Node) map[edge.NodeName]member {
	all := make(map[edge.NodeName]member, len(nodes))
	for i := range nodes {
		m := member{pool: edge.PoolName(nodes[i].Labels[edge.LabelNodePool])}
		for _, c := range nodes[i].Status.Conditions {
			if c.Type == edge.ConditionCloudLinkDown && c.Status == corev1.ConditionTrue {
				m.cut = c.LastTransitionTime.Time
			}
		}
		all[edge.NodeName(nodes[i].Name)] = m
	}
	return all
}

// value is the value of one series.
type value struct {
	of     *prometheus.Desc
	kind   prometheus.ValueType
	value  float64
	labels []string
}

// valuesLocked returns all series.
func (f *Fleet) valuesLocked(members map[edge.NodeName]member, now ends.Moment) (all []value) {
	gauge := func(of *prometheus.Desc, v float64, labels ...string) {
		all = append(all, value{of, prometheus.GaugeValue, v, labels})
	}
	counter := func(of *prometheus.Desc, v uint64, labels ...string) {
		all = append(all, value{of, prometheus.CounterValue, float64(v), labels})
	}
	links, versions := map[string]int{}, map[string]int{}
	first, least := map[string]int64{}, map[string]float64{}
	var nodes []value
	untold := 0
	for pool, p := range f.pools {
		name := string(pool)
		gauge(descLed, one(p.led), name)
		counter(descPoolBytes, p.carried[0], name, "sent")
		counter(descPoolBytes, p.carried[1], name, "received")
		if !p.led {
			continue
		}
		for version, n := range p.versions {
			versions[version] += n
		}
		if !p.told {
			continue
		}
		for state, n := range p.hubs.Links {
			links[state] += n
		}
		if p.hubs.Answer > 0 {
			gauge(descAnswer, float64(p.hubs.Answer)/1000, name)
		}
		if p.hubs.Lost > 0 {
			gauge(descLost, float64(p.hubs.Lost), name)
		}
		if p.hubs.OldestSettings != p.hubs.NewestSettings {
			gauge(descSettings, float64(p.hubs.OldestSettings), name)
		}
		for kind, life := range p.hubs.Certificates {
			if until, known := first[kind]; !known || life.Until < until {
				first[kind] = life.Until
			}
			if left, known := least[kind]; !known || life.Left(now.Wall) < left {
				least[kind] = life.Left(now.Wall)
			}
		}
		untold += p.hubs.More
		for trouble, in := range p.hubs.Troubles {
			for _, node := range in {
				if members[node].pool == pool {
					labels := []string{name, string(node), string(trouble)}
					nodes = append(nodes, value{descTrouble, prometheus.GaugeValue, 1, labels})
				}
			}
		}
	}
	delegated := map[edge.PoolName]int{}
	for node, m := range members {
		if m.pool == "" {
			continue
		}
		delegated[m.pool] += 0 // a pool without any has a series, too
		if !m.cut.IsZero() {
			delegated[m.pool]++
			at := float64(m.cut.Unix())
			nodes = append(nodes, value{descCut, prometheus.GaugeValue, at, []string{string(m.pool), string(node)}})
		}
	}
	for pool, n := range delegated {
		gauge(descDelegated, float64(n), string(pool))
	}
	// Always the same ones are left out, so that series do not come and go.
	slices.SortFunc(nodes, func(a, b value) int { return slices.Compare(a.labels, b.labels) })
	if n := len(nodes) - MostNodes; n > 0 {
		nodes, untold = nodes[:MostNodes], untold+n
	}
	all = append(all, nodes...)
	gauge(descUntold, float64(untold))
	for _, state := range edge.LinkStates {
		gauge(descLinks, float64(links[state]), state)
	}
	for version, n := range mostOf(versions) {
		gauge(descHubs, float64(n), version)
	}
	for kind, until := range first {
		gauge(descExpiry, float64(until), kind)
		gauge(descLeft, least[kind], kind)
	}
	for kind, b := range f.carried {
		counter(descBytes, b[0], "sent", kind)
		counter(descBytes, b[1], "received", kind)
	}
	return all
}

// mostOf returns the versions of which there are most hubs, and the others together.
func mostOf(versions map[string]int) map[string]int {
	names := slices.SortedFunc(maps.Keys(versions), func(a, b string) int {
		return cmp.Or(cmp.Compare(versions[b], versions[a]), cmp.Compare(a, b))
	})
	all := map[string]int{}
	for i, name := range names {
		if i >= mostVersions {
			all[otherVersion] += versions[name]
			continue
		}
		all[name] = versions[name]
	}
	return all
}
