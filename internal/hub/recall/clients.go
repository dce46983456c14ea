package recall

import (
	"net/http"
	"sync"

	"k8s.io/utils/lru"
)

// maxClients bounds the callers whose order is in memory. What is on the disk is found again when one comes back.
const maxClients = 32

// Clients have Answers of their own: the node's programs together, and each caller with credentials of its own. Make them with
// NewClients; safe for concurrent use.
type Clients struct {
	cfg      Config
	programs *Answers

	mu    sync.Mutex
	known *lru.Cache // of callers
}

// NewClients returns Clients, and takes Config.Client for that of the node's programs.
func NewClients(c Config) (*Clients, error) {
	c.Client = ""
	programs, err := New(c)
	if err != nil {
		return nil, err
	}
	return &Clients{cfg: programs.cfg, programs: programs, known: lru.New(maxClients)}, nil
}

// Of returns the Answers of a client; the empty one stands for the node's programs.
func (c *Clients) Of(client string) *Answers {
	if client == "" {
		return c.programs
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.known.Get(client); ok {
		return found.(*Answers) //nolint:forcetypeassert // nothing else is put there
	}
	config := c.cfg
	config.Client = client
	made := open(config)
	c.known.Add(client, made)
	return made
}

// Before returns a handler that serves as Serve does.
func (a *Answers) Before(pass http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.Serve(w, r, pass) })
}
