// Package mirror holds a pool's resources with the cloud's revisions: the leader's hub pushes them, and all hubs read them.
//
// Invariants:
//   - Only the leader pushes, under its present term, which is asked before a body is read and again before it is applied.
//   - An acknowledged revision is in the mirror's replica and, for what kube-apiserver serves, in etcd. What is refused has
//     changed nothing, and no older revision replaces a newer one.
//   - All that is here of a resource is of one history of the cloud. A push of everything of a later one replaces it, whatever
//     its revision; one of an earlier is refused; and so is a watch that resumes in another.
//   - Deletions come last: what a full stream no longer has goes after what it has is there.
//   - Memory is bounded by a quota; a watch is bounded by its reader.
//
// Keeping the resources in etcd alone was the alternative: its revisions are not the cloud's, so a hub that loses the cloud
// could not go on here where it stood. See docs/adr/0006-mirror-keeps-cloud-revisions.md.
package mirror
