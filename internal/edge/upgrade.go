package edge

// AppUpgrader is the value of LabelApp on the Pods that upgrade hubs.
const AppUpgrader = "yurthub-upgrade"

// These are the directories on the node that the Pod of an upgrade may use, and the user that the Pod runs as. UpgradeInbox
// belongs to that user. Everybody can read UpgradeOutbox.
const (
	UpgradeInbox  = "/var/lib/yurthub/upgrade/inbox"
	UpgradeOutbox = "/var/lib/yurthub/upgrade/outbox"
	UpgradeUser   = 65532
)

// UpgradeOutcome is the result of an upgrade of a node's hub.
type UpgradeOutcome string

// Outcomes.
const (
	// UpgradeDone says that the hub works with the requested program.
	UpgradeDone UpgradeOutcome = "Upgraded"
	// UpgradeRefused says that nothing was changed.
	UpgradeRefused UpgradeOutcome = "Refused"
	// UpgradeWentBack says that the hub did not work with it, and runs with the former program again.
	UpgradeWentBack UpgradeOutcome = "WentBack"
)

// UpgradeResult is a node's report about an upgrade. It becomes the termination message of the Pod that asked for the upgrade.
type UpgradeResult struct {
	// ID is of the request.
	ID string `json:"id"`
	// Outcome is empty if the node has not answered.
	Outcome UpgradeOutcome `json:"outcome,omitempty"`
	// Version is the requested version, From the node's version before.
	Version string `json:"version,omitempty"`
	From    string `json:"from,omitempty"`
	// Why is for people; empty after an upgrade.
	Why string `json:"why,omitempty"`
}
