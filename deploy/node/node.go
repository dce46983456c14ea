// Package node holds what `yurthub join` installs on a node. docs/install-node.md is the page for users.
package node

import _ "embed"

// Unit is the systemd unit that runs yurthub. Upgrade is the unit that upgrades yurthub, and UpgradePath is the unit that
// starts Upgrade. Package join fills in the program.
var (
	//go:embed yurthub.service
	Unit string
	//go:embed yurthub-upgrade.service
	Upgrade string
	//go:embed yurthub-upgrade.path
	UpgradePath string
)
