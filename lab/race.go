package lab

import (
	"debug/buildinfo"
	"fmt"
)

// RaceBuilt reports whether the lab's coordinators have the race detector, under which memory figures mean nothing.
func (c *Client) RaceBuilt() (bool, error) {
	o, err := readOrder(c.dir)
	if err != nil || o.Config.Installed { // programs in Pods never have it
		return false, err
	}
	info, err := buildinfo.ReadFile(o.Binaries.YurtCoordinator)
	if err != nil {
		return false, fmt.Errorf("how the coordinator was built: %w", err)
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true", nil
		}
	}
	return false, nil
}
