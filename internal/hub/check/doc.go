// Package check finds out what is wrong with a node and says so in plain words: who holds the hub's ports, whether its
// certificates are good, whether the clock is right, how far the node gets towards the cloud and the coordinator, whether its
// disk will do, whether the kubelet goes through the hub, and what the running hub says about itself.
//
// Gather asks and measures; Judge, a pure function of what was found, decides. Gather changes nothing on the node. It is made
// for nodes on which nothing works: each probe is bounded, and a probe that does not return in time is itself a finding.
//
// Invariants: the node's key is used only with a server whose certificate is verified, and a bootstrap token never; no finding
// holds a key, a token or a file's content; what a server says is cut to one line before it is shown.
package check
