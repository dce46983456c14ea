package cache

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// ServeHTTP answers get, list and watch of a resource that the hub follows for itself. The request's context must carry its
// RequestInfo.
func (s *Set) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		http.Error(w, "no RequestInfo: a defect of yurthub", http.StatusInternalServerError)
		return
	}
	m := s.find(Whole(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}))
	if m == nil {
		// The resource left the set after the request was routed. The client tries again, and the cloud answers it.
		replica.Refuse(w, "yurthub has just stopped keeping a copy of this resource; try again")
		return
	}
	m.want()
	select {
	case <-m.restored:
	case <-r.Context().Done():
		return
	}
	if !m.Replica.Complete().Get() {
		if s.unreachable(m) {
			replica.Refuse(w, "yurthub has never had a complete copy of this resource, and can get none now")
			return
		}
	} else if p := m.expect(r.Context(), s.cfg.Cloud, info.Verb == "get" || asksForNow(r, info.Verb)); p != known &&
		!m.feed.Status().Get().Denied {
		// The cloud must not answer this one request: this node's view may differ from what the cloud shows.
		replica.Refuse(w, "yurthub: the cloud has not yet shown the present state of this resource; try again")
		return
	}
	if m.view != nil {
		s.await(r.Context(), m.view)
	}
	handler := m.handler
	if strings.HasPrefix(r.UserAgent(), "kubelet/") {
		handler = m.kubelet
	}
	handler.Serve(w, r, replica.Request{Verb: info.Verb, Namespace: info.Namespace, Name: info.Name})
}

// unreachable reports whether no source of a member can answer now.
func (s *Set) unreachable(m *Member) bool {
	cloud := s.cfg.Cloud.Get()
	return (cloud == link.Down || cloud == link.Failing) && (!m.Shared || s.cfg.Coordinator.Get() == link.Down)
}

// Answer answers a client's get, list or watch from the followed selections. For all other requests, and where the cloud must
// answer, Answer returns false and has written nothing. Call Answer for a get only after the cloud gave no answer. client says
// whose credentials the request has; empty means the node's. The request's context must carry its RequestInfo.
func (s *Set) Answer(w http.ResponseWriter, r *http.Request, client string) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		http.Error(w, "no RequestInfo: a defect of yurthub", http.StatusInternalServerError)
		return true
	}
	if r.Method != http.MethodGet || !info.IsResourceRequest || !sound(r.URL) {
		return false
	}
	if info.Verb == "get" {
		return s.get(w, r, info, client)
	}
	selection, whole := selectionOf(r, info)
	if info.Verb != "list" && info.Verb != "watch" || !whole {
		return false
	}
	// kubelet's view differs from what the cloud shows, so the cloud must not answer in between.
	viewed := client == "" && s.cfg.KubeletView(selection) != nil
	m, err := s.use(client, selection)
	if err != nil && viewed {
		replica.Refuse(w, fmt.Sprintf("yurthub: %s is not followed: %s", selection, err))
		return true
	}
	if err != nil {
		klog.FromContext(r.Context()).V(1).Info("Not following what a program reads", "what", selection, "err", err)
		return false
	}
	answered := false
	defer func() {
		if answered {
			s.release(m)
			return
		}
		// The selection stays in use while the cloud answers: the client will come back to it.
		context.AfterFunc(r.Context(), func() { s.release(m) })
	}()
	prospect := m.expect(r.Context(), s.cfg.Cloud, asksForNow(r, info.Verb))
	up := s.cfg.Cloud.Get().Answers()
	if prospect == known && up && !viewed && (info.Verb == "list" && m.behind(r) || m.handler.Poorer(r, info.Verb)) {
		// The client's revision is that of another object, or the hub had reached it before it was killed; the replica would
		// reach it only with its next event. Or the cloud has a better form (Handler.Poorer).
		prospect = foreign
	}
	answered = prospect != foreign || viewed
	switch prospect {
	case foreign:
		if refused := m.feed.Status().Get().Refused; viewed {
			replica.Refuse(w, fmt.Sprintf("yurthub: the cloud does not give %s now: %s", selection, refused))
		}
	case unreachable:
		replica.Refuse(w, fmt.Sprintf("yurthub: %s is not known here, and the cloud cannot be reached", selection))
	case late:
		replica.Refuse(w, fmt.Sprintf("yurthub: the cloud has not yet sent all of %s", selection))
	default:
		m.handler.Serve(w, plain(r), replica.Request{
			Verb: info.Verb, Namespace: info.Namespace, Selected: selection.Fields != "" || selection.Labels != "",
			Elsewhere: up && !viewed,
		})
	}
	return answered
}

// get answers a client's get from one of the client's selections: from one that has the object, or else from one that shows that
// the object does not exist. If no selection can tell, get returns false and has written nothing.
func (s *Set) get(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, client string) bool {
	if info.Subresource != "" {
		return false
	}
	key := stream.Key{Namespace: info.Namespace, Name: info.Name}
	if info.APIGroup == "" && info.Resource == "namespaces" {
		key.Namespace = "" // a Namespace is in no namespace, although its path looks so
	}
	resource := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	m := s.having(client, resource, key)
	if m == nil {
		return false
	}
	defer s.release(m)
	if !m.handler.Acceptable(r, info.Verb) {
		return false
	}
	w.Header().Set("Warning", edge.FromMemory)
	m.handler.Serve(w, r, replica.Request{Verb: "get", Namespace: key.Namespace, Name: key.Name})
	return true
}

// having returns the newest of a client's selections that have an object. If none has it, having returns the newest of those that
// would have the object if it existed. nil means that no selection can tell. The caller must call release.
func (s *Set) having(client string, resource schema.GroupVersionResource, key stream.Key) *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *Member
	var newest edge.Revision
	foundHas := false
	for _, m := range s.members {
		if m.Client != client || m.Resource != resource || m.ending {
			continue
		}
		_, has := m.Replica.Get(key)
		if !has && (foundHas || !m.wouldHave(key)) {
			continue
		}
		if found == nil || has && !foundHas || m.Replica.Position() > newest {
			found, newest, foundHas = m, m.Replica.Position(), has
		}
	}
	if found != nil {
		found.users++
	}
	return found
}

// wouldHave reports whether an object that the replica lacks is known not to exist. Content from the disk alone does not count,
// because the cloud may have told the client something newer about the object.
func (m *Member) wouldHave(key stream.Key) bool {
	return m.Fields == "" && m.Labels == "" && (m.Namespace == "" || m.Namespace == key.Namespace) &&
		m.Replica.Complete().Get() && m.feed.Status().Get().Fresh
}
