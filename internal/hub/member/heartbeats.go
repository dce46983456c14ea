package member

import (
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/hub/heartbeat"
	"yurtcoordinator/internal/hub/identity"
	"yurtcoordinator/internal/hub/upstream"
)

// beatAlone sends kubelet's heartbeats to the cloud and nowhere else.
func (m *Membership) beatAlone() error {
	asNode, err := coordinationv1client.NewForConfig(m.cfg.Cloud.RESTConfig())
	if err != nil {
		return err
	}
	m.makeProxy(heartbeat.ProxyConfig{
		Node: m.cfg.Node, Cloud: asNode, CloudLink: m.cfg.Cloud.Link(), History: m.cfg.History, Metrics: m.cfg.Metrics,
		Clock: m.cfg.Ends.Clock,
	})
	return nil
}

// beat sends kubelet's heartbeats to the cloud and to the coordinators.
func (m *Membership) beat() error {
	anyway := m.cfg.Cloud.RESTConfig()
	anyway.Transport = upstream.Anyways(anyway.Transport)
	asNode, err := coordinationv1client.NewForConfig(anyway)
	if err != nil {
		return err
	}
	m.kubelet = identity.NewKubeletFinder(identity.KubeletConfig{
		Settings: m.cfg.KubeletConfig, Certificate: m.cfg.KubeletServing, Authorities: m.cfg.Via.CAFile, Clock: m.cfg.Ends.Clock,
		Metrics: m.cfg.Metrics,
	})
	m.reach.Add("kubelet's certificate", m.kubelet.Run)
	var copies []heartbeat.Coordinator
	for _, c := range m.coordinators {
		copies = append(copies, heartbeat.Coordinator{
			Leases: c.leases, Link: c.upstream.Link(), Served: func(took bool) { m.home.Served(c.slot, took) },
		})
	}
	m.makeProxy(heartbeat.ProxyConfig{
		Node: m.cfg.Node, Cloud: asNode, CloudLink: m.cfg.Cloud.AnywayLink(), Coordinators: copies,
		Relayed: m.cfg.Relayed, RelaysAt: m.cfg.RelaysAt, Traffic: m.cfg.Cloud.Traffic, Kubelet: m.kubelet.Serving,
		Version: m.cfg.Version, Report: m.cfg.Report,
		Metered: func() bool { return m.cfg.LinkProfile() == v1alpha1.LinkMetered }, Metrics: m.cfg.Metrics,
		History: m.cfg.History, Clock: m.cfg.Ends.Clock,
	})
	return nil
}

// makeProxy makes the heartbeat.Proxy, through which kubelet's heartbeats go.
func (m *Membership) makeProxy(heartbeats heartbeat.ProxyConfig) {
	proxy := heartbeat.NewProxy(heartbeats)
	m.heartbeats = proxy
	m.reach.Add("heartbeats", proxy.Run)
}
