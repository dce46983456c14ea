package lab

import "fmt"

// Variant is how a pool differs from a lab's other pools: to measure several kinds of nodes beside each other.
type Variant struct {
	// Nodes is how many nodes the pool has; 0 means as many as the others.
	Nodes int `json:"nodes,omitempty"`
	// NoHub makes nodes without a hub: their programs reach the cloud themselves. Such a pool has no coordinator.
	NoHub bool `json:"noHub,omitempty"`
	// NoCoordinator is Config.NoCoordinator, for this pool.
	NoCoordinator bool `json:"noCoordinator,omitempty"`
}

// of returns the configuration of one pool's nodes.
func (c Config) of(pool int) Config {
	v, ok := c.Variants[pool]
	if !ok {
		return c
	}
	if v.Nodes > 0 {
		c.Nodes = v.Nodes
	}
	c.noHub = v.NoHub
	c.NoCoordinator = c.NoCoordinator || v.NoCoordinator || v.NoHub
	return c
}

// places lists all nodes of the lab, pool by pool.
func (c Config) places() []place {
	var all []place
	for p := 1; p <= c.Pools; p++ {
		for i := 1; i <= c.of(p).Nodes; i++ {
			all = append(all, place{p, i})
		}
	}
	return all
}

// validateVariants checks the pools that differ.
func (c Config) validateVariants() error {
	for p, v := range c.Variants {
		switch {
		case p < 1 || p > c.Pools:
			return fmt.Errorf("a variant of pool %d: want one of 1 to %d", p, c.Pools)
		case v.Nodes < 0 || v.Nodes > MaxNodes:
			return fmt.Errorf("%d nodes in pool %d: want 1 to %d", v.Nodes, p, MaxNodes)
		}
	}
	return nil
}
