package hub

import (
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/callers"
	"yurtcoordinator/internal/hub/callers/guests"
	"yurtcoordinator/internal/hub/recall"
)

// newGuests builds what answers callers with credentials of their own.
func (h *Hub) newGuests() (*guests.Guests, error) {
	asNode, err := kubernetes.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return nil, err
	}
	known, err := callers.New(callers.Config{
		Tokens: asNode.AuthenticationV1().TokenReviews(), Access: asNode.AuthorizationV1().SubjectAccessReviews(),
		Cloud: h.cloud.Link(), Disk: h.disk,
	})
	if err != nil {
		return nil, err
	}
	answers := recall.NewClients(h.answers)
	return guests.New(guests.Config{
		Callers: known, Pool: h.followed, Cloud: h.cloud.AsCaller(),
		Own: func(w http.ResponseWriter, r *http.Request, client string, pass http.Handler) {
			remembered, err := answers.Of(client)
			if err != nil {
				klog.FromContext(r.Context()).Error(err, "A caller's request goes to the cloud", "path", r.URL.Path)
				pass.ServeHTTP(w, r)
				return
			}
			reads{h.followed, client, remembered}.Serve(w, r, pass)
		},
	})
}
