package edge

import "strconv"

// LabelSlot names the slot of what runs a standby: its Deployment, ReplicaSets and Pods. Those of slot 0 have no such label.
const LabelSlot = "openyurt.io/coordinator-slot"

// LabelCoordinatorNode is on Nodes that should run their pool's coordinators if possible. Its value is the rank: 0 is the best.
// Kubernetes lets no node set a label of this domain on itself (NodeRestriction), so no node can attract the coordinator.
const LabelCoordinatorNode = "openyurt.node-restriction.kubernetes.io/coordinator"

const (
	// LabelCoordinators is on a NodePool that has coordinators: how many. Their YurtAppSets select pools by it.
	LabelCoordinators = "openyurt.io/coordinators"
	// LabelCoordinatorSettings is on it, too: a digest of what is asked of them. Tweaks of the YurtAppSets select pools by it.
	LabelCoordinatorSettings = "openyurt.io/coordinator-settings"
)

// App is the name of the YurtAppSet that runs the coordinators of a slot, and the prefix of the names of the slot's objects.
// Objects of two slots never have the same name, because no pool's name begins with a dash.
func (s Slot) App() string {
	if s == 0 {
		return AppCoordinator
	}
	return AppCoordinator + "--" + strconv.Itoa(int(s))
}

// Slots returns all slots, in order.
func Slots() []Slot { return []Slot{0, 1, 2} }

// CoordinatorSecretIn is the name of the Secret that the pool's coordinator in a slot serves with.
func (p PoolName) CoordinatorSecretIn(s Slot) string { return s.App() + "-" + string(p) + "-certs" }
