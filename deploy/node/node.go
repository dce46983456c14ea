// Package node holds what puts yurthub on a node and takes it off again: the scripts join and reset, and what they install.
// docs/install-node.md is the page for users.
package node

import "embed"

// Files are the scripts, which need one another, and what they install.
//
//go:embed join reset owned.sh yurthub.service yurthub.yaml
var Files embed.FS
