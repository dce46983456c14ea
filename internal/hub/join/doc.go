// Package join puts yurthub between a node's kubelet and the cloud, and takes it away again.
//
//	readFacts reads the state of the node, and changes nothing
//	decide    returns the node's wanted state, or what prevents it; it is a pure function
//	Join      writes the files, starts yurthub, waits until it works, and then makes kubelet use it
//	Reset     undoes all of that
//
// Invariants:
//   - kubelet is pointed at yurthub only after `yurthub check` has succeeded. If something does not work in the end, Join
//     undoes its changes.
//   - It writes only to files of its own. A file is replaced in one step, so a kill or a power cut leaves the old one or
//     the new one.
//   - /etc/yurthub/install records what was made and what remains to be done, so that Join or Reset can continue an
//     interrupted run.
//
// Join runs `yurthub check` with the installed program instead of checking by itself, because that program is what will run.
//
// # Upgrades
//
// Upgrade replaces a node's yurthub program, and rolls back by itself if the hub does not work with the new one.
//
//	DeliverUpgrade runs as a Pod: it brings a program and its signature, asks for the upgrade, and reports the result
//	Upgrade        runs on the node as root, under systemd: it verifies, replaces, restarts the hub, judges it, and rolls back
//
// Whoever can make Pods in the cloud can choose among released programs, and can't supply one. The node's present program
// decides and acts. The Pod writes into one directory, and owns nothing else on the node. A program is accepted on two
// conditions. A key that was installed at join has signed its sum under a name with this program, this platform and the
// requested version. And that version is not below the floor that the node keeps.
//
// Invariants:
//   - The program's place always has a whole program that was accepted or that was there before.
//   - FileSettled beside it is a link to the last program with which the hub worked. That program judges the new one, and
//     is what a rollback restores.
//   - The journal records the upgrade before anything is replaced, so that the next run continues after a kill or a power
//     cut at any step.
//   - The hub is without its program for no longer than UpgradeConfig.Wait and one restart.
package join
