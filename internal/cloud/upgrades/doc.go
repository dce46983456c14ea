// Package upgrades brings the hubs of pools to the version that PoolSettings want.
//
//	plan     who is next, and when to stop: pure, from what nodes and their upgraders say
//	pods     the upgraders: a Pod of the version's image that pulls it, and one that delivers its program to its node
//	fleet    the controller, for all pools at once: a step of one may be another's turn
//
// A Pod of this controller's can write into one directory of its node, as a user without rights, and nothing else. What it brings
// is accepted by the node only if it is signed (internal/hub/join); so whoever has this controller chooses among releases, and
// can't supply a program.
//
// Invariants: a version that a node was not well with reaches no other node until somebody removes that node's upgrader, or wants
// another version. In a pool no more nodes are under way than somebody wants, one by default; the next begins when the former
// says that it is of the version and is Ready. No memory of this process is needed: what has failed stands in the Pods, and what
// has not in the Nodes' annotations.
//
// It needs these rights (RBAC):
//
//	""                   nodes                get list watch
//	""                   pods                 list, and in kube-system create delete
//	coordination.k8s.io  leases               get list watch, in kube-node-lease
//	apps.openyurt.io     nodepools poolsettings  get list watch
//	apps.openyurt.io     poolsettings/status  patch
//	events.k8s.io        events               create patch
package upgrades
