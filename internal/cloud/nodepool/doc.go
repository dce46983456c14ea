// Package nodepool gives the nodes of a pool what its NodePool asks for, and counts them in the NodePool's status.
//
// There are two controllers, each with a queue of its own, so that a pool that cannot be written does not delay its nodes:
//
//	nodes   a Node has the labels, annotations and taints of the pool that its label apps.openyurt.io/nodepool names,
//	        and none that an earlier pool, or an earlier spec, put there
//	pools   a NodePool's status counts and names its nodes; its finalizer holds a deletion back while there are any
//
// The package is level-based. Each Node remembers what was put on it. Labels and annotations are kept by server-side apply. An
// annotation lists their keys, so that the Node alone tells whether a write is needed. Taints are listed in another annotation,
// which is written together with them. So whatever leaves the spec, or comes from a node's former pool, is removed, whatever
// happened in between. What OpenYurt's controller has put there is removed, too, by the record that it keeps itself. What
// others put there stays. A label that two managers applied goes only when both stop applying it. A taint that was there before
// is not ours.
//
// Server-side apply treats Node.spec.taints as one value. So taints are written by a patch with a resourceVersion; after a
// conflict the Node is reconciled again. Taints that Kubernetes or package heartbeat writes are left alone even if a NodePool
// names them.
//
// Nodes report their status every few seconds. A report causes work only if it changes a label, an annotation, a taint or the
// node's readiness. An index over the label finds a pool's nodes: nothing scans all of them.
//
// It needs these rights (RBAC; all cluster-wide except Events, which go to namespace default):
//
//	""                nodes             get list watch patch
//	apps.openyurt.io  nodepools         get list watch patch
//	apps.openyurt.io  nodepools/status  update
//	events.k8s.io     events            create patch
//
// It needs no right to create nodes. What it applies to a Node names the Node's UID, so the write can't make a deleted Node
// again. The manager's cache must keep a Node's labels, taints, Ready condition and the annotations that CachedAnnotations
// names.
package nodepool
