package recall

import (
	"sync"

	"k8s.io/utils/lru"
)

// maxClients bounds the callers whose order is in memory. What is on the disk is found again when one comes back.
const maxClients = 32

// Clients have Answers of their own. Make them with NewClients; safe for concurrent use.
type Clients struct {
	newAnswers func(client string) (*Answers, error)

	mu    sync.Mutex
	known *lru.Cache
}

// NewClients returns Clients whose Answers are made by newAnswers.
func NewClients(newAnswers func(client string) (*Answers, error)) *Clients {
	return &Clients{newAnswers: newAnswers, known: lru.New(maxClients)}
}

// Of returns the Answers of a client.
func (c *Clients) Of(client string) (*Answers, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.known.Get(client); ok {
		return found.(*Answers), nil //nolint:forcetypeassert // nothing else is put there
	}
	made, err := c.newAnswers(client)
	if err != nil {
		return nil, err
	}
	c.known.Add(client, made)
	return made, nil
}
