package hub

import (
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/callers"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/keep"
	"yurtcoordinator/internal/hub/route"
	"yurtcoordinator/internal/replica"
)

// guests are callers with credentials of their own: a front.Callers.
type guests struct {
	*keep.Guests
	callers *callers.Callers
	copies  http.Handler
	bearers *bearers
}

func (h *Hub) newGuests() (*guests, error) {
	asNode, err := kubernetes.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return nil, err
	}
	g := &guests{copies: h.sharing.copies, bearers: newBearers(h.cloud.AsCaller())}
	if g.callers, err = callers.New(callers.Config{
		Tokens: asNode.AuthenticationV1().TokenReviews(), Access: asNode.AuthorizationV1().SubjectAccessReviews(),
		Cloud: h.cloud.Link(), Disk: h.disk,
	}); err != nil {
		return nil, err
	}
	common, err := unseenFeeds(nil)
	if err != nil {
		return nil, err
	}
	g.Guests = keep.NewGuests(func(client string) (*keep.Set, error) {
		own := common
		own.as = g.bearers.of(client)
		return keep.New(keep.Config{
			Client: client, Disk: h.disk, Cloud: h.cloud.Link(),
			NewFeed: func(r *replica.Replica, what keep.Selection) (keep.Feed, error) {
				return h.newFeed(own, r, false, what)
			},
		})
	})
	return g, nil
}

// Serve implements front.Callers.
func (g *guests) Serve(w http.ResponseWriter, r *http.Request, from route.Kind, pass http.Handler) {
	token := front.Bearer(r)
	user, err := g.callers.Identify(r.Context(), token)
	if err != nil {
		// The cloud says no in its own words, if it can be reached; else the front does.
		g.log(r, err)
		pass.ServeHTTP(w, r)
		return
	}
	if from == route.Replica {
		g.serveCopy(w, r, user, pass)
		return
	}
	// One of the same name that was made later is somebody else; and nobody is taken for the hub, whatever his name is.
	client := user.Username + " " + user.UID
	g.bearers.of(client).add(token)
	set, release, err := g.Use(client)
	if err != nil {
		g.log(r, err)
		pass.ServeHTTP(w, r)
		return
	}
	defer release()
	set.Serve(w, r, pass)
}

// serveCopy answers from the hub's copy of a resource, if the user may read it.
func (g *guests) serveCopy(w http.ResponseWriter, r *http.Request, user *callers.User, pass http.Handler) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		http.Error(w, "no RequestInfo: a defect of yurthub", http.StatusInternalServerError)
		return
	}
	may, err := g.callers.May(r.Context(), user, callers.Action{
		Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource,
		Namespace: info.Namespace, Name: info.Name,
	})
	if err != nil || !may {
		g.log(r, err)
		pass.ServeHTTP(w, r)
		return
	}
	g.copies.ServeHTTP(w, r)
}

func (g *guests) log(r *http.Request, err error) {
	if err != nil && !errors.Is(err, callers.ErrRefused) {
		klog.FromContext(r.Context()).V(2).Info("A caller's request goes to the cloud", "path", r.URL.Path, "err", err)
	}
}
