package hub

import (
	"fmt"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/hub/link"
)

// linkProfile returns the one that the hub runs with.
func (h *Hub) linkProfile() v1alpha1.LinkProfile {
	h.inForce.mu.Lock()
	defer h.inForce.mu.Unlock()
	return h.inForce.own.under(h.inForce.say).LinkProfile
}

// timing returns how a link to the cloud of that kind is judged.
func timing(of v1alpha1.LinkProfile) (link.Timing, error) {
	switch of {
	case v1alpha1.LinkNormal:
		return link.Standard(), nil
	case v1alpha1.LinkMetered:
		return link.Metered(), nil
	case v1alpha1.LinkSatellite:
		return link.Satellite(), nil
	}
	return link.Timing{}, fmt.Errorf("--link-profile %q: want %s, %s or %s", of, v1alpha1.LinkNormal, v1alpha1.LinkMetered,
		v1alpha1.LinkSatellite)
}
