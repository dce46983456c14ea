package config

import (
	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/upstream"
)

// Metered reports whether the link to the cloud is paid for by the byte.
func (c *Config) Metered() bool { return c.LinkProfile == v1alpha1.LinkMetered }

// Judged returns how the link to the cloud is judged.
func (c *Config) Judged() link.Timing {
	switch c.LinkProfile {
	case v1alpha1.LinkMetered:
		return link.Metered()
	case v1alpha1.LinkSatellite:
		return link.Satellite()
	case v1alpha1.LinkNormal:
	}
	return link.Standard()
}

// Borrows returns what a neighbour's line is used for.
func (c *Config) Borrows() upstream.Use {
	switch {
	case c.Relay == v1alpha1.RelayOff:
		return upstream.ForNothing
	case c.Relay == v1alpha1.RelayHeartbeats, c.Relay == "" && c.Metered():
		return upstream.ForSome
	}
	return upstream.ForAll
}
