// Package autonomy implements, in the cloud, the annotations by which a Node keeps its Pods while it is unreachable. It
// needs neither a coordinator nor anything from the node.
//
// An unmodified kube-controller-manager taints such a node (node.kubernetes.io/unreachable or not-ready, NoExecute) and
// deletes each Pod after the tolerationSeconds of its toleration. So this package keeps these seconds at the wanted
// number on every Pod of an autonomous node, as soon as the Pod is bound. When the node is lost, nothing has to be
// done.
//
// Annotations of the Pod remember its original seconds, which are put back when the Node's annotation goes. A Pod's own
// seconds are never shortened, and a Pod that tolerates forever, as DaemonSets' Pods do, is never changed. A Pod's
// annotations are never believed to grant more than the Pod has, so nobody gains anything by writing them.
//
// The hold: kube-controller-manager (1.36, processPodOnNode of its package tainteviction) never changes a running
// timer. It cancels the timer of a Pod that now tolerates forever, and starts a new one for a Pod that no longer does.
// So a number never replaces a number directly: the toleration is first without end, long enough for
// kube-controller-manager to see it, and then gets the new number. Whether a timer runs is not asked, because the timer
// may be newer than our view of the Node's taints.
//
// The package is level-based: Node, Pod and our clock alone determine what to write. An annotation in the Pod dates the
// beginning of a hold. The Node's condition PodsKept remembers that its Pods may carry our marks: it is written before
// the first Pod is marked, and withdrawn after the last mark is gone. So a restart loses nothing.
//
// Cost: there is no cache of Pods. While some Node needs it, one watch runs over all Pods that are bound and have not
// ended; Pods of other Nodes are decoded and dropped. A Node's Pods are listed by spec.nodeName, for which the API
// server has an index, when the Node's annotations change and when the watch starts again. Memory grows with the number
// of autonomous nodes, not with the number of Pods. The alternatives cost more: an informer holds all Pods of the
// cluster (300,000 at 10,000 nodes; by estimate some 300 MB even when stripped, and more while it lists), and one watch
// per autonomous node is 10,000 streams.
//
// Concurrency: the registry is shared, under one mutex that is never held across I/O. The sweep of a Node and the
// reconcile of a Pod may work on the same Pod at once: each write carries the resourceVersion that it was decided on,
// and the API server refuses the later one.
package autonomy
