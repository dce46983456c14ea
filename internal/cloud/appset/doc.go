// Package appset runs one workload in each of several pools: for each pool that a YurtAppSet names or selects, a Deployment or
// a StatefulSet from its template, with what is special to the pool.
//
// What is wanted follows from the YurtAppSet and the NodePools alone (Render, pure). It is applied by server-side apply under
// FieldOwner, so what other field managers set stays: the replicas that an autoscaler sets, if neither template nor tweaks do.
// Somebody who changes what is ours has it changed back.
//
// When to apply: when what is wanted of a pool's workload is not what was applied last, when the workload has another
// generation than it had after that, or when its labels, annotations or owner are not as wanted. What was applied last is
// remembered in memory. After a restart each workload is applied once more, which changes nothing where nothing is to be
// changed. The alternative, to compare the whole of a workload with what is wanted, has to know all defaults of the API.
//
// Ownership: a workload is ours if the YurtAppSet is its controller by owner reference. Others are neither changed nor deleted:
// where one has the name that we need, the pool's message says so, and AppDispatched is False. To delete a YurtAppSet needs
// nothing of us: Kubernetes collects what it owns. The workload of a pool that is gone, or no longer selected, is deleted in
// the background (its Pods follow): to wait for them would be to wait for nodes that may never be reached again.
//
// Failures stay in their pool. What a person must mend (a patch that does not fit, what the API server refuses, a name that is
// taken) is said in the pool's message and not tried again but now and then; what may pass by itself is an error and tried
// again soon. A StatefulSet has fields that can't be changed: its message says so, and what to do.
//
// History: a ControllerRevision for each workloadTemplate, without tweaks: those are of pools, of which there can be thousands.
// Its data is a merge patch that restores it:
//
//	kubectl patch yurtappset NAME --type merge -p "$(kubectl get controllerrevision REVISION -o jsonpath='{.data}')"
//
// Invariants: a pool's workload runs nowhere else, whatever tweaks say: node selector, labels, selector, name and owner are
// set after them. One reconcile of a YurtAppSet is under way at a time, in which some workloads are written side by side. What
// is remembered is under one mutex that is never held across I/O, and bounded by the pools that are wanted.
//
// It needs (RBAC, all cluster-wide):
//
//	apps.openyurt.io  yurtappsets              get list watch
//	apps.openyurt.io  yurtappsets/status       update
//	apps.openyurt.io  yurtappsets/finalizers   update (for blockOwnerDeletion, where OwnerReferencesPermissionEnforcement is on)
//	apps.openyurt.io  nodepools                get list watch
//	apps              deployments, statefulsets, controllerrevisions
//	                                           get list watch create patch delete
//	events.k8s.io     events                   create patch
package appset
