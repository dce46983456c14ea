// Package apiserver assembles a genuine kube-apiserver for a pool, from Kubernetes' own parts below its command: Configure
// configures it, providers store and serve the API groups, and Build puts in the parts that are not Kubernetes' own.
//
// Invariants:
//   - It knows none of the coordinator's other packages: what decides and what handles comes in as Parts.
//   - It has no watch cache. Each watch is bounded by its reader: one that takes nothing for stallTimeout ends.
//   - A watch that falls behind etcd's history ends with 410, never with 500.
//   - The second copies of Pods and Nodes, which the Node authorizer works from, have only what it reads.
//   - No controller writes into the pool: the hooks that fill a fresh cluster are hidden.
//
// Running the command's chain with those turned off by flags was the alternative: it links and starts much of what it then
// ignores. See docs/adr/0001-one-process.md.
package apiserver
