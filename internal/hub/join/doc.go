// Package join puts yurthub between a node's kubelet and the cloud, and takes it away again.
//
//	readFacts reads the state of the node, and changes nothing
//	decide    returns the node's wanted state, or what prevents it; it is a pure function
//	Join      writes the files, starts yurthub, waits until it works, and then makes kubelet use it
//	Reset     undoes all of that
//
// Invariants:
//   - Join makes kubelet use yurthub only after `yurthub check` has succeeded. If something does not work in the end, Join
//     undoes its changes.
//   - Join and Reset write only to files of their own. They replace a file in one step, so a kill or a power cut leaves the old
//     one or the new one.
//   - /etc/yurthub/install records what Join has made and what remains to be done, so that Join or Reset can continue an
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
// Whoever can make Pods in the cloud can choose among released programs, but can't bring a program of their own. The node's
// present program decides and acts. The Pod writes into one directory, and owns nothing else on the node. A node accepts a
// program on two conditions. First, a key that was installed at join has signed the program's SHA-256 sum, under a name that
// states yurthub, this platform and the requested version. Second, that version is not below the floor that the node keeps.
//
// Invariants:
//   - The path of the program always has a complete program: an accepted one, or the one that was there before.
//   - FileSettled, beside the program, is a link to the last program with which the hub worked. That program judges the new one,
//     and a rollback restores it.
//   - The journal records the upgrade before anything is replaced, so that the next run continues after a kill or a power
//     cut at any step.
//   - If no run is interrupted, the hub is without a working program for no longer than UpgradeConfig.Wait and some restarts.
package join
