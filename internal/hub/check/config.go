package check

import (
	"net"
	"path/filepath"
	"strconv"
	"time"

	"yurtcoordinator/internal/hub/config"
)

// Config says what to check.
type Config struct {
	// Config has the settings of the node's hub. If a hub would not start with them, that is a finding, and what they say is
	// checked all the same.
	config.Config

	// BeforeStart: no hub needs to run yet.
	BeforeStart bool
	// Joined: the node's kubelet should go through the hub already.
	Joined bool
	// Agents: the node's agents should be able to go through the hub.
	Agents bool

	// KubeletHealth is the URL of the kubelet's health. Empty: http://127.0.0.1:10248/healthz.
	KubeletHealth string

	// Step bounds one step of a probe, such as connecting; zero: 5 s. Total bounds all probes together; zero: 15 s.
	Step, Total time.Duration
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// withDefaults fills in what is documented as a default.
func (c Config) withDefaults() Config {
	if c.Step == 0 {
		c.Step = 5 * time.Second
	}
	if c.Total == 0 {
		c.Total = 15 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.KubeletHealth == "" {
		c.KubeletHealth = "http://127.0.0.1:10248/healthz"
	}
	return c
}

func (c Config) pairFiles() (cert, key string) {
	if c.OwnCertificate() {
		pair := filepath.Join(c.CertDir, "client.pem")
		return pair, pair
	}
	return c.CertFile, c.KeyFile
}

func (c Config) hubURL() string {
	return "https://" + net.JoinHostPort(config.Loopback, strconv.Itoa(c.Port))
}

func (c Config) healthURL() string {
	return "http://" + net.JoinHostPort(c.HealthBindAddress, strconv.Itoa(c.HealthPort))
}
