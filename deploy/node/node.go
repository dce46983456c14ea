// Package node holds what `yurthub join` installs on a node. docs/install-node.md is the page for users.
package node

import _ "embed"

// Unit is systemd's unit of yurthub, Pod the static Pod. Package join fills in the program, the image and the settings.
var (
	//go:embed yurthub.service
	Unit string
	//go:embed yurthub.yaml
	Pod string
)
