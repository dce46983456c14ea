// Package upgrade puts another program of yurthub in the place of a node's, and goes back by itself if the hub is not well with
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
// without its program for no longer than Config.Wait and one restart.
package upgrade
