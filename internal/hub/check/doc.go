// Package check finds out what is wrong with a node and says so in plain words. It checks the running hub's own status, its
// ports, its certificates, the clock, each step of the way to the cloud, the disk, and whether kubelet and other programs use the
// hub.
//
// If a hub runs, the check believes what the hub reports at /status. Otherwise it reads the state of the certificates from the
// files with which the hub would start (identity.Look), and leaves out what only a running hub knows: its links, its settings,
// its Pods. If a hub answers, the check does not try the ports, because the hub has them. It also does not warn that the cache
// may need more space, because the hub may have taken its part already. All else is checked in the same way with and without a
// hub. The way to the cloud is checked even if the hub reports that its link is down, because the hub does not report which step
// fails.
//
// Gather asks and measures. Judge, a pure function of the facts, decides. Gather changes nothing on the node. It is made for
// nodes on which nothing works: each probe is bounded, and a probe that does not return in time is itself a finding.
//
// Invariants:
//   - The node's key is used only with a server whose certificate is verified. A bootstrap token is never used.
//   - No finding holds a key, a token or a file's content.
//   - A server's answer is cut to one line before it is shown.
package check
