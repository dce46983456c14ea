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
//
// # Upgrades
//
// Upgrade puts another program of yurthub in the place of a node's, and goes back by itself if the hub is not well with
// it.
//
//	deliver  runs as a Pod: it brings a program and its signature, asks for the upgrade, and tells what came of it
//	Run      runs on the node as root, by systemd: it verifies, puts in place, restarts the hub, judges, and goes back
//
// Whoever can make Pods in the cloud chooses among released programs, and can't supply one. What decides and acts is the program
// that the node has already; the Pod writes into one directory, and nothing else of the node is its own. A program is accepted
// if a key that was installed at join has signed its sum under a name of this program, this platform and the version that is
// asked for, and if that version is not below the floor that the node keeps.
//
// Invariants: the program's place always has a whole program that was accepted or that was there before. FileSettled is beside
// it: a link to the last program with which the hub was well. It is the one that judges, and the way back. What is under way is
// in the journal before anything is replaced, so that the next run goes on after a kill or a power cut at any step. The hub is
// without its program for no longer than UpgradeConfig.Wait and one restart.
package join
