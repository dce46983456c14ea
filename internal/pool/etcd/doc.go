// Package etcd runs a one-member etcd in memory: its directory, its start and end, and the bounds of its history.
//
// Invariants:
//   - It listens only on unix sockets in a directory that only this process may enter.
//   - Nothing outlives the process. The directory is emptied before the start and removed at the end, and nothing is synced to a
//     disk. The next coordinator removes what a killed one has left. No directory is emptied that a coordinator has not marked.
//   - Memory is bounded. Housekeep compacts, defragments and purges by how much is used, not by time. WatchQuota reports a full
//     etcd, which would refuse every write for good, so that the coordinator ends.
//
// The alternative was our own storage behind kube-apiserver. It would have to keep etcd's promises to watches, on which every
// watch of the API depends.
package etcd
