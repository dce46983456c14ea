// Package mirror holds a pool's resources with the cloud's revisions: the leader's hub pushes them, and all hubs read them.
//
// Invariants:
//   - Only the leader pushes, under its present term. That is checked before a body is read and again before it is applied.
//   - An acknowledged revision is in the mirror's replica and, if kube-apiserver serves the resource, in etcd. A refused push has
//     changed nothing, and no older revision replaces a newer one.
//   - While nobody leads, a filler, which has no link to the cloud, may push everything that it has. Its objects count in a
//     filled history (edge.History), which is below all of the cloud's histories. So they replace only older objects that were
//     filled, too, and whatever a leader brings replaces them, object by object.
//   - All objects of a resource belong to one history of the cloud. A push of everything from a later history replaces them,
//     whatever its revision. A push from an earlier history is refused, and so is a watch that resumes in another history.
//   - Deletions come last: objects that a full stream lacks are deleted after the others were written.
//   - Memory is bounded by a quota; a watch is bounded by its reader.
//
// The alternative was to keep the resources in etcd alone. Its revisions are not the cloud's, so a hub that loses the cloud could
// not resume here from its revision. See docs/adr/0006-mirror-keeps-cloud-revisions.md.
package mirror
