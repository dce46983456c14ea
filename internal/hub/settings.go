package hub

import (
	"fmt"
	"sync"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/health"
	"yurtcoordinator/internal/hub/settings"
)

// inForce is what a hub's settings come from.
type inForce struct {
	mu  sync.Mutex
	own Config               // the node's own
	say v1alpha1.HubSettings // what the pool says
}

// remember returns with which settings a hub starts: the node's own, under what the pool said last, as far as this node can
// use it.
func remember(own Config) (starts Config, said v1alpha1.HubSettings, report edge.SettingsReport) {
	if own.Pool == "" {
		return own, v1alpha1.HubSettings{}, edge.SettingsReport{}
	}
	what, err := settings.Recall(own.CertDir, own.Pool)
	if err == nil {
		said, _, err = what.Settings()
	}
	if err != nil {
		klog.Background().Error(err, "Cannot read what the pool said last: the hub starts with the node's own settings")
		return own, v1alpha1.HubSettings{}, edge.SettingsReport{}
	}
	if err := own.usable(said); err != nil {
		klog.Background().Error(err, "Cannot use what the pool said last: the hub starts with the node's own settings",
			"generation", what.Generation)
		return own, v1alpha1.HubSettings{}, edge.SettingsReport{
			Told: what.Generation, State: edge.SettingsRefused, Why: err.Error(),
		}
	}
	return own.under(said), said, edge.SettingsReport{Runs: what.Generation, Told: what.Generation}
}

// heedPool adds what follows the pool's settings.
func (h *Hub) heedPool() error {
	if h.cfg.Pool == "" {
		return nil
	}
	cloud, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return err
	}
	h.settings = settings.New(settings.Config{
		Node: h.cfg.Node, Pool: h.cfg.Pool, ConfigMaps: cloud.ConfigMaps(edge.NamespaceSystem), Nodes: cloud.Nodes(),
		Dir: h.cfg.CertDir, Reachable: h.cloud.NotDown, Started: h.started, Metrics: h.metrics,
		Usable: func(said v1alpha1.HubSettings) error {
			h.inForce.mu.Lock()
			defer h.inForce.mu.Unlock()
			return h.inForce.own.usable(said)
		},
		Take: h.take,
	})
	h.parts.Add("settings of the pool", h.settings.Run)
	return nil
}

// take has the hub run with what the pool says, and returns what takes a restart.
func (h *Hub) take(said v1alpha1.HubSettings) (restart []string, err error) {
	h.inForce.mu.Lock()
	defer h.inForce.mu.Unlock()
	return h.applyLocked(h.inForce.own, said)
}

// Reconfigure applies the node's own settings that can change while a hub runs, and DiskCacheClockOffset for tests. If cfg is not
// valid or differs in anything else, it returns an error and changes nothing.
func (h *Hub) Reconfigure(cfg Config) error {
	h.inForce.mu.Lock()
	defer h.inForce.mu.Unlock()
	if err := cfg.Validate(); err != nil {
		return err
	}
	if err := h.inForce.own.mayBecome(cfg); err != nil {
		return err
	}
	_, err := h.applyLocked(cfg, h.inForce.say)
	return err
}

// applyLocked makes the hub do what the node and the pool say, as far as it can while it runs.
func (h *Hub) applyLocked(own Config, said v1alpha1.HubSettings) (restart []string, err error) {
	to := own.under(said)
	if err := to.Validate(); err != nil {
		return nil, fmt.Errorf("the node's and the pool's settings together: %w", err)
	}
	shared, err := resources("pool-scope-resources", to.PoolScopeResources)
	if err != nil {
		return nil, err
	}
	judged, err := timing(to.LinkProfile)
	if err != nil {
		return nil, err
	}
	h.inForce.own, h.inForce.say = own, said
	h.followed.Change(shared)
	h.agents.Set(to.CacheAgents)
	h.lasting.SetLimit(to.RememberIdentitiesFor)
	h.disk.SetAhead(to.DiskCacheClockOffset)
	h.cloud.Retime(judged)
	h.lent.change(to)
	return h.cfg.needRestart(to), nil
}

// settingsStatus says which of the pool's settings the hub runs with; nil if it knows of none.
func (h *Hub) settingsStatus() *health.SettingsStatus {
	if h.settings == nil {
		return nil
	}
	report := h.settings.Report()
	if report == (edge.SettingsReport{}) {
		return nil
	}
	h.inForce.mu.Lock()
	defer h.inForce.mu.Unlock()
	return &health.SettingsStatus{
		Generation: report.Told, Running: report.Runs, State: string(report.State), Why: report.Why,
		Own: h.inForce.own.kept(h.inForce.say),
	}
}
