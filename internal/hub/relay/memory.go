package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/identity"
)

// File is the file in ClientConfig.Dir with the neighbours that relay: edge.MostRelaying at most.
const File = "neighbours.json"

// keptFor is the age at which the file is written again even if the coordinators name no new neighbour.
const keptFor = time.Hour

// remembered is the content of the file.
type remembered struct {
	Pool edge.PoolName `json:"pool"`
	// Named is when the list was written, by this machine's wall clock.
	Named      time.Time        `json:"named"`
	Neighbours []edge.Neighbour `json:"neighbours"`
}

// recall returns the neighbours in a file's content, and when they were written. It returns an error if the file is about
// another pool, to which the node belonged before.
func recall(pool edge.PoolName, content []byte) (all []edge.Neighbour, named time.Time, err error) {
	var r remembered
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, time.Time{}, err
	}
	if r.Pool != pool {
		return nil, time.Time{}, fmt.Errorf("it is about pool %s", r.Pool)
	}
	return r.Neighbours, r.Named, nil
}

// remembers reads the neighbours from the file.
func (c *Client) remembers() {
	dir := identity.KeyDir{Path: c.cfg.Dir}
	content, err := identity.ReadKeyFile(dir.File(File))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var all []edge.Neighbour
	var named time.Time
	if err == nil {
		all, named, err = recall(c.cfg.Pool, content)
	}
	if err != nil {
		klog.Background().Info("Who relays is not known until the coordinator says it", "file", dir.File(File), "why", err)
		return
	}
	klog.Background().V(1).Info("Who relayed is known from before", "neighbours", len(all), "age", c.cfg.Clock.Wall().Sub(named))
	c.search.mu.Lock()
	defer c.search.mu.Unlock()
	c.search.known, c.search.named = all, all
}

// kept is what Run has written to the file.
type kept struct {
	all []edge.Neighbour
	at  time.Time // by the running clock; zero means that nothing was written
}

// keep writes the neighbours that the coordinators named last to the file, if one of them is new or the file is old.
func (c *Client) keep(ctx context.Context, before kept) kept {
	c.search.mu.Lock()
	all, now := c.search.known, c.cfg.Clock.Running()
	c.search.mu.Unlock()
	all = all[:min(len(all), edge.MostRelaying)]
	isNew := func(n edge.Neighbour) bool { return !slices.Contains(before.all, n) }
	if len(all) == 0 || !slices.ContainsFunc(all, isNew) && now.Sub(before.at) < keptFor {
		return before
	}
	content, err := json.Marshal(remembered{c.cfg.Pool, c.cfg.Clock.Wall(), all})
	if err == nil {
		dir := identity.KeyDir{Path: c.cfg.Dir}
		err = dir.Write(File, content)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remember who relays: after a restart while cut off it will not be known")
	}
	return kept{all, now}
}
