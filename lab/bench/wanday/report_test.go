package wanday

import (
	"maps"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/wire"
)

func TestSpentOnTheCloudByKind(t *testing.T) {
	got, err := spentOn(strings.NewReader(`# HELP yurthub_upstream_bytes_total What connections carried.
# TYPE yurthub_upstream_bytes_total counter
yurthub_upstream_bytes_total{direction="sent",kind="probe",upstream="cloud"} 10
yurthub_upstream_bytes_total{direction="received",kind="probe",upstream="cloud"} 20
yurthub_upstream_bytes_total{direction="sent",kind="watch",upstream="cloud"} 1.5e+06
yurthub_upstream_bytes_total{direction="sent",kind="watch",upstream="coordinator"} 7
`))
	if want := map[string]uint64{"probe": 30, "watch": 1500000}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if got, err := spentOn(strings.NewReader("up 1\n")); err == nil {
		t.Errorf("metrics without it: %v, want an error", got)
	}
}

// A measurement of an hour of one node without a hub, two followers and a leader.
func measured() Measured {
	began := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	kinds := map[string]Kind{"p1-n1": Leader, "p1-n2": Follower, "p1-n3": Follower, "p2-n1": NoHub, "p3-n1": Alone}
	before := reading{
		at:     began,
		cables: map[string]wire.Bytes{"p1-n1": {Up: 7, Down: 7}},
		spent:  map[string]map[string]uint64{"p1-n1": {"probe": 5}, "p1-n2": {"probe": 0}},
	}
	after := reading{
		at: began.Add(time.Hour),
		cables: map[string]wire.Bytes{
			"p1-n1": {Up: 1007, Down: 2007}, "p1-n2": {Up: 100, Down: 100}, "p1-n3": {Up: 300, Down: 300},
			"p2-n1": {Up: 400, Down: 600}, "p3-n1": {Up: 500, Down: 500},
		},
		spent: map[string]map[string]uint64{
			"p1-n1": {"probe": 105, "watch": 900}, "p1-n2": {"probe": 60}, "p1-n3": {"probe": 40},
		},
	}
	asked := []lab.Request{
		{Node: "p1-n2", Agent: "kubelet", Verb: "update", What: "leases"},
		{Node: "p1-n3", Agent: "kubelet", Verb: "update", What: "leases"},
		{Node: "p1-n3", Agent: "kubelet", Verb: "update", What: "leases"},
		{Node: "p2-n1", Agent: "kubelet", Verb: "update", What: "leases"},
	}
	return newMeasured(Idle, kinds, before, after, asked)
}

func TestADayIsWhatWasMeasuredMultiplied(t *testing.T) {
	m := measured()
	for _, tt := range []struct {
		what      string
		got, want float64
	}{
		{"up, no hub", m.Up[NoHub], 400 * 24},
		{"down, no hub", m.Down[NoHub], 600 * 24},
		{"leader, from its first reading on", m.Cost(Leader), 3000 * 24},
		{"followers in the mean", m.Cost(Follower), 400 * 24},
		{"ratio of a hub alone", m.Ratio(Alone), 1},
		{"pool of the three", m.PoolRatio(3), 3800.0 / 3000},
		{"pool of ten", m.PoolRatio(10), (3000.0 + 9*400) / 10000},
		{"the leader's probes", m.Spent[Leader]["probe"], 100 * 24},
		{"the followers' probes", m.Spent[Follower]["probe"], 50 * 24},
		{"the leader's frames, MB", m.spentTable()[Leader]["frames"], 2000 * 24 / 1e6},
		{"requests an hour of a follower", m.Requests[Follower]["kubelet update leases"], 1.5},
		{"… of a node without a hub", m.Requests[NoHub]["kubelet update leases"], 1},
	} {
		if diff := tt.got - tt.want; diff > 1e-6 || diff < -1e-6 {
			t.Errorf("%s: %v, want %v", tt.what, tt.got, tt.want)
		}
	}
}

func TestReport(t *testing.T) {
	r := Report{Measured: []Measured{measured()}}
	var text strings.Builder
	if err := r.Table(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"A cluster that is idle, measured for 1h0m0s", "pool of 3", "pool of 10", "frames", "kubelet update leases",
		"a node behind a hub ≤ 1× one without: ok, 1.00×", "pool of 10 ≤ 0.8×: ok, 0.66×",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, text.String())
		}
	}
	figures := r.Figures()
	for key, want := range map[string]float64{
		"idle_seconds": 3600, "idle_leader_ratio": 3, "idle_hub_no_coordinator_ratio": 1, "idle_pool_of_10_ratio": 0.66,
		"idle_nodes_in_pool": 3,
	} {
		if figures[key] != want {
			t.Errorf("%s: %v, want %v, of %v", key, figures[key], want, figures)
		}
	}
}

func TestKindOfANode(t *testing.T) {
	hub := func(cloud, role string) *lab.HubStatus {
		var s lab.HubStatus
		s.Cloud, s.Role = cloud, role
		return &s
	}
	for _, tt := range []struct {
		node lab.NodeStatus
		want Kind
		err  string
	}{
		{lab.NodeStatus{Name: "p2-n1"}, NoHub, ""},
		{lab.NodeStatus{Name: "p3-n2", Hub: hub("up", "plain")}, Alone, ""},
		{lab.NodeStatus{Name: "p1-n1", Hub: hub("up", "leader")}, Leader, ""},
		{lab.NodeStatus{Name: "p1-n3", Hub: hub("up", "follower")}, Follower, ""},
		{lab.NodeStatus{Name: "p1-n3", Hub: hub("up", "pending")}, "", "its role is pending"},
		{lab.NodeStatus{Name: "p1-n3", Hub: hub("down", "follower")}, "", "its link to the cloud is down"},
		{lab.NodeStatus{Name: "p3-n1"}, "", "its hub does not answer"},
	} {
		got, err := kindOf(tt.node)
		if got != tt.want || (err != nil || tt.err != "") && (err == nil || err.Error() != tt.err) {
			t.Errorf("%s: %q, %v, want %q, %q", tt.node.Name, got, err, tt.want, tt.err)
		}
	}
}
