package cloudscale

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Config is what Run needs.
type Config struct {
	// Etcd, KubeAPIServer, KubeControllerManager and CoordinatorController are the programs' files. Chart is the
	// directory of the chart.
	Etcd, KubeAPIServer, KubeControllerManager, CoordinatorController, Chart string

	// Pools is the number of pools, Nodes the number of nodes in each.
	Pools, Nodes int
	// Cut is how many nodes of each pool have delegated heartbeats all the time.
	Cut int
	// Rate is how many heartbeats a second the steady state aims at, at most MaxRate.
	Rate int
	// Steady is how long the steady state is measured.
	Steady time.Duration

	// Profiles is a directory for profiles of the controller and of kube-apiserver; empty means no profiles.
	Profiles string
	// Progress is called with each step.
	Progress func(string)
}

const (
	// MaxRate is the highest rate of heartbeats.
	MaxRate = 1000
	// maxNodes bounds the cluster.
	maxNodes = 20000
	// leaseDuration is ten times a kubelet's. So no node counts as silent only because the machine's API server is too slow for
	// the heartbeats of so many nodes. The duration of a Lease does not change the cost of a heartbeat.
	leaseDuration = 400 * time.Second
	// maxSteady bounds the measurement of the steady state.
	maxSteady = 10 * time.Minute
	// minNodes leaves nodes to cut besides the leader.
	minNodes = 4
)

// Default returns the cluster to measure, without programs.
func Default() Config {
	return Config{Pools: 1000, Nodes: 10, Cut: 1, Rate: MaxRate, Steady: time.Minute}
}

// Validate returns an error that names the setting.
func (c Config) Validate() error {
	switch {
	case c.Pools < 1 || c.Nodes < minNodes || c.Pools*c.Nodes > maxNodes:
		return fmt.Errorf("--pools %d × --nodes %d: want at least 1 × %d, and at most %d in all",
			c.Pools, c.Nodes, minNodes, maxNodes)
	case c.Cut < 0 || c.Cut > c.Nodes-minNodes+1:
		return fmt.Errorf("--cut %d: want 0 to %d of %d nodes: one leads, and some are cut later", c.Cut, c.Nodes-minNodes+1,
			c.Nodes)
	case c.Rate < c.slowest() || c.Rate > MaxRate:
		return fmt.Errorf("--rate %d: want %d (a quarter of %v for each node) to %d", c.Rate, c.slowest(), leaseDuration, MaxRate)
	case c.Steady < 5*time.Second || c.Steady > maxSteady:
		return fmt.Errorf("--steady %v: want 5s to 10m", c.Steady)
	case c.Etcd == "" || c.KubeAPIServer == "" || c.KubeControllerManager == "" || c.CoordinatorController == "" ||
		c.Chart == "":
		return errors.New("the programs and the chart are missing")
	}
	return nil
}

// slowest is the rate at which each Lease is renewed four times in its duration, as a kubelet renews it.
func (c Config) slowest() int {
	return int(float64(c.Pools*c.Nodes)/leaseDuration.Seconds()*4) + 1
}

func (c Config) files(pattern string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(c.Chart, "files", pattern))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("the chart %s has no files/%s", c.Chart, pattern)
	}
	return found, err
}
