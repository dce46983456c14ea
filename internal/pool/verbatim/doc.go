// Package verbatim writes objects under kube-apiserver's keys in etcd as they came: the cloud's own bytes.
//
// Invariants:
//   - It writes only what kube-apiserver can read: of the kind and version in which kube-apiserver stores the resource, and
//     named by its key. A single object that it could not read would break every list of the resource.
//   - No key leads to another key's place.
//   - A Transaction stays within etcd's bounds. The outcome of one that is given up halfway is unknown, so a commit does not
//     end with the request that began it.
//
// The alternative was to create the objects through the API: it would give them another UID, creation time and owner,
// allocate Service addresses, and cost a request each.
package verbatim
