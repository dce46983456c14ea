// Package appset runs one workload in each of several pools. For each pool that a YurtAppSet names or selects, it makes a
// Deployment or a StatefulSet from the template and the pool's tweaks.
//
// The YurtAppSet and the NodePools alone determine what is wanted (Render, pure). Server-side apply under FieldOwner writes it,
// so fields that others set stay: for example an autoscaler's replicas, if neither template nor tweaks set them. A change that
// somebody makes to our fields is undone.
//
// A pool's workload is applied in three cases: the wanted workload differs from the one that was applied last; the generation
// has changed since; or the labels, annotations or owner are not as wanted. What was applied last is kept in memory. So after a
// restart each workload is applied once more, which changes nothing if nothing differs. The alternative is to compare the whole
// workload with the wanted one, but then this package would have to know all defaults of the API.
//
// Ownership: a workload is ours if its owner reference makes the YurtAppSet its controller, whoever made the workload. A
// workload that OpenYurt's controller has made keeps its name and its Pods' labels, so its Pods are not restarted. A workload
// that is made here can go back to that controller (docs/adr/0036). Workloads of others are neither changed nor deleted. If one
// has the name that we need, the pool's message says so, and AppDispatched is False. The deletion of a YurtAppSet needs no code
// here, because Kubernetes' garbage collector deletes what it owns. When a pool is gone or no longer selected, its workload is
// deleted in the background, and the Pods follow. We do not wait for the Pods, because their nodes may never be reached again.
// If many pools are no longer selected, a Brake first waits, because that may be a mistake.
//
// A failure in one pool does not stop the others, unless it stops a rollout. Some failures need a person: a patch that does not
// fit, a refusal by the API server, a name that is taken. The pool's message reports such a failure, and it is retried rarely. A
// failure that may pass by itself is an error and is retried soon. If a change needs a StatefulSet's field that can't be
// changed, the pool's message says so, and what to do.
//
// History: each workloadTemplate gets a ControllerRevision. It leaves out tweaks, because they belong to pools, and there can
// be thousands of pools. docs/yurtappsets.md restores a template from a ControllerRevision.
//
// Rollout: spec.rollout says how a change of the Pods reaches the pools (Decide, pure). The workload of a pool that waits is not
// written, so it is the record of what the pool has; an annotation has the hash of its Pods. The Pods of a pool are read only
// when its turn comes. Nothing about a rollout is remembered. After a restart it goes on from what the workloads say. YurtAppSets
// of one group take turns in a pool. A turn is taken under the mutex. It is given back once the memory holds what was written,
// because the cache may not show it yet.
//
// Invariants: a pool has one workload; of several the oldest stays. Whatever tweaks say, a workload runs in its own pool only,
// because node selector, labels, selector, name and owner are set after the tweaks. A YurtAppSet has at most one reconcile
// under way; it writes several workloads in parallel. One mutex guards the memory. It is never held across I/O, and the wanted
// pools bound the memory.
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
