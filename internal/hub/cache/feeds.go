package cache

import (
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/transport"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream/remote"
)

// programLists bounds how many lists for programs run at a time. kubelet waits for some hundred lists of one object each, and
// each takes little more than a round trip. One at a time, they would take half a minute over a WAN.
const programLists = 8

// Sources says where feeds read from.
type Sources struct {
	// Cloud is the cloud's address, CloudLink the state of the link to it.
	Cloud     *url.URL
	CloudLink *live.Value[link.State]
	// History follows the cloud's history.
	History *HistoryKeeper
	// AsNode reaches the cloud with the node's credentials, for the hub and the node's programs. As reaches it with a caller's
	// credentials.
	AsNode http.RoundTripper
	As     func(client string) http.RoundTripper
	// Pool is the coordinator's mirror of the pool's resources; nil means no coordinator.
	Pool *Pool
	// Metrics counts the hub's own feeds. Programs may have any number of feeds, so those appear only in Status.
	Metrics prometheus.Registerer
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Pool is the coordinator's mirror.
type Pool struct {
	As       http.RoundTripper
	Base     *url.URL
	Link     *live.Value[link.State]
	Standing *live.Value[lead.Standing]
	Covered  func(schema.GroupResource) *live.Value[bool]
	// Filling says what the leader is reading from the cloud.
	Filling func(schema.GroupResource) *live.Value[bool]
	// History is the history of the covered content.
	History *live.Value[edge.History]
}

// Feeds returns a function that makes feeds reading from these sources.
func Feeds(s *Sources) func(Order) Feeder {
	counted, unseen := NewFeedMetrics(s.Metrics), NewFeedMetrics(nil)
	hubs, programs, guests := make(chan struct{}, 1), make(chan struct{}, programLists), make(chan struct{}, programLists)
	return func(o Order) Feeder {
		config := FeedConfig{
			Resource: o.Resource, Sink: o.Replica, CloudLink: s.CloudLink, Lists: guests, Metrics: unseen,
			Ends: s.Ends,
			// kubelet kills Pods that are gone from its list
			Precious: o.Resource == schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		}
		as := s.AsNode
		switch o.Client {
		case Hub:
			if config.Lists, config.Metrics = hubs, counted; o.prompt() {
				config.Lists = programs
			}
		case "":
			config.Lists = programs
		default:
			as = s.As(o.Client)
		}
		cloud := o.readFrom("cloud", as, s.Cloud, Collection(o.Resource, o.Namespace), o.watchTime(), s.Ends.Chance)
		switch config.Cloud = cloud; {
		case budget(o.Client) != 0:
			config.Cloud = &bounded{cloud, o.TooLarge}
		case o.Fields == "" && o.Labels == "":
			config.Pages = cloud
		}
		if o.Shared && s.Pool != nil {
			mirror := mirrorPath(o.Resource)
			config.Coordinator = o.readFrom("coordinator", s.Pool.As, s.Pool.Base, mirror, 0, s.Ends.Chance)
			config.CoordinatorLink, config.Standing = s.Pool.Link, s.Pool.Standing
			config.Filling = s.Pool.Filling(o.Resource.GroupResource())
			config.Covered, config.CoveredHistory = s.Pool.Covered(o.Resource.GroupResource()), s.Pool.History
		}
		config.History = func() History { return s.History.Of(o.Client, o.Resource.GroupResource()) }
		return NewFeed(config)
	}
}

// prompt reports whether the hub's own order is for little data that the node waits for: the NodePool, which decides which
// endpoints the hub shows, or Services, which kubelet needs before it makes a container. Their lists must not queue behind
// endpoints, which take minutes on a thin line.
func (o *Order) prompt() bool {
	return o.Fields != "" || o.Labels != "" || o.Resource.GroupResource() == schema.GroupResource{Resource: "services"}
}

// ownWatchTime is the least time that a watch of the cloud with the node's credentials lasts. API servers choose the same time if
// a client asks for none. Each new watch costs some 900 bytes on the link.
const ownWatchTime = 30 * time.Minute

// watchTime returns the least time that one watch of the cloud lasts; 0 means remote.Config's default, which is shorter than
// ownWatchTime. A caller's watches are short, because a caller who has lost a permission gets events until the watch ends.
func (o *Order) watchTime() time.Duration {
	if o.Client == Hub || o.Client == "" {
		return ownWatchTime
	}
	return 0
}

func (o *Order) readFrom(
	name string, as http.RoundTripper, base *url.URL, at string, watchTime time.Duration, chance ends.Chance,
) *remote.Source {
	return remote.New(remote.Config{
		Client: &http.Client{Transport: transport.NewUserAgentRoundTripper(Hub, as)},
		Base:   base, Path: at, FieldSelector: o.Fields, LabelSelector: o.Labels, Name: name,
		WatchTime: watchTime, ListBytes: int64(budget(o.Client)), Chance: chance,
	})
}

// Collection returns the path of a resource at an API server, of all namespaces if none is named.
func Collection(r schema.GroupVersionResource, namespace string) string {
	root := path.Join("/apis", r.Group, r.Version)
	if r.Group == "" {
		root = path.Join("/api", r.Version)
	}
	if namespace != "" {
		root = path.Join(root, "namespaces", namespace)
	}
	return path.Join(root, r.Resource)
}

func mirrorPath(r schema.GroupVersionResource) string {
	group := r.Group
	if group == "" {
		group = edge.CoreGroup
	}
	return path.Join(edge.PathMirror, group, r.Version, r.Resource)
}
