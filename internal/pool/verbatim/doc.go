// Package verbatim writes objects under kube-apiserver's keys in etcd as they came: the cloud's own bytes.
//
// Invariants:
//   - It writes only what kube-apiserver can read. An object has the kind and version in which kube-apiserver stores the
//     resource, and the name in its key. A single unreadable object would break every list of the resource.
//   - No key leads to another key's place.
//   - A Transaction stays within etcd's bounds. A commit does not end with the request that began it, because the outcome of a
//     commit that is given up halfway is unknown.
//
// The alternative was to create the objects through the API. That would give them another UID, creation time and owner, allocate
// Service addresses, and cost a request each.
package verbatim
