// Package join puts yurthub between a node's kubelet and the cloud, and takes it away again.
//
//	look   reads what there is on the node, and changes nothing
//	decide says what the node shall have, or what is in the way: pure
//	Join   writes the files, starts yurthub, waits until it works, and then has kubelet use it
//	Reset  undoes all of that
//
// Invariants: kubelet is told of yurthub only when `yurthub check` is content; what does not work in the end is undone.
// Nothing is written to but what is ours. A file is made in one step, so that a kill or a power cut leaves the old one or
// the new one. What was made, and what is still to be done, is noted in /etc/yurthub/install, so that either can go on where
// one ended.
//
// Join asks the installed program to check the node, and does not check by itself: that program is what will run.
package join
