package front

import (
	"context"
	"errors"
	"net/http"
	"net/netip"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
)

// Known says who a caller is, and what it may do; Callers is one.
type Known interface {
	Identify(ctx context.Context, from netip.Addr, token string) (*User, error)
	May(ctx context.Context, u *User, a Action) (bool, error)
}

// Guests admits callers: clients with a token of their own, which are Pods and the host's programs. It is a Recognizer, and safe
// for concurrent use.
//
// Invariants: the hub answers a read of the pool's resources only if the cloud allows the caller this very read. Of all other
// data, a caller gets only what the hub read with that caller's own credentials. The hub leaves all other requests to the cloud.
type Guests struct {
	callers Known
	bearers *bearers
}

// NewGuests returns Guests. cloud must reach the cloud with only the credentials that a request carries.
func NewGuests(known Known, cloud http.RoundTripper) *Guests {
	return &Guests{known, newBearers(cloud)}
}

// As returns a RoundTripper that reaches the cloud with the tokens that a client has lately shown.
func (g *Guests) As(client string) http.RoundTripper { return g.bearers.of(client) }

// Admit implements Recognizer.
func (g *Guests) Admit(r *http.Request, pool bool) (client string, ok bool) {
	token := Bearer(r)
	user, err := g.callers.Identify(r.Context(), conns.SourceOf(r), token)
	if err != nil {
		// The cloud refuses in its own words if it can be reached; otherwise the front does.
		logGuest(r, err)
		return "", false
	}
	// The UID distinguishes an account from a later one of the same name. With it, no caller's name can be the hub's (cache.Hub).
	client = user.Username + " " + user.UID
	if pool {
		return client, g.mayRead(r, user)
	}
	g.bearers.of(client).add(token)
	return client, true
}

// mayRead reports whether a user may read those of the pool's resources that a request asks for.
func (g *Guests) mayRead(r *http.Request, user *User) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		return false
	}
	may, err := g.callers.May(r.Context(), user, Action{
		Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource,
		Namespace: info.Namespace, Name: info.Name,
	})
	logGuest(r, err)
	return err == nil && may
}

func logGuest(r *http.Request, err error) {
	if err != nil && !errors.Is(err, ErrRefused) {
		klog.FromContext(r.Context()).V(2).Info("A caller's request goes to the cloud", "path", r.URL.Path, "err", err)
	}
}
