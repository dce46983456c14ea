// Package wanday measures what a node costs on its WAN link in a day, in a lab of genuine components.
//
// One lab has three pools, which are measured at the same time and so see the same cluster: one whose nodes have no hub, one
// whose hubs have no coordinator, and one with a coordinator. A link's traffic is counted at its cable, in whole Ethernet
// frames, both ways. The hub's own counters split it by purpose (yurthub_upstream_bytes_total). The rest is overhead of the
// frames: the headers of Ethernet, IP and TCP, and packets without content. For a node without a hub there is no such split,
// but the cloud's audit log shows what all programs on it asked for.
//
// A day is extrapolated from the measured time. kubelet reports its status every 5 minutes, and programs begin their watches
// anew after 5 to 10 minutes. So a measurement of less than 30 minutes has more or fewer of these by chance.
package wanday
