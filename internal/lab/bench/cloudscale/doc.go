// Package cloudscale measures what coordinator-controller costs in a large cluster, and how fast it acts: as a process of its
// own, with the rights of the chart, against a real etcd and kube-apiserver that have the chart's CRDs and policies.
//
// What is real, and what is not:
//
//	real      etcd, kube-apiserver (Node and RBAC authorizers, NodeRestriction, the chart's policies), coordinator-controller,
//	          and of kube-controller-manager the controllers of Deployments and ReplicaSets and the signer
//	played    the scheduler and the kubelets: the coordinators' Pods are bound to their pool's first node, and are ready as soon
//	          as their certificates are there; no coordinator runs
//	          the nodes: Nodes of 9 KB with 50 images, and Leases that a load renews. A direct heartbeat is sent as its node,
//	          by impersonation over a few connections; a delegated one as its pool's leader sends it, over a connection with
//	          that node's own certificate, as the pool's forwarding identity
//	left out  the other controllers of kube-controller-manager, and Pods besides the coordinators'
//
// kube-controller-manager may send 1000 requests a second, not 20, so that it is not what the first fill is waiting for.
//
// The Leases are of 400 s, not 40, so that a slow machine has no node called silent; nodes that are called silent and
// found again would be most of the work. Everything shares the machine: where the API server can't take the heartbeats that
// are wanted, the rate is what it takes, and the report says which. The load has a bound on what is under way, and drops what
// it is behind with.
package cloudscale
