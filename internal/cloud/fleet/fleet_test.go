package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// world is a cloud with a Fleet that leads.
type world struct {
	*testing.T
	client.Client
	clock *testingclock.FakePassiveClock
	fleet *Fleet
	wrote int
}

func newWorld(t *testing.T, lead bool) *world {
	elected := make(chan struct{})
	if lead {
		close(elected)
	}
	w := &world{T: t, Client: fake.NewClientBuilder().Build(), clock: testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))}
	w.fleet = New(Config{Client: w.Client, Elected: elected, Clock: ends.Clock{OfDay: w.clock.Now, Ran: w.clock.Now}})
	return w
}

// says has a pool's leader report.
func (w *world) says(pool edge.PoolName, hubs edge.PoolHubs) { w.saysIn(pool, 0, hubs) }

// saysIn has the leader of a slot report.
func (w *world) saysIn(pool edge.PoolName, slot edge.Slot, hubs edge.PoolHubs) {
	w.Helper()
	w.wrote++
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: pool.ReportLease(slot)},
		Spec: coordinationv1.LeaseSpec{
			LeaseDurationSeconds: ptr.To[int32](120), HolderIdentity: ptr.To(fmt.Sprint("leader-", slot)),
			RenewTime: &metav1.MicroTime{Time: w.clock.Now()},
		},
	}
	lease.Annotations = map[string]string{
		edge.AnnotationReachedNodes: "", edge.AnnotationHubs: hubs.String(), "write": strconv.Itoa(w.wrote),
		edge.AnnotationHubVersion: "v0.3.0=" + string(pool) + "1,v0.2.0=" + string(pool) + "2;" + string(pool) + "3",
	}
	var there coordinationv1.Lease
	err := w.Get(w.Context(), client.ObjectKeyFromObject(lease), &there)
	if err == nil {
		lease.ResourceVersion = there.ResourceVersion
		err = w.Update(w.Context(), lease)
	} else {
		err = w.Create(w.Context(), lease)
	}
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) node(name, pool string, cut time.Time) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{edge.LabelNodePool: pool}}}
	if !cut.IsZero() {
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: edge.ConditionCloudLinkDown, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(cut),
		}}
	}
	if err := w.Create(w.Context(), n); err != nil {
		w.Fatal(err)
	}
}

// series returns all series as NAME{LABELS}, without the prefix.
func (w *world) series() map[string]float64 {
	w.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(w.fleet); err != nil {
		w.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := strings.TrimPrefix(family.GetName(), "coordinator_controller_") + "{" + strings.Join(labels, ",") + "}"
			all[name] = valueOf(m)
		}
	}
	return all
}

func valueOf(m *dto.Metric) float64 { return m.GetGauge().GetValue() + m.GetCounter().GetValue() }

func (w *world) is(what string, want map[string]float64) {
	w.Helper()
	got := w.series()
	for name, v := range want {
		is, there := got[name]
		if v == gone && there || v != gone && (!there || is != v) {
			w.Errorf("%s: %s is %v, %t; want %v", what, name, is, there, v)
		}
	}
}

// gone stands for a series that is not there.
const gone = -12345

