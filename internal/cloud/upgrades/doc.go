// Package upgrades brings the hubs of pools to the version that PoolSettings want.
//
//	plan     who is next, and when to stop: pure, from what nodes and their upgraders say
//	pods     the upgraders, Pods with the version's image: one only has the image pulled, one delivers the program to the node
//	fleet    the controller, for all pools at once: when one pool is done, it may be another's turn
//
// An upgrader's Pod runs as a user without privileges. On its node it can write into one directory and read another one, and do
// nothing else. The node accepts the program that the Pod brings only if it is signed (internal/hub/join). So an attacker who has
// taken over this controller can choose among releases, but can't supply a program.
//
// Invariants: after a node went back from a version, no other node gets that version. That lasts until somebody removes that
// node's upgrader or sets another version. A pool upgrades as many nodes at a time as its settings say, one by default. The next
// node begins when the one before it reports the version and is Ready. It also begins if the one before it can't be reached and
// 15 minutes have passed (the constant patience). This process needs no memory: the Pods record what has failed, and each Node's
// annotation says which version its hub runs.
//
// It needs these rights (RBAC):
//
//	""                   nodes                get list watch
//	""                   pods                 list, and in kube-system watch create delete
//	coordination.k8s.io  leases               get list watch, in kube-node-lease
//	apps.openyurt.io     nodepools poolsettings  get list watch
//	apps.openyurt.io     poolsettings/status  patch
//	events.k8s.io        events               create patch
package upgrades
