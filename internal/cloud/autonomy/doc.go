// Package autonomy implements, in the cloud, the annotations by which a Node keeps its Pods while it is unreachable. It needs
// neither a coordinator nor anything from the node.
//
// An unmodified kube-controller-manager taints such a node (node.kubernetes.io/unreachable or not-ready, NoExecute). It deletes
// each Pod after the tolerationSeconds of the Pod's toleration. So this package sets these seconds to the wanted number on
// every Pod of an autonomous node, as soon as the Pod is bound. When the node is lost, nothing has to be done.
//
// Annotations of the Pod remember its original seconds, which are restored when the Node's annotation goes. A Pod's own seconds
// are never shortened. A Pod that tolerates forever, as DaemonSets' Pods do, is never changed. Nobody gains anything by writing
// these annotations, because they never grant a Pod more than it has.
//
// The hold: kube-controller-manager (1.36, processPodOnNode of its package tainteviction) never changes a running timer. It
// cancels the timer of a Pod that now tolerates forever, and starts a new one for a Pod that no longer does. So this package
// never replaces one number of seconds directly by another. It first makes the toleration endless, long enough for
// kube-controller-manager to see it, and then sets the new number. It does so even if no timer seems to run, because the timer
// may be newer than our copy of the Node's taints.
//
// The package is level-based: Node, Pod and our clock alone determine what to write. An annotation of the Pod has the time at
// which a hold began. The Node's condition PodsKept records that its Pods may carry our marks. It is written before the first
// Pod is marked, and withdrawn after the last mark is gone. So a restart loses nothing.
//
// Cost: there is no cache of Pods. While some Node needs it, one watch runs over all Pods that are bound and have not ended;
// Pods of other Nodes are decoded and dropped. A Node's Pods are listed by spec.nodeName, for which the API server has an
// index. They are listed when the Node's annotations change and when the watch starts again. Memory grows with the number of
// autonomous nodes, not with the number of Pods. The alternatives cost more. An informer holds all Pods of the cluster: 300,000
// at 10,000 nodes, by estimate some 300 MB even when stripped, and more while it lists. One watch per autonomous node is 10,000
// streams.
//
// Concurrency: the registry is shared, under one mutex that is never held across I/O. The sweep of a Node and the reconcile of
// a Pod may work on the same Pod at once. Each write carries the resourceVersion that it was decided on, so the API server
// refuses the later one with a conflict.
package autonomy
