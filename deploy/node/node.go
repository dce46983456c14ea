// Package node holds what `yurthub join` installs on a node. docs/install-node.md is the page for users.
package node

import _ "embed"

// Unit is systemd's unit of yurthub, Upgrade the one that upgrades yurthub, UpgradePath the one that starts that. Package join
// fills in the program.
var (
	//go:embed yurthub.service
	Unit string
	//go:embed yurthub-upgrade.service
	Upgrade string
	//go:embed yurthub-upgrade.path
	UpgradePath string
)
