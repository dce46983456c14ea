// Package check finds out what is wrong with a node and says so in plain words: what the running hub says of itself, whether it
// could have its ports, whether its certificates are good, whether the clock is right, how far the node gets towards the cloud,
// whether its disk will do, and whether the kubelet and other programs go through the hub.
//
// A fact has one form, whether a hub runs or not. What a hub says at /status is believed. What only a running hub can say (its
// links, its settings, its Pods) is not said without one. What it says of its certificates, identity.Look finds in the files that
// it would start with. All else is looked at in the same way with and without a hub: among it the way to the cloud, since a hub
// says that it is down, and not at which step.
//
// Gather asks and measures; Judge, a pure function of what was found, decides. Gather changes nothing on the node. It is made
// for nodes on which nothing works: each probe is bounded, and a probe that does not return in time is itself a finding.
//
// Invariants: the node's key is used only with a server whose certificate is verified, and a bootstrap token never; no finding
// holds a key, a token or a file's content; what a server says is cut to one line before it is shown.
package check
