// Package autonomy honours, in the cloud, the annotations by which a Node keeps its Pods while it is unreachable. It
// needs no coordinator, and nothing from the node.
//
// An unmodified kube-controller-manager taints such a node (node.kubernetes.io/unreachable or not-ready, NoExecute) and
// deletes each Pod once it has borne the taint for its tolerationSeconds. So these are kept at the wanted number on
// every Pod of an autonomous node, from the moment when it is bound: when the node is lost there is nothing to do.
//
// What a Pod had before is remembered in its annotations and put back when the Node's annotation goes. A Pod's own
// seconds are never shortened, and those of a Pod that tolerates without end, as DaemonSets' do, never touched.
// What the annotations of a Pod say is never believed to be more than the Pod has: writing them gains nobody anything.
//
// The hold: kube-controller-manager (1.36, processPodOnNode of its package tainteviction) does not move a timer that
// runs. It cancels it for a Pod that now tolerates without end, and starts a new one for a Pod that no longer does. So
// a number never replaces a number: first the toleration is without end, for long enough that
// kube-controller-manager has seen it, then it has the new number. Whether a timer runs is not asked: what is seen of
// the Node's taints may be older than the timer.
//
// It is level-based: what to write follows from Node and Pod alone, and from the time on our clock, with which the
// beginning of a hold is dated in the Pod. The Node's condition PodsKept is the memory that its Pods may carry our marks:
// written before the first is marked, and withdrawn after the last mark is gone. So nothing is lost by a restart.
//
// Cost: there is no cache of Pods. One watch, of all Pods that are bound and have not ended, runs while there is a Node
// that needs it; what is not on such a Node is decoded and dropped. The Pods of a Node are listed by spec.nodeName, for
// which the API server has an index, when its annotations change and when the watch has begun anew. Memory goes with
// the number of autonomous nodes and not with the number of Pods. The alternatives: an informer holds all Pods of
// the cluster (300,000 at 10,000 nodes; by estimate some 300 MB even when stripped, and more while it lists); a watch for each
// autonomous node is 10,000 streams.
//
// Concurrency: registry is shared, under one mutex that is never held across I/O. A Pod may be worked on by the sweep of
// its Node and by itself at once: each write carries the resourceVersion that it was decided on, and the API server
// refuses the later one.
package autonomy
