package hub

import (
	"os"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/hub/settings"
	"yurtcoordinator/internal/logs"
	"yurtcoordinator/internal/version"
)

// heedPool adds the part that follows the pool's settings.
func (h *Hub) heedPool() error {
	if h.cfg.Pool == "" {
		return nil
	}
	cloud, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return err
	}
	follower := settings.New(settings.Config{
		Node: h.cfg.Node, Pool: h.cfg.Pool, ConfigMaps: cloud.ConfigMaps(edge.NamespaceSystem), Nodes: cloud.Nodes(),
		Dir: h.cfg.CertDir, Reachable: h.cloud.NotDown, Started: h.reported(), Metrics: h.metrics,
		Usable: h.inForce.Usable, Take: h.inForce.Take, Program: program, Ends: h.ends,
	})
	h.reported = follower.Report
	h.parts.Add("settings of the pool", follower.Run)
	return nil
}

// program returns what the hub says of its program. It can be upgraded from the cloud if join has made the directory for that.
func program() edge.HubProgram {
	_, err := os.Stat(edge.UpgradeInbox)
	return edge.HubProgram{Version: version.Get().Version, Upgradable: err == nil}
}

// Reconfigure applies the node's own settings that can change while a hub runs: see config.InForce.
func (h *Hub) Reconfigure(own config.Config) error { return h.inForce.Change(own) }

// apply makes the parts run with settings that can change while the hub runs.
func (h *Hub) apply(now config.Config) {
	shared, _ := now.Shared() // they are valid
	h.followed.Change(shared)
	h.agents.Set(now.CacheAgents)
	h.lasting.SetLimit(now.RememberIdentitiesFor)
	h.disk.SetAhead(now.DiskCacheClockOffset)
	h.cloud.Retime(now.Judged())
	h.lent.Change(now.Borrows(), now.Metered())
	if err := logs.SetVerbosity(now.Logs.Verbosity); err != nil {
		klog.Background().Error(err, "The hub logs as much as before")
	}
}
