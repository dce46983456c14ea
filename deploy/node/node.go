// Package node holds what `yurthub join` installs on a node. docs/install-node.md is the page for users.
package node

import _ "embed"

// Unit is systemd's unit of yurthub, Pod the static Pod. Package join fills in the program, the image and the settings. Upgrade
// is the unit that upgrades yurthub, UpgradePath the one that starts it.
var (
	//go:embed yurthub.service
	Unit string
	//go:embed yurthub.yaml
	Pod string
	//go:embed yurthub-upgrade.service
	Upgrade string
	//go:embed yurthub-upgrade.path
	UpgradePath string
)
