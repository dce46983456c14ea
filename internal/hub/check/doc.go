// Package check finds out what is wrong with a node and says so in plain words. It checks the running hub's own status, its
// ports, its certificates, the clock, each step of the way to the cloud, the disk, and whether kubelet and other programs use
// the hub.
//
// A fact has the same form whether a hub runs or not. The check believes what a running hub reports at /status. Without a hub
// it leaves out what only a running hub knows: its links, its settings, its Pods. Then identity.Look reads the state of the
// certificates from the files that the hub would start with. Everything else is checked in the same way with and without a hub.
// That includes the way to the cloud, because a hub reports that its link is down, but not at which step.
//
// Gather asks and measures; Judge, a pure function of the facts, decides. Gather changes nothing on the node. It is made for
// nodes on which nothing works: each probe is bounded, and a probe that does not return in time is itself a finding.
//
// Invariants:
//   - The node's key is used only with a server whose certificate is verified, and a bootstrap token never.
//   - No finding holds a key, a token or a file's content.
//   - A server's answer is cut to one line before it is shown.
package check
