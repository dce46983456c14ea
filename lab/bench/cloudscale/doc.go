// Package cloudscale measures what coordinator-controller costs in a large cluster, and how fast it acts. The controller is a
// separate process with the chart's rights, against a real etcd and kube-apiserver that have the chart's CRDs and policies.
//
// These are real or played:
//
//	real      etcd, kube-apiserver (Node and RBAC authorizers, NodeRestriction, the chart's policies), coordinator-controller
//	          and coordinator-approver, each with its own rights, and of kube-controller-manager the controllers of Deployments
//	          and ReplicaSets and the signer
//	played    the scheduler and the kubelets: the coordinators' Pods are bound to their pool's first node, and are ready as soon
//	          as their certificates are there; no coordinator runs
//	          the nodes: Nodes of 9 KB with 50 images, and Leases that a load renews. A direct heartbeat is sent as its node,
//	          by impersonation over a few connections; a delegated one as its pool's leader sends it, over a connection with
//	          that node's own certificate, as the pool's forwarding identity
//	left out  the other controllers of kube-controller-manager, and Pods besides the coordinators'
//
// kube-controller-manager may send 1000 requests a second instead of 20, so that it does not delay the first fill.
//
// The Leases last 400 s instead of 40, so that no node counts as silent on a slow machine. Otherwise most of the work would be
// nodes that fall silent and come back. Everything shares the machine. If the API server is too slow for the wanted heartbeats,
// the load runs at the rate that the server can take, and the report names that rate. The load bounds the number of requests
// under way, and drops heartbeats that are late.
package cloudscale
