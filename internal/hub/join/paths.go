package join

import (
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/signed"
)

// Places on a node.
const (
	// FileKeys has the public keys of releases, in PEM. Without it a node accepts no program.
	FileKeys = "/etc/yurthub/release.pub"
	// FileFloor has the lowest version that the node accepts.
	FileFloor = "/etc/yurthub/floor"

	// Dir has the files that upgrades need. DirInbox is where a Pod puts the program and the request. It is the only directory
	// of the node that the Pod can write. DirOutbox has the results, which the Pod can read.
	Dir       = "/var/lib/yurthub/upgrade"
	DirInbox  = edge.UpgradeInbox
	DirOutbox = edge.UpgradeOutbox

	// FileRequest, in DirInbox, is written last: systemd begins when it is there.
	FileRequest = DirInbox + "/request.json"

	nameProgram   = "yurthub"
	nameSums      = signed.SumsFile
	nameSignature = signed.SignatureFile

	fileJournal = Dir + "/journal.json"
	fileResult  = DirOutbox + "/result.json"
)

// DirRelease is where an image has the signed sums of its release's programs.
const DirRelease = "/usr/share/release"

// FileSettled returns where the last program is kept with which the hub was well, for a program at binary.
func FileSettled(binary string) string { return binary + ".settled" }
