package recall

import (
	"net/http"
	"strings"
	"sync"

	"k8s.io/utils/lru"
)

// maxClients bounds the callers whose order is in memory. When a caller returns, its answers are found on the disk again.
const maxClients = 32

// Clients keeps Answers per client: one for all of the node's programs, and one for each caller with credentials of its own.
// Make it with NewClients; safe for concurrent use.
type Clients struct {
	cfg      Config
	programs *Answers

	mu    sync.Mutex
	known *lru.Cache // of callers
}

// NewClients returns Clients. Its Config.Client is for the node's programs.
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

// Tidy forgets answers that no longer hold. Only the node's programs make reviews and ask for tokens.
func (c *Clients) Tidy() { c.programs.Tidy() }

// Recall answers a client's single read from memory. It returns false, and has written nothing, if it can't.
func (c *Clients) Recall(w http.ResponseWriter, r *http.Request, client string) bool {
	return c.Of(client).Recall(w, r)
}

// Remember has a client's request answered by pass, and remembers what it says to a single read.
func (c *Clients) Remember(w http.ResponseWriter, r *http.Request, client string, pass http.Handler) {
	c.Of(client).Remember(w, r, pass)
}

// Written passes a client's write on to pass, and records its effect (Answers.Written). If the write deleted an object, the
// answers about that object are forgotten for all clients. If it changed the object, the other clients' answers stay as they
// are.
func (c *Clients) Written(w http.ResponseWriter, r *http.Request, client string, pass http.Handler) {
	gone := c.Of(client).Written(w, r, pass)
	if gone == "" {
		return
	}
	for _, key := range append(c.cfg.Disk.Blobs(answerPrefix), c.cfg.Disk.Blobs(guestPrefix)...) {
		if strings.Contains(key, "/"+gone+" ") {
			c.cfg.Disk.DropBlob(key)
		}
	}
}
