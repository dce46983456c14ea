package check

import (
	"net"
	"strconv"
	"time"

	"yurtcoordinator/internal/hub/config"
)

const (
	// total bounds all probes together. They end a little earlier, so that a server's probe can still report how far it got.
	total, reporting = 15 * time.Second, time.Second
	// kubeletHealth is where kubelet serves its health, unless it is told otherwise.
	kubeletHealth = "http://127.0.0.1:10248/healthz"
)

// Config says what to check.
type Config struct {
	// Config has the settings of the node's hub. If a hub would not start with them, the check reports that as a finding, and
	// still checks the rest.
	config.Config

	// BeforeStart: no hub needs to run yet.
	BeforeStart bool
	// Joined says that the node's kubelet should use the hub already.
	Joined bool
	// Agents says that the node's agents should be able to use the hub.
	Agents bool

	// Step bounds one step of a probe, such as connecting; zero means 5 s.
	Step time.Duration
}

func (c Config) hubURL() string {
	return "https://" + net.JoinHostPort(config.Loopback, strconv.Itoa(c.Port))
}

func (c Config) healthURL() string {
	return "http://" + net.JoinHostPort(c.HealthBindAddress, strconv.Itoa(c.HealthPort))
}
