package config

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	logsapi "k8s.io/component-base/logs/api/v1"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/upstream"
)

// Running has the settings that can change while a hub runs, in the form that its parts need.
type Running struct {
	// Shared are the resources that the pool shares.
	Shared []schema.GroupVersionResource
	// Agents are the programs whose reads are kept.
	Agents []string
	// RememberFor is Config.RememberIdentitiesFor.
	RememberFor time.Duration
	// Ahead is how far the disk's clock is put ahead.
	Ahead time.Duration
	// Judged is the timing by which the link to the cloud is judged. Metered says that the link is paid for by the byte.
	Judged  link.Timing
	Metered bool
	// Borrows says which requests may use a neighbour's line.
	Borrows upstream.Use
	// Verbosity is how much is logged.
	Verbosity logsapi.VerbosityLevel
}

// Running returns what of the settings can change while a hub runs. The error is one of Validate's.
func (c *Config) Running() (r Running, err error) {
	r = Running{
		Agents: c.CacheAgents, RememberFor: c.RememberIdentitiesFor, Ahead: c.DiskCacheClockOffset,
		Metered: c.LinkProfile == v1alpha1.LinkMetered, Verbosity: c.Logs.Verbosity,
	}
	if r.Shared, err = c.Shared(); err != nil {
		return Running{}, err
	}
	if r.Judged, err = c.Judged(); err != nil {
		return Running{}, err
	}
	if r.Borrows, err = c.Borrows(); err != nil {
		return Running{}, err
	}
	return r, nil
}

// Judged returns how the link to the cloud is judged.
func (c *Config) Judged() (link.Timing, error) {
	switch c.LinkProfile {
	case v1alpha1.LinkNormal:
		return link.Standard(), nil
	case v1alpha1.LinkMetered:
		return link.Metered(), nil
	case v1alpha1.LinkSatellite:
		return link.Satellite(), nil
	}
	return link.Timing{}, fmt.Errorf("--link-profile %q: want %s, %s or %s", c.LinkProfile, v1alpha1.LinkNormal,
		v1alpha1.LinkMetered, v1alpha1.LinkSatellite)
}

// Borrows returns what a neighbour's line is used for.
func (c *Config) Borrows() (upstream.Use, error) {
	switch c.Relay {
	case v1alpha1.RelayOff:
		return upstream.ForNothing, nil
	case v1alpha1.RelayHeartbeats:
		return upstream.ForSome, nil
	case v1alpha1.RelayControl:
		return upstream.ForAll, nil
	case "":
		if c.LinkProfile == v1alpha1.LinkMetered {
			return upstream.ForSome, nil
		}
		return upstream.ForAll, nil
	}
	return upstream.ForNothing, fmt.Errorf("--relay %q: want %s, %s or %s", c.Relay, v1alpha1.RelayOff,
		v1alpha1.RelayHeartbeats, v1alpha1.RelayControl)
}
