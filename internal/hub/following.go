package hub

import (
	"context"
	"net/http"

	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/recall"
	"yurtcoordinator/internal/hub/views"
	"yurtcoordinator/internal/stream"
)

// follow builds the Set of selections that the hub caches for itself, for the node's programs, and for callers.
func (h *Hub) follow() error {
	shared, err := h.cfg.Shared()
	if err != nil {
		return err
	}
	cloud, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return err
	}
	oversized := cache.NewTooLarge(string(h.cfg.Node), h.metrics, h.ends)
	h.parts.Add("Events of what is too large to cache", func(ctx context.Context) error { return oversized.Run(ctx, cloud) })
	config := cache.Config{
		TooLarge: oversized.Tell,
		Node:     h.cfg.Node, Disk: h.disk, Cloud: h.cloud.Link(), Coordinator: h.member.Link(), Eager: h.cfg.EnableCoordinator,
		Ends: h.ends,
		Changed: func() {
			h.member.Changed()
			h.pods.Changed()
		},
	}
	config.NewFeed = cache.Feeds(&cache.Sources{
		Cloud: h.servers[0], CloudLink: h.cloud.Link(), History: h.history, Pool: h.member.Mirror(), Metrics: h.metrics,
		AsNode: h.cloud.AsNode(), As: func(client string) http.RoundTripper { return h.guests.As(client) },
		Ends: h.ends,
	})
	h.parts.Add("what is followed", func(ctx context.Context) error { return h.followed.Run(ctx) })
	h.addViews(&config)
	h.followed = cache.New(config, shared)
	return nil
}

// addViews makes this node's programs see some resources differently from the cloud.
func (h *Hub) addViews(c *cache.Config) {
	about := views.Config{
		Node: h.cfg.Node, Pool: h.cfg.Pool,
		Source: func(what cache.Selection) stream.Beginner { return h.followed.Source(what) }, Chance: h.ends.Chance,
	}
	if h.cfg.EnableCoordinator && h.cfg.OwnObjects {
		about.Overlay = h.overlay
	}
	seen := views.New(about)
	h.parts.Add("views", seen.Run)
	c.Always, c.View, c.KubeletView = seen.Always, seen.View, h.shown.View
	if h.cfg.MasterService {
		c.KubeletView = views.Any(h.shown.View, h.pods.View)
	}
	h.serves.Shown = h.shown
}

// answer makes the parts that answer clients from what is followed and remembered.
func (h *Hub) answer() error {
	lasting := recall.NewTenure(recall.TenureConfig{
		Node: h.cfg.Node, Limit: h.cfg.RememberIdentitiesFor, PodUID: h.followed.PodUID, Disk: h.disk, Wall: h.disk.Wall,
		Boot: h.ends.Boot, Chance: h.ends.Chance,
	})
	asNode, err := kubernetes.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return err
	}
	known := front.NewCallers(front.CallersConfig{
		Tokens: asNode.AuthenticationV1().TokenReviews(), Access: asNode.AuthorizationV1().SubjectAccessReviews(),
		Cloud: h.cloud.Link(), Disk: h.disk, Tenure: lasting, Clock: h.ends.Clock,
	})
	answers := recall.NewClients(recall.Config{
		Disk: h.disk, Node: h.cfg.Node, Gone: h.followed.Gone, Tenure: lasting, Given: known.Given,
	})
	h.parts.Add("what is remembered of users", func(ctx context.Context) error {
		return lasting.Run(ctx, answers.Tidy, known.Tidy)
	})
	h.agents, h.lasting = cache.NewAgents(h.cfg.CacheAgents), lasting
	h.guests = front.NewGuests(known, h.cloud.AsCaller())
	h.serves.Replicas, h.serves.Callers = h.followed, h.guests
	h.serves.Keeper = struct {
		*cache.Agents
		*cache.Set
		*recall.Clients
	}{h.agents, h.followed, answers}
	return nil
}
