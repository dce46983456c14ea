// Package nodepool puts on the nodes of a pool what its NodePool says, and says in the NodePool what nodes it has.
//
// Two controllers, each with a queue of its own, so that a pool that cannot be written does not hold up its nodes:
//
//	nodes   a Node has the labels, annotations and taints of the pool that its label apps.openyurt.io/nodepool names,
//	        and none that an earlier pool, or an earlier spec, put there
//	pools   a NodePool's status counts and names its nodes; its finalizer holds a deletion back while there are any
//
// It is level-based. What was put on a Node is remembered there: labels and annotations by server-side apply, and by an
// annotation with their keys, so that a look at a Node tells whether there is anything to write; taints in an annotation that
// is written together with them. So what leaves the spec, and what a node takes along from a pool that it leaves, is taken
// away whoever ran in between. What somebody else put there stays: the same label applied by two is taken away by both or not
// at all, and a taint that was there before is not ours.
//
// Node.spec.taints is one value to server-side apply. It is written by a patch that carries the resourceVersion it was made
// from: a Node that has changed since then is looked at again. Taints that Kubernetes or package heartbeat keep are left alone
// even if a NodePool names them.
//
// Nodes report their status every few seconds. A report that changes neither a label, an annotation, a taint nor whether the
// node is ready enqueues nothing. Nodes are found by an index over the label: nothing scans all of them.
//
// It needs (RBAC, all cluster-wide but Events, which go to namespace default):
//
//	""                nodes             get list watch patch
//	apps.openyurt.io  nodepools         get list watch patch
//	apps.openyurt.io  nodepools/status  update
//	events.k8s.io     events            create patch
//
// and no right to create nodes: what applies to a Node names its UID, so that a Node that was deleted does not come back, and
// without the right it could not. The manager's cache must keep of a Node its labels, taints, Ready condition and the
// annotations that CachedAnnotations names.
package nodepool
