package member

import (
	"context"
	"net/url"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/hub/coordinators"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/hub/views"
)

// joined returns a Membership of node n1 in pool p1, with a cloud and a coordinator that nobody has asked, and what it follows.
func joined(t *testing.T, change func(*Config)) (*Membership, *cache.Set) {
	t.Helper()
	server, err := url.Parse("https://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	via := upstream.Config{CAFile: "ca", CertFile: "cert", KeyFile: "key", Metrics: prometheus.NewRegistry()}
	to := via
	to.Name, to.Servers, to.Link = "cloud", []*url.URL{server}, link.Standard()
	cloud, err := upstream.New(to)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := cache.OpenDisk(cache.DiskConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := Config{
		Node: "n1", Pool: "p1", Cloud: cloud, Via: via, Dir: t.TempDir(), OwnObjects: true,
		Relayed: func() edge.Relayed { return edge.Relayed{} }, RelaysAt: func() string { return "" },
		LinkProfile: func() v1alpha1.LinkProfile { return v1alpha1.LinkNormal },
		History:     cache.NewHistory(cache.HistoryConfig{Link: cloud.Link(), Disk: kept}), Disk: kept,
		Overlay: views.NewEndpointsView(),
		Metrics: via.Metrics,
	}
	change(&cfg)
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	set := cache.New(cache.Config{
		Node: "n1", Disk: kept, Cloud: cloud.Link(), Coordinator: m.Link(), Always: []cache.Selection{views.OwnPool("p1")},
		NewFeed: cache.Feeds(&cache.Sources{
			Cloud: server, CloudLink: cloud.Link(), History: cfg.History, Pool: m.Mirror(), AsNode: cloud.AsNode(),
		}),
		Changed: m.Changed,
	}, []schema.GroupVersionResource{views.Services.Resource})
	return m, set
}

// TestNew: whose coordinator is where, and what a hub brings there, is as its Config says.
func TestNew(t *testing.T) {
	at, err := url.Parse("https://10.1.0.1:10270")
	if err != nil {
		t.Fatal(err)
	}
	standby := &url.URL{Scheme: "https", Host: "10.1.0.2:10270"}
	for name, tt := range map[string]struct {
		change func(*Config)
		url    string
		brings bool
	}{
		"a coordinator that the cloud knows": {func(*Config) {}, "", true},
		"one that is given":                  {func(c *Config) { c.At = []*url.URL{at} }, "https://10.1.0.1:10270", true},
		"one with a standby": {
			func(c *Config) { c.At = []*url.URL{at, standby} }, "https://10.1.0.1:10270", true,
		},
		"nothing of its own": {func(c *Config) { c.OwnObjects = false }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			m, set := joined(t, tt.change)
			if m.URL() != tt.url || m.Link().Get() != link.Unknown || m.Standing().Get() != (lead.Standing{}) {
				t.Errorf("a coordinator at %q, the link %v, the standing %+v", m.URL(), m.Link().Get(), m.Standing().Get())
			}
			if mirror := m.Mirror(); mirror == nil || mirror.Link != m.Link() || mirror.Standing != m.home.Anywhere() {
				t.Errorf("what can be read there is %+v", mirror)
			}
			if m.Heartbeats() == nil || len(m.Reached()) > 0 || m.Kubelet() == nil {
				t.Error("nobody takes heartbeats, reaches the coordinator, or looks for kubelet's certificate")
			}
			if err := m.Follow(set); err != nil {
				t.Fatal(err)
			}
			m.Changed() // of what is followed, before anything runs
			if (m.StandIn() != nil) != tt.brings {
				t.Errorf("it stands in for the cloud: %t, want %t", m.StandIn() != nil, tt.brings)
			}
		})
	}
}

// TestTiming: a slot without a coordinator is asked seldom, and silence of one of several is noticed sooner.
func TestTiming(t *testing.T) {
	one := coordinators.Target{Place: coordinators.Place{Address: "10.1.0.1:10270"}}
	two := one
	two.Others[1].Address = "10.1.0.2:10270"
	for name, tt := range map[string]struct {
		known coordinators.Target
		want  [edge.MaxSlots]link.Timing
	}{
		"none": {coordinators.Target{}, [...]link.Timing{link.Nowhere(), link.Nowhere(), link.Nowhere()}},
		"one":  {one, [...]link.Timing{link.Near(), link.Nowhere(), link.Nowhere()}},
		"two":  {two, [...]link.Timing{link.Beside(), link.Nowhere(), link.Beside()}},
	} {
		for slot, want := range tt.want {
			if got := timing(tt.known, edge.Slot(slot)); got != want {
				t.Errorf("%s known, slot %d: %+v", name, slot, got)
			}
		}
	}
}

// TestWhatTheLeaderPushes is what the pool shares and, for the coordinator, the pool's own NodePool.
func TestWhatTheLeaderPushes(t *testing.T) {
	m, set := joined(t, func(*Config) {})
	if err := m.Follow(set); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- set.Run(ctx) }()
	<-set.Begun()
	all, _ := shared{m}.Resources()
	if len(all) != 2 || all[0].GVR != views.Services.Resource || all[0].Optional || all[1].GVR != edge.OwnNodePools ||
		!all[1].Optional {
		t.Errorf("it pushes %+v", all)
	}
	if _, known := m.ownPods(t.Context()); known || len(m.ofNode()) > 0 {
		t.Error("this node's Pods are known, though kubelet follows none")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
