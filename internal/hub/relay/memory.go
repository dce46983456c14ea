package relay

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
)

// Disk keeps what a Client knows; store.Store is one.
type Disk interface {
	PutBlob(key string, value []byte) error
	Blob(key string) ([]byte, error)
}

// blobOf is the key of the neighbours that relay in a pool: edge.MostRelaying at most.
func blobOf(pool edge.PoolName) string { return "relay/" + string(pool) }

// remembers reads the neighbours from the disk.
func (c *Client) remembers() {
	content, err := c.cfg.Disk.Blob(blobOf(c.cfg.Pool))
	if err != nil {
		return // the disk has none
	}
	var all []edge.Neighbour
	if err := json.Unmarshal(content, &all); err != nil {
		klog.Background().Info("Who relays is not known until the coordinator says it", "why", err)
		return
	}
	c.search.mu.Lock()
	defer c.search.mu.Unlock()
	c.search.known, c.search.named = all, all
}

// keep writes to the disk the neighbours that coordinators have named last, unless they equal the parameter before. It returns
// the neighbours on the disk.
func (c *Client) keep(ctx context.Context, before []edge.Neighbour) []edge.Neighbour {
	c.search.mu.Lock()
	all := c.search.known
	c.search.mu.Unlock()
	all = all[:min(len(all), edge.MostRelaying)]
	if slices.Equal(all, before) {
		return before
	}
	content, err := json.Marshal(all)
	if err == nil {
		err = c.cfg.Disk.PutBlob(blobOf(c.cfg.Pool), content)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remember who relays: after a restart while cut off it will not be known")
		return before
	}
	return all
}
