package shareserver

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// Show makes the mirror keep a pushed resource from the start. It returns a handler that serves the resource under the name of
// another one, as an API server would, with the cloud's revisions. Show is for a custom resource, which kube-apiserver does not
// serve here. While the resource is incomplete, the handler refuses it even to people.
func (m *Mirror) Show(pushed, as schema.GroupVersionResource) (http.Handler, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	each, err := m.makeLocked(pushed, as)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) { each.show(w, request) }), nil
}

// FromLeader returns the objects of a resource and the history of their revisions, or nothing if a filler has brought them.
func (m *Mirror) FromLeader(pushed schema.GroupVersionResource) ([]stream.Object, edge.History) {
	each := m.get(pushed)
	if each == nil {
		return nil, 0
	}
	s, err := each.replica.Snapshot(context.Background())
	if err != nil || s.History.IsFilled() {
		return nil, 0
	}
	return s.Objects, s.History
}

func (m *mirrored) show(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest || info.Resource != m.replica.Resource().Resource || info.Subresource != "" {
		(&exchange.Reply{ResponseWriter: w}).Refuse(r.Context(), exchange.Refused(http.StatusNotFound,
			"there are only %s here, without subresources", m.replica.Resource().GroupResource()))
		return
	}
	m.handler.Serve(w, r, replica.Request{Verb: info.Verb, Namespace: info.Namespace, Name: info.Name})
}

// refuses returns what to answer instead of a resource of which there is nothing to answer; nil means that there is.
func (m *Mirror) refuses(r schema.GroupVersionResource, s standing, person bool) error {
	_, builtIn := m.builtIns[r]
	if s.complete || person && builtIn {
		return nil
	}
	return &exchange.Refusal{
		Code: http.StatusServiceUnavailable, RetryAfter: completeRetry,
		Message: s.warns(r.GroupResource(), m.began) + "; ask again, or the cloud",
	}
}

// completeRetry is after what time to ask again for what is not complete. A leader fills a coordinator within some seconds.
const completeRetry = 2 * time.Second
