// Package guests answers callers with credentials of their own: Pods, and agents of the node that have a token.
//
// Invariants: nobody reads the pool's resources here whom the cloud does not allow just that; nobody reads what was read
// with another's credentials. Whoever the hub does not know, or does not know to be allowed, gets the cloud's own answer.
package guests

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/callers"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/route"
)

// Callers says who a caller is, and what it may; callers.Callers is one.
type Callers interface {
	Identify(ctx context.Context, token string) (*callers.User, error)
	May(ctx context.Context, u *callers.User, a callers.Action) (bool, error)
}

// Config is what Guests need. All fields are required.
type Config struct {
	Callers Callers
	// Pool answers reads of the pool's resources, of which the hub has a copy for all.
	Pool http.Handler
	// Own answers a client's read from what is followed and remembered for it alone, or has pass answer it.
	Own func(w http.ResponseWriter, r *http.Request, client string, pass http.Handler)
	// Cloud reaches the cloud with nothing but what a request carries.
	Cloud http.RoundTripper
}

// Guests are callers with credentials of their own: a front.Callers. Make them with New; safe for concurrent use.
type Guests struct {
	cfg     Config
	bearers *bearers
}

// New returns Guests of whom nothing is known.
func New(c Config) (*Guests, error) {
	if c.Callers == nil || c.Pool == nil || c.Own == nil || c.Cloud == nil {
		return nil, errors.New("guests: all fields of Config are required")
	}
	return &Guests{c, newBearers(c.Cloud)}, nil
}

// As reaches the cloud with the credentials that a client has shown lately.
func (g *Guests) As(client string) http.RoundTripper { return g.bearers.of(client) }

// Serve implements front.Callers.
func (g *Guests) Serve(w http.ResponseWriter, r *http.Request, from route.Kind, pass http.Handler) {
	token := front.Bearer(r)
	user, err := g.cfg.Callers.Identify(r.Context(), token)
	if err != nil {
		// The cloud says no in its own words, if it can be reached; else the front does.
		log(r, err)
		pass.ServeHTTP(w, r)
		return
	}
	if from == route.Replica {
		g.servePool(w, r, user, pass)
		return
	}
	// One of the same name that was made later is somebody else; and nobody is taken for the hub, whatever his name is.
	client := user.Username + " " + user.UID
	g.bearers.of(client).add(token)
	g.cfg.Own(w, r, client, pass)
}

// servePool answers from the hub's copy of a resource, if the user may read it.
func (g *Guests) servePool(w http.ResponseWriter, r *http.Request, user *callers.User, pass http.Handler) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		http.Error(w, "no RequestInfo: a defect of yurthub", http.StatusInternalServerError)
		return
	}
	may, err := g.cfg.Callers.May(r.Context(), user, callers.Action{
		Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource,
		Namespace: info.Namespace, Name: info.Name,
	})
	if err != nil || !may {
		log(r, err)
		pass.ServeHTTP(w, r)
		return
	}
	g.cfg.Pool.ServeHTTP(w, r)
}

func log(r *http.Request, err error) {
	if err != nil && !errors.Is(err, callers.ErrRefused) {
		klog.FromContext(r.Context()).V(2).Info("A caller's request goes to the cloud", "path", r.URL.Path, "err", err)
	}
}
