// Package verbatim writes objects under kube-apiserver's keys in etcd, as they came: the cloud's own bytes.
//
// Invariants:
//   - What is written is what kube-apiserver would read: of the kind and version in which it stores the resource, and named by
//     its key. One object that it could not read would break every list of the resource.
//   - No key is a way to another key.
//   - A Transaction stays within etcd's bounds. One that is given up half-way has an unknown outcome, so commits do not end
//     with the request that began them.
//
// Creating the objects through the API was the alternative: it would give them another UID, creation time and owner, allocate
// Service addresses, and cost a request each.
package verbatim
