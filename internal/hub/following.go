package hub

import (
	"context"
	"net/http"

	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/hub/callers"
	"yurtcoordinator/internal/hub/filter"
	"yurtcoordinator/internal/hub/follow"
	"yurtcoordinator/internal/hub/recall"
	"yurtcoordinator/internal/hub/tenure"
	"yurtcoordinator/internal/stream"
)

// follow makes the Set of what is followed for the hub itself, for the node's programs, and for callers with credentials of
// their own.
func (h *Hub) follow() error {
	shared, err := h.cfg.Shared()
	if err != nil {
		return err
	}
	config := follow.Config{
		Node: h.cfg.Node, Disk: h.disk, Cloud: h.cloud.Link(), Coordinator: h.member.Link(), Eager: h.cfg.EnableCoordinator,
		Ends: h.ends,
		Changed: func() {
			h.member.Changed()
			h.pods.Changed()
		},
	}
	config.NewFeed = follow.Feeds(&follow.Sources{
		Cloud: h.servers[0], CloudLink: h.cloud.Link(), History: h.history, Pool: h.member.Mirror(), Metrics: h.metrics,
		AsNode: h.cloud.AsNode(), As: func(client string) http.RoundTripper { return h.guests.As(client) },
		Ends: h.ends,
	})
	h.parts.Add("what is followed", func(ctx context.Context) error { return h.followed.Run(ctx) })
	h.addViews(&config)
	h.followed = follow.New(config, shared)
	return nil
}

// addViews makes this node's programs see some resources differently from the cloud.
func (h *Hub) addViews(c *follow.Config) {
	about := filter.ViewsConfig{
		Node: h.cfg.Node, Pool: h.cfg.Pool,
		Source: func(what follow.Selection) stream.Beginner { return h.followed.Source(what) }, Chance: h.ends.Chance,
	}
	if h.cfg.EnableCoordinator && h.cfg.OwnObjects {
		about.Overlay = h.overlay
	}
	views := filter.NewViews(about)
	h.parts.Add("views", views.Run)
	c.Always, c.View, c.KubeletView = views.Always, views.View, h.shown.View
	if h.cfg.MasterService {
		c.KubeletView = filter.Any(h.shown.View, h.pods.View)
	}
	h.serves.Shown = h.shown
}

// answer makes the parts that answer clients from what is followed and remembered.
func (h *Hub) answer() error {
	lasting := tenure.New(tenure.Config{
		Node: h.cfg.Node, Limit: h.cfg.RememberIdentitiesFor, PodUID: h.followed.PodUID, Disk: h.disk, Wall: h.disk.Wall,
		Boot: h.ends.Boot, Chance: h.ends.Chance,
	})
	answers, err := recall.NewClients(recall.Config{Disk: h.disk, Gone: h.followed.Gone, Tenure: lasting})
	if err != nil {
		return err
	}
	asNode, err := kubernetes.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return err
	}
	known := callers.New(callers.Config{
		Tokens: asNode.AuthenticationV1().TokenReviews(), Access: asNode.AuthorizationV1().SubjectAccessReviews(),
		Cloud: h.cloud.Link(), Disk: h.disk, Tenure: lasting, Clock: h.ends.Clock,
	})
	h.parts.Add("what is remembered of users", func(ctx context.Context) error {
		return lasting.Run(ctx, answers.Tidy, known.Tidy)
	})
	h.agents, h.lasting = follow.NewAgents(h.cfg.CacheAgents), lasting
	h.guests = callers.NewGuests(known, h.cloud.AsCaller())
	h.serves.Replicas, h.serves.Callers = h.followed, h.guests
	h.serves.Keeper = struct {
		*follow.Agents
		*follow.Set
		*recall.Clients
	}{h.agents, h.followed, answers}
	return nil
}
