// Package check finds out what is wrong with a node and says so in plain words: who has the hub's ports, what its
// certificates are worth, whether the clock is right, how far it gets towards the cloud and the coordinator, whether its
// disk will do, whether the kubelet goes through it, and what the running hub says of itself.
//
// Gather asks and measures, Judge decides: a pure function of what was found. Gather changes nothing on the node. It is
// meant for nodes on which nothing works: each probe is bounded, and what does not come back in time is itself a finding.
//
// Invariants: the node's key is used only with a server whose certificate has been verified, a bootstrap token never; no
// key, token or content of a file is in any finding; what a server says is cut to a line before it is shown.
package check
