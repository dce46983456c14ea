package front

import (
	"net/http"
	"slices"
	"sync"

	"k8s.io/utils/lru"
)

// maxTokens bounds the tokens kept for one client: those of the Pods of one ServiceAccount on this node.
const maxTokens = 8

// bearer keeps the tokens that a client has shown, the latest first. It makes requests with the first token that the cloud
// accepts. It keeps several, because a Pod's token ends with the Pod, while other Pods of the ServiceAccount live on.
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

// refused forgets a token, unless it is the last.
func (b *bearer) refused(token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.tokens) > 1 { // the last one stays: the cloud may accept it again
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
		_ = response.Body.Close() // nobody wants the rest
	}
	return b.transport.RoundTrip(r) // without a token: the cloud refuses in its own words
}

// bearers keeps a bearer for each client.
type bearers struct {
	transport http.RoundTripper
	mu        sync.Mutex
	clients   *lru.Cache
}

// maxBearers is far more than the clients that cache.Set keeps replicas for at a time, so that no bearer in use is dropped.
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
