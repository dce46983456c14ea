// Package etcd is a one-member etcd in memory: its directory, its start and end, and the bounds of its history.
//
// Invariants:
//   - It listens on unix sockets of a directory that only this process may enter, and nowhere else.
//   - Nothing outlives the process: the directory is emptied before the start and removed at the end, nothing is synced to a
//     disk, and what a killed coordinator has left is cleared away by the next one. Only what a coordinator made is deleted.
//   - Memory is bounded: Housekeep compacts, defragments and purges by what is used, and WatchQuota ends a member that is
//     full, which would refuse every write for good.
//
// A storage of our own behind kube-apiserver was the alternative: it would have to keep etcd's promises to watches, and they
// are what a watch of the API rests on.
package etcd
