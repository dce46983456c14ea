// Package appset runs one workload in each of several pools. For each pool that a YurtAppSet names or selects, it makes a
// Deployment or a StatefulSet from the template and the pool's tweaks.
//
// The YurtAppSet and the NodePools alone determine what is wanted (Render, pure). Server-side apply under FieldOwner writes it,
// so fields that others set stay: for example an autoscaler's replicas, if neither template nor tweaks set them. A change that
// somebody makes to our fields is undone.
//
// A pool's workload is applied in three cases: what is wanted differs from what was applied last; the workload has another
// generation than after that; or its labels, annotations or owner are not as wanted. What was applied last is kept in memory. So
// after a restart each workload is applied once more, which changes nothing if nothing differs. The alternative is to compare the
// whole workload with what is wanted, which requires all defaults of the API.
//
// Ownership: a workload is ours if its owner reference makes the YurtAppSet its controller, whoever made it. A workload that
// OpenYurt's controller has made keeps its name and its Pods' labels, so its Pods are not restarted. A workload that is made here
// can go back to that controller (docs/adr/0036). Others' workloads are neither changed nor deleted. If one has the name that we
// need, the pool's message says so, and AppDispatched is False. The deletion of a YurtAppSet needs no code here: Kubernetes
// collects what it owns. When a pool is gone or no longer selected, its workload is deleted in the background, and its Pods
// follow. We do not wait for them, because their nodes may never be reached again.
//
// A failure stays in its pool. Some failures need a person: a patch that does not fit, a refusal by the API server, a name that
// is taken. The pool's message reports them, and they are retried rarely. A failure that may pass by itself is an error and is
// retried soon. A StatefulSet has fields that can't be changed: its message says so, and what to do.
//
// History: each workloadTemplate gets a ControllerRevision. It leaves out tweaks, which belong to pools, of which there can be
// thousands. docs/yurtappsets.md restores a template from it.
//
// Rollout: spec.rollout says how a change of the Pods reaches the pools (Decide, pure). A pool that waits is not written, so its
// workload is the record of what it has; an annotation has the hash of its Pods. The Pods of a pool are read only when its turn
// comes, and nothing about a rollout is remembered: a restart goes on from the workloads. YurtAppSets of one group take turns in
// a pool: a turn is taken under the mutex, and given back when what was written is in the memory, which shows what a cache does
// not show yet.
//
// Invariants: a pool has one workload; of several the oldest stays. Whatever tweaks say, it runs in no other pool, because node
// selector, labels, selector, name and owner are set after them. A YurtAppSet has at most one reconcile under way; it writes
// several workloads in parallel. One mutex guards the memory. It is never held across I/O, and the wanted pools bound the memory.
//
// It needs (RBAC, all cluster-wide):
//
//	apps.openyurt.io  yurtappsets              get list watch
//	apps.openyurt.io  yurtappsets/status       update
//	apps.openyurt.io  yurtappsets/finalizers   update (for blockOwnerDeletion, where OwnerReferencesPermissionEnforcement is on)
//	apps.openyurt.io  nodepools                get list watch
//	apps              deployments, statefulsets, controllerrevisions
//	                                           get list watch create patch delete
//	core              nodes                    get list watch
//	core              pods                     list create delete (those that pull images)
//	events.k8s.io     events                   create patch
package appset
