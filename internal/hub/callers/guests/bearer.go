package guests

import (
	"net/http"
	"slices"
	"sync"

	"k8s.io/utils/lru"
)

// maxTokens bounds the tokens of one client that are tried: Pods of one ServiceAccount on one node.
const maxTokens = 8

// bearer are the tokens that a client has shown, the latest first. Requests are made with the first that the cloud accepts:
// a Pod's token ends with the Pod, though others of its ServiceAccount go on.
type bearer struct {
	transport http.RoundTripper

	mu     sync.Mutex
	tokens []string
}

// add puts a token first.
func (b *bearer) add(token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.tokens) > 0 && b.tokens[0] == token {
		return
	}
	others := slices.DeleteFunc(slices.Clone(b.tokens), func(t string) bool { return t == token })
	b.tokens = append([]string{token}, others[:min(len(others), maxTokens-1)]...)
}

// refused takes a token away.
func (b *bearer) refused(token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.tokens) > 1 { // the last may do again: the cloud's answer is not for ever
		b.tokens = slices.DeleteFunc(slices.Clone(b.tokens), func(t string) bool { return t == token })
	}
}

func (b *bearer) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tokens // never written to
}

// RoundTrip implements http.RoundTripper, for requests without a body.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	all := b.all()
	for i, token := range all {
		with := r.Clone(r.Context())
		with.Header.Set("Authorization", "Bearer "+token)
		response, err := b.transport.RoundTrip(with)
		if err != nil || response.StatusCode != http.StatusUnauthorized || i == len(all)-1 {
			return response, err
		}
		b.refused(token)
		_ = response.Body.Close() // nothing of it is wanted
	}
	return b.transport.RoundTrip(r) // as nobody: the cloud says so
}

// bearers are those of all clients.
type bearers struct {
	transport http.RoundTripper
	mu        sync.Mutex
	clients   *lru.Cache
}

// maxBearers is far more than are kept for at a time (follow.Set), so that none in use is forgotten.
const maxBearers = 1000

func newBearers(transport http.RoundTripper) *bearers {
	return &bearers{transport: transport, clients: lru.New(maxBearers)}
}

func (b *bearers) of(client string) *bearer {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found, ok := b.clients.Get(client); ok {
		return found.(*bearer) //nolint:forcetypeassert // nothing else is put there
	}
	made := &bearer{transport: b.transport}
	b.clients.Add(client, made)
	return made
}
