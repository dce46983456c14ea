package member

import (
	"context"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/hub/share"
	"yurtcoordinator/internal/hub/views"
	"yurtcoordinator/internal/stream"
)

// Follow gives the Membership the selections that the hub follows, and makes the parts that TakePart runs. Call it once, before
// TakePart.
func (m *Membership) Follow(what *cache.Set) error {
	m.followed = what
	for _, c := range m.coordinators {
		m.part.Add(c.named("role"), c.elector.Run)
	}
	for _, c := range m.coordinators {
		filler := share.NewFiller(share.FillerConfig{
			Config: m.pushes(c), Resources: shared{m}, Leases: c.leases, CloudLink: m.cfg.Cloud.Link(), Link: c.upstream.Link(),
			Leader: func() (edge.NodeName, <-chan struct{}) {
				standing, changed := c.elector.Standing().Watch()
				return standing.Leader, changed
			},
		})
		m.part.Add(c.named("fill in for a leader"), filler.Run)
	}
	if !m.cfg.OwnObjects {
		return nil
	}
	cloud, err := corev1client.NewForConfig(m.cfg.Cloud.RESTConfig())
	if err != nil {
		return err
	}
	number := func() edge.History { return m.cfg.History.Number() }
	var pushers []*share.Node
	var follower *views.Follower
	changed := func() {
		for _, p := range pushers {
			p.Changed()
		}
		follower.Changed()
	}
	taker := share.NewTaker(share.TakerConfig{
		Object: m.followed.OwnObject, CloudLink: m.cfg.Cloud.Link(), Events: cloud,
		History: number, Disk: m.cfg.Disk, Changed: changed, Metrics: m.cfg.Metrics, Ends: m.cfg.Ends,
	})
	accounts := share.NewAccounts(share.AccountsConfig{
		Cloud: cloud, CloudLink: m.cfg.Cloud.Link(), History: number, Ends: m.cfg.Ends,
	})
	for _, c := range m.coordinators {
		pushers = append(pushers, share.NewNode(share.NodeConfig{
			Config: m.pushes(c), Pool: m.cfg.Pool, Followed: m.ofNode, Secrets: m.cfg.OwnSecrets, Link: c.upstream.Link(),
			CloudLink: m.cfg.Cloud.Link(), Accounts: accounts, Overlay: taker,
		}))
	}
	var tell []views.Coordinator
	for _, c := range m.coordinators {
		tell = append(tell, views.Coordinator{Link: c.upstream.Link(), Told: c.state})
	}
	follower = views.NewFollower(views.FollowerConfig{
		Node: m.cfg.Node, CloudLink: m.cfg.Cloud.Link(), Coordinators: tell, Home: m.home.At(), Own: m.ownPods,
		Said: taker.Said, Services: m.followed.Source(views.Services), History: number,
		View: m.cfg.Overlay, Metrics: m.cfg.Metrics, Ends: m.cfg.Ends,
	})
	m.changed, m.taker = changed, taker
	m.part.Add("writes in the cloud's place", taker.Run)
	m.part.Add("accounts of own Pods", accounts.Run)
	for i, p := range pushers {
		m.part.Add(m.coordinators[i].named("own objects"), p.Run)
	}
	m.part.Add("endpoints that follow the Pods", func(ctx context.Context) error {
		select {
		case <-m.followed.Begun():
			m.followed.Wanted(views.Services)
			return follower.Run(ctx)
		case <-ctx.Done():
			return nil
		}
	})
	return nil
}

// ownPods returns this node's Pods as the cloud has them, by what kubelet follows.
func (m *Membership) ownPods(ctx context.Context) (stream.Snapshot, bool) {
	for _, each := range m.followed.Own() {
		if each.ID == (stream.ID{Resource: "pods"}) {
			all, err := each.Replica.Snapshot(ctx)
			return all, err == nil
		}
	}
	return stream.Snapshot{}, false
}

// ofNode returns what is followed of this node's own objects.
func (m *Membership) ofNode() (all []share.Selection) {
	for _, each := range m.followed.Own() {
		all = append(all, share.Selection{ID: each.ID, Replica: each.Replica})
	}
	return all
}
