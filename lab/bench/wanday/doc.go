// Package wanday measures what a node costs on its WAN link in a day, in a lab of genuine components.
//
// One lab has three pools, which are measured at the same time and so see the same cluster: one whose nodes have no hub, one
// whose hubs have no coordinator, and one with a coordinator. What a link carried is counted at its cable, in whole Ethernet
// frames, both ways. What it was spent on is what the hub's own counters say (yurthub_upstream_bytes_total), and the rest of the
// frames: the headers of Ethernet, IP and TCP, and packets without content. For a node without a hub there is no such split, but
// the cloud's audit log says what all of them asked for.
//
// A day is what was measured, multiplied: kubelet reports its status every 5 minutes, and programs begin their watches anew after
// 5 to 10 minutes, so a measurement of less than 30 minutes has a part of them by chance.
package wanday
