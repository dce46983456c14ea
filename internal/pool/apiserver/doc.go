// Package apiserver assembles a genuine kube-apiserver for a pool, from the packages that Kubernetes' own command is made from.
// Configure configures it, Assembly.providers stores and serves the API groups, and Build adds the parts that are not Kubernetes'
// own.
//
// Invariants:
//   - It does not know the coordinator's other packages: they come in as Parts.
//   - It has no watch cache. A watch whose reader takes nothing for stallTimeout ends, if an event waits.
//   - A watch that falls behind etcd's history ends with 410, never with 500.
//   - The second copies of Pods and Nodes, for the Node authorizer, hold only what it reads.
//   - No controller writes into the pool: Kubernetes' hooks that fill a new cluster are left out.
//
// The alternative was to run the command's own handler chain, and to turn off by flags what a pool does not need. The command
// links and starts much that it then ignores. See docs/adr/0001-one-process.md.
package apiserver
