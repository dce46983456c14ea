package cloudscale

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Config is what Run needs.
type Config struct {
	// Etcd, KubeAPIServer, KubeControllerManager and CoordinatorController are the files of the programs; Chart is the
	// directory of the chart.
	Etcd, KubeAPIServer, KubeControllerManager, CoordinatorController, Chart string

	// Pools, and Nodes in each of them.
	Pools, Nodes int
	// Cut is how many nodes of each pool have their heartbeats delegated all the time.
	Cut int
	// Rate is how many heartbeats a second are wanted in the steady state, at most MaxRate.
	Rate int
	// Steady is how long the steady state is measured.
	Steady time.Duration

	// Profiles is a directory to put profiles of the controller and of kube-apiserver into; empty: none are taken.
	Profiles string
	// Progress is told of each step.
	Progress func(string)
}

const (
	// MaxRate is the highest rate of heartbeats.
	MaxRate = 1000
	// maxNodes bounds the cluster.
	maxNodes = 20000
	// leaseDuration is ten times a kubelet's: a machine whose API server can't take the heartbeats of so many nodes in their
	// time has no node called silent for that. A Lease's duration makes no difference to what a heartbeat costs.
	leaseDuration = 400 * time.Second
	// maxSteady bounds how long the steady state is measured.
	maxSteady = 10 * time.Minute
	// minNodes leaves nodes to cut besides the leader.
	minNodes = 4
)

// Default is the cluster that is measured, without programs.
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
		return errors.New("programs and chart are not given")
	}
	return nil
}

// slowest is a rate at which each Lease is renewed four times in its duration, as by a kubelet.
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