func TestFleet(t *testing.T) {
	w := newWorld(t, true)
	now := w.clock.Now()
	w.node("a1", "a", time.Time{})
	w.node("a2", "a", now.Add(-time.Hour))
	w.node("b1", "b", time.Time{})
	w.node("stray", "", now)
	w.says("a", edge.PoolHubs{
		Term: 1, Links: map[string]int{"up": 2, "relayed": 1}, Answer: 250, Lost: 3, OldestSettings: 1, NewestSettings: 2,
		Carried:      edge.Carried{"watch": {1000, 2000}},
		Certificates: map[string]edge.Life{"client": {From: now.Unix() - 100, Until: now.Unix() + 300}},
		Troubles:     map[edge.HubTrouble][]edge.NodeName{edge.TroubleDisk: {"a1", "b1", "nobody"}}, More: 2,
	})
	w.says("b", edge.PoolHubs{
		Term: 5, Links: map[string]int{"up": 4}, OldestSettings: 7, NewestSettings: 7,
		Certificates: map[string]edge.Life{"client": {From: now.Unix() - 300, Until: now.Unix() + 900}},
	})
	w.is("at first", map[string]float64{
		"hubs{version=v0.3.0}": 2, "hubs{version=v0.2.0}": 4,
		"pool_led{pool=a}": 1, "pool_led{pool=b}": 1, "hub_links{state=up}": 6, "hub_links{state=relayed}": 1,
		"hub_links{state=down}":            0,
		"pool_line_answer_seconds{pool=a}": .25, "pool_line_answer_seconds{pool=b}": gone, "pool_lost_heartbeats{pool=a}": 3,
		"pool_oldest_settings_generation{pool=a}": 1, "pool_oldest_settings_generation{pool=b}": gone,
		"hub_certificate_expiry_timestamp_seconds{certificate=client}": float64(now.Unix() + 300),
		"hub_certificate_life_left_ratio{certificate=client}":          .75,
		"node_trouble{node=a1,pool=a,trouble=disk}":                    1, "node_trouble{node=b1,pool=a,trouble=disk}": gone,
		"node_trouble{node=nobody,pool=a,trouble=disk}":      gone, // a leader speaks of its own pool alone
		"node_cut_since_timestamp_seconds{node=a2,pool=a}":   float64(now.Unix() - 3600),
		"node_cut_since_timestamp_seconds{node=stray,pool=}": gone, "node_troubles_untold{}": 2,
		"pool_wan_bytes_total{direction=sent,pool=a}": 0, "wan_bytes_total{direction=sent,kind=watch}": 0,
		"delegated_nodes{pool=a}": 1, "delegated_nodes{pool=b}": 0, "delegated_nodes{pool=}": gone,
	})
	w.says("a", edge.PoolHubs{Term: 1, Carried: edge.Carried{"watch": {1500, 2000}, "list": {1, 2}}})
	w.is("more was carried", map[string]float64{
		"pool_wan_bytes_total{direction=sent,pool=a}": 501, "pool_wan_bytes_total{direction=received,pool=a}": 2,
		"wan_bytes_total{direction=sent,kind=watch}": 500, "wan_bytes_total{direction=received,kind=list}": 2,
		"pool_lost_heartbeats{pool=a}": gone, "node_trouble{node=a1,pool=a,trouble=disk}": gone, "node_troubles_untold{}": 0,
	})
	w.says("a", edge.PoolHubs{Term: 2, Carried: edge.Carried{"watch": {2000, 10}}})
	w.is("another leads, and begins at zero", map[string]float64{
		"pool_wan_bytes_total{direction=sent,pool=a}": 2501, "pool_wan_bytes_total{direction=received,pool=a}": 12,
	})
	w.clock.SetTime(now.Add(151 * time.Second))
	w.says("b", edge.PoolHubs{Term: 5, Links: map[string]int{"up": 4}})
	w.is("nobody reports of a", map[string]float64{
		"pool_led{pool=a}": 0, "pool_led{pool=b}": 1, "hub_links{state=up}": 4,
		"pool_wan_bytes_total{direction=sent,pool=a}":         2501,
		"hub_certificate_life_left_ratio{certificate=client}": gone,
	})
	report := &coordinationv1.Lease{}
	report.Namespace, report.Name = corev1.NamespaceNodeLease, "yurt-coordinator-a"
	if err := w.Delete(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	w.is("a is no more", map[string]float64{"pool_led{pool=a}": gone, "pool_wan_bytes_total{direction=sent,pool=a}": gone})
}

// TestSlots: the leader of the lowest slot speaks for the pool, as long as it does.
func TestSlots(t *testing.T) {
	w := newWorld(t, true)
	says := func(slot edge.Slot, up int, sent uint64) {
		w.saysIn("a", slot, edge.PoolHubs{
			Term: 3, Links: map[string]int{"up": up}, Carried: edge.Carried{"watch": {sent, 0}},
		})
	}
	of := func(up, sent float64) map[string]float64 {
		return map[string]float64{
			"pool_led{pool=a}": 1, "hub_links{state=up}": up, "pool_wan_bytes_total{direction=sent,pool=a}": sent,
		}
	}
	says(1, 2, 100)
	w.is("a standby alone is led", of(2, 0))
	says(1, 2, 110)
	w.is("it reports again", of(2, 10))
	says(0, 3, 1000)
	w.is("home is led, too", of(3, 10))
	w.clock.SetTime(w.clock.Now().Add(149 * time.Second))
	says(1, 2, 150)
	says(0, 3, 1005)
	w.is("both report again", of(3, 15))
	w.clock.SetTime(w.clock.Now().Add(149 * time.Second))
	says(1, 2, 170)
	w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
	w.is("home's leader reports no more", of(2, 15))
	says(1, 2, 171)
	w.is("the standby's leader reports again", of(2, 16))
}

// A replica that does not lead has no series, so that sums are right.
func TestStandby(t *testing.T) {
	w := newWorld(t, false)
	w.says("a", edge.PoolHubs{Links: map[string]int{"up": 2}})
	if got := w.series(); len(got) > 0 {
		t.Errorf("it says %v", got)
	}
}

// TestBound: a thousand pools in which all is wrong have no more series than the page about metrics says.
func TestBound(t *testing.T) {
	const pools, each = 1000, 25
	at := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	f := New(Config{Clock: ends.Clock{OfDay: at.Now, Ran: at.Now}})
	members := map[edge.NodeName]member{}
	var leases []coordinationv1.Lease
	for i := range pools {
		pool := edge.PoolName(fmt.Sprint("p", i))
		hubs := edge.PoolHubs{
			Links: map[string]int{"up": 1}, Answer: 1, Lost: 1, NewestSettings: 1, Carried: edge.Carried{},
			Certificates: map[string]edge.Life{"client": {From: 1, Until: 2}, "serving": {From: 1, Until: 2}},
			Troubles:     map[edge.HubTrouble][]edge.NodeName{},
		}
		for _, kind := range edge.CarriedKinds {
			hubs.Carried[kind] = edge.Bytes{1, 1}
		}
		for n := range each {
			name := edge.NodeName(fmt.Sprint("p", i, "-n", n))
			members[name] = member{pool, time.Unix(1, 0)}
			for _, trouble := range edge.HubTroubles {
				if n < edge.MostTroubled {
					hubs.Troubles[trouble] = append(hubs.Troubles[trouble], name)
				}
			}
		}
		leases = append(leases, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: pool.ReportLease(0), ResourceVersion: "1", Annotations: map[string]string{
				edge.AnnotationReachedNodes: "", edge.AnnotationHubs: hubs.String(),
				edge.AnnotationHubVersion: fmt.Sprintf("v0.%d.0=n", i),
			},
		}})
	}
	now := f.cfg.Clock.Now()
	f.heedLocked(leases, now)
	for i := range leases { // so that each kind has been carried
		leases[i].ResourceVersion = "2"
		says := leases[i].Annotations
		says[edge.AnnotationHubs] = strings.ReplaceAll(says[edge.AnnotationHubs], "[1,1]", "[2,2]")
	}
	f.heedLocked(leases, now)
	all := f.valuesLocked(members, now)
	const together = 1 + 5 + 2*2 + 2*9 + 21 // untold, link states, certificates, kinds, versions
	if most := SeriesOfPool*pools + MostNodes + together; len(all) != most {
		t.Errorf("%d series, want the bound of %d", len(all), most)
	}
	of := func(pick value) string { return strings.Join(pick.labels, "/") }
	var first []string
	for _, v := range all {
		if v.of == descTrouble || v.of == descCut {
			first = append(first, of(v))
		}
	}
	for range 3 {
		var again []string
		for _, v := range f.valuesLocked(maps.Clone(members), now) {
			if v.of == descTrouble || v.of == descCut {
				again = append(again, of(v))
			}
		}
		if !slices.Equal(first, again) {
			t.Fatal("nodes have series that come and go")
		}
	}
}
