package shareserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
)

// A resource is complete once all of it has come, up to the marker, since this coordinator started. It is current while a leader
// says that it brings each change (MirrorConfig.Current). Programs get no answer from an incomplete resource, because they would
// take missing objects for deleted ones. Operators can judge, so they get an incomplete resource, with a warning, if it is built
// in. Incomplete NodePools, which are not built in, they do not get. See docs/adr/0039-complete-and-current.md.

// standing is how far a resource has come into the mirror.
type standing struct {
	complete, current bool
	filled            bool // by a node without a link to the cloud
	// since is when it was last current; the zero time means never.
	since time.Time
}

func (m *Mirror) standing(r schema.GroupVersionResource) standing {
	s := standing{}
	pushed := m.pushedAs(r)
	if each := m.get(pushed); each != nil {
		s.complete, s.filled = each.Position() != 0, each.replica.History().IsFilled()
	}
	now, last := m.current(pushed.GroupResource())
	s.current, s.since = s.complete && now, last
	return s
}

// warns returns the warning for a person who reads the resource; empty means none. The coordinator started at began.
func (s standing) warns(r schema.GroupResource, began time.Time) string {
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	switch {
	case !s.complete:
		return fmt.Sprintf("%s are not complete here: not all have come from the cloud since this coordinator started at %s; "+
			"what is missing may exist", r, at(began))
	case s.current:
		return ""
	case s.filled:
		return fmt.Sprintf("%s are complete here but not current: a node that can't reach the cloud has brought them, as it had "+
			"them, since this coordinator started at %s", r, at(began))
	case s.since.IsZero():
		return fmt.Sprintf("%s are complete here but not current: nobody brings what changes in the cloud", r)
	default:
		return fmt.Sprintf("%s are complete here but not current: nobody has brought what changed in the cloud since %s", r,
			at(s.since))
	}
}

// Gate refuses programs that read an incomplete resource, and tells them when to retry. Operators get a warning if a resource
// is not complete or not current. While one that is not built in (NodePools) is incomplete, Gate refuses operators, too. Gate
// wraps the API only, because the mirror's own answers to hubs say what is missing. Requests of this process pass.
func (m *Mirror) Gate(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource, gated := m.reads(r)
		if !gated {
			api.ServeHTTP(w, r)
			return
		}
		s := m.standing(resource)
		if err := m.refuses(resource, s, person(r)); err != nil {
			(&exchange.Reply{ResponseWriter: w}).Refuse(r.Context(), err)
			return
		}
		if text := s.warns(resource.GroupResource(), m.began); text != "" && person(r) {
			warning.AddWarning(r.Context(), "", text)
		}
		api.ServeHTTP(w, r)
	})
}

// reads returns which of the pool's resources a request reads, by anybody but this process.
func (m *Mirror) reads(r *http.Request) (schema.GroupVersionResource, bool) {
	info, ok := request.RequestInfoFrom(r.Context())
	caller, known := request.UserFrom(r.Context())
	if !ok || !known || caller.GetName() == user.APIServerUser || !info.IsResourceRequest ||
		!slices.Contains([]string{"get", "list", "watch"}, info.Verb) || info.Subresource != "" && info.Subresource != "status" {
		return schema.GroupVersionResource{}, false
	}
	resource := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	return resource, m.shows(resource)
}

// shows reports whether the API shows what the mirror has of a resource.
func (m *Mirror) shows(r schema.GroupVersionResource) bool {
	_, builtIn := m.builtIns[r]
	return builtIn || m.pushedAs(r) != r
}

// pushedAs returns as what a resource is pushed that the API shows.
func (m *Mirror) pushedAs(shown schema.GroupVersionResource) schema.GroupVersionResource {
	m.mu.Lock()
	defer m.mu.Unlock()
	for pushed, each := range m.mirrored {
		if each.replica.Resource() == shown {
			return pushed
		}
	}
	return shown
}

// person reports whether a request is an operator's.
func person(r *http.Request) bool {
	caller, _ := request.UserFrom(r.Context())
	return slices.ContainsFunc(caller.GetGroups(), edge.IsOperators)
}

// Metrics returns how far each resource is.
func (m *Mirror) Metrics() []prometheus.Collector {
	gauge := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("yurt_coordinator_"+name, help, []string{"resource"}, nil)
	}
	return []prometheus.Collector{&standings{
		m,
		gauge("resource_complete", "1 once all of a pool's resource has come since the coordinator started, else 0."),
		gauge("resource_current", "1 while the pool's leader says that it brings each change of the resource, else 0."),
	}}
}

// standings collects them.
type standings struct {
	mirror            *Mirror
	complete, current *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (s *standings) Describe(ch chan<- *prometheus.Desc) {
	ch <- s.complete
	ch <- s.current
}

// Collect implements prometheus.Collector.
func (s *standings) Collect(ch chan<- prometheus.Metric) {
	number := map[bool]float64{true: 1}
	for _, r := range s.mirror.known() {
		is, name := s.mirror.standing(r), r.GroupResource().String()
		ch <- prometheus.MustNewConstMetric(s.complete, prometheus.GaugeValue, number[is.complete], name)
		ch <- prometheus.MustNewConstMetric(s.current, prometheus.GaugeValue, number[is.current], name)
	}
}

// Shared returns how far each resource is, by name.
func (m *Mirror) Shared() []edge.Shared {
	known := m.known()
	all := make([]edge.Shared, 0, len(known))
	for _, r := range known {
		s, as := m.standing(r), r.GroupResource()
		if each := m.get(r); each != nil {
			as = each.replica.Resource().GroupResource()
		}
		all = append(all, edge.Shared{
			Resource: as.String(), Complete: s.complete, Current: s.current, Warns: s.warns(as, m.began),
		})
	}
	slices.SortFunc(all, func(a, b edge.Shared) int { return strings.Compare(a.Resource, b.Resource) })
	return all
}

// known returns what the API shows of the mirror, and what was pushed besides, each group and name once.
func (m *Mirror) known() []schema.GroupVersionResource {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[schema.GroupResource]schema.GroupVersionResource{}
	for r := range m.mirrored {
		all[r.GroupResource()] = r
	}
	for r := range m.builtIns {
		all[r.GroupResource()] = r
	}
	found := make([]schema.GroupVersionResource, 0, len(all))
	for _, r := range all {
		found = append(found, r)
	}
	return found
}
