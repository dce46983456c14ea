package recall

import (
	"net/http"
	"strings"
)

// Clients keeps Answers per client: one for all of the node's programs, and one for each caller with credentials of its own.
// Make it with NewClients; safe for concurrent use.
type Clients struct{ cfg Config }

// NewClients returns Clients. It ignores Config.Client; the other fields count for all clients.
func NewClients(c Config) *Clients { return &Clients{c} }

// Of returns the Answers of a client; the empty one stands for the node's programs.
func (c *Clients) Of(client string) *Answers {
	config := c.cfg
	config.Client = client
	return New(config)
}

// Tidy forgets answers that no longer hold. It checks only the answers to the node's programs, because no other client makes
// reviews or asks for tokens.
func (c *Clients) Tidy() { c.Of("").Tidy() }

// Recall answers a client's single read from memory. If it can't, it writes nothing and returns false.
func (c *Clients) Recall(w http.ResponseWriter, r *http.Request, client string) bool {
	return c.Of(client).Recall(w, r)
}

// Remember answers a client's request by the handler pass, and remembers the answer if the request is a single read.
func (c *Clients) Remember(w http.ResponseWriter, r *http.Request, client string, pass http.Handler) {
	c.Of(client).Remember(w, r, pass)
}

// Written answers a client's write by the handler pass, and records the effect of the write (Answers.Written). If the write
// deleted objects, Written forgets all clients' answers about them. If it changed an object, the other clients' answers stay.
func (c *Clients) Written(w http.ResponseWriter, r *http.Request, client string, pass http.Handler) {
	gone := c.Of(client).Written(w, r, pass)
	if gone == "" {
		return
	}
	if !strings.HasSuffix(gone, "/") {
		gone += " "
	}
	for _, key := range append(c.cfg.Disk.Blobs(answerPrefix), c.cfg.Disk.Blobs(guestPrefix)...) {
		if strings.Contains(key, "/"+gone) {
			c.cfg.Disk.DropBlob(key)
		}
	}
}
