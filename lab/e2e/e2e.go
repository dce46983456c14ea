// Package e2e joins the end-to-end scenarios: scripts that boot a lab of real Kubernetes components, break it, and compare what
// the cloud saw with what must be seen. `yurtlab run NAME` runs one; the tests of this package run them all. Each theme is a
// package that lists its scenarios. They are written with package kit.
//
// A scenario asserts on the history of the cloud (the watches of kit's chronicle.go), not on samples. "Never NotReady" means
// that no watch event said so; a poll could miss it.
package e2e

import (
	"fmt"
	"strings"

	"yurtcoordinator/lab/e2e/cloud"
	"yurtcoordinator/lab/e2e/install"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/e2e/links"
	"yurtcoordinator/lab/e2e/offline"
	"yurtcoordinator/lab/e2e/ops"
	"yurtcoordinator/lab/e2e/pool"
	"yurtcoordinator/lab/e2e/reading"
	"yurtcoordinator/lab/e2e/thief"
)

// Theme is a group of scenarios about one matter: a package below this one.
type Theme struct {
	Title string
	// Doc says in a sentence or two what the theme is about.
	Doc       string
	Scenarios []kit.Scenario
}

// Themes returns all themes, in the order of their runs.
func Themes() []Theme {
	return []Theme{
		{
			"Links and heartbeats",
			"What happens to a node's heartbeats when a link is cut, a node dies or the leader is lost, and what the cloud " +
				"concludes.",
			links.Scenarios(),
		},
		{
			"What a pool shares",
			"One copy over the WAN for a whole pool, watches that survive every change of source, and answers equal to the " +
				"cloud's.",
			pool.Scenarios(),
		},
		{
			"Nodes that can reach nothing", "What a hub's disk and memory are for, and whom they may answer.",
			offline.Scenarios(),
		},
		{
			"Installing, upgrading, removing",
			"Nodes that join and leave, kubeadm, the chart, and a cluster with OpenYurt.", install.Scenarios(),
		},
		{
			"The cloud's side",
			"Coordinators that are created, moved and removed, what the cloud concludes about silent nodes, certificates that " +
				"change, and a cloud that says wrong things.",
			cloud.Scenarios(),
		},
		{
			"On site",
			"What people at the site see and do while the cloud does not answer, and what the coordinator refuses.",
			ops.Scenarios(),
		},
		{
			"What the pages show",
			"Somebody types the commands of our pages as they stand there. [Commands of the pages](#commands-of-the-pages) " +
				"says which scenario follows which page.",
			reading.Scenarios(),
		},
		{
			"Thieves and strangers",
			"Somebody has got hold of a node, a key, or a place on the LAN and tries what he can, from where he would be and " +
				"with real clients. The [threat model](threat-model.md) says what each may gain.",
			thief.Scenarios(),
		},
	}
}

// All returns the scenarios of all themes, in the order of their runs.
func All() []kit.Scenario {
	var all []kit.Scenario
	for _, t := range Themes() {
		all = append(all, t.Scenarios...)
	}
	return all
}

// Find returns the scenario of that name.
func Find(name string) (kit.Scenario, error) {
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
	}
	return kit.Scenario{}, fmt.Errorf("no scenario %q: want one of\n%s", name, List())
}

// List describes all scenarios, theme by theme, one per line.
func List() string {
	var b strings.Builder
	for _, t := range Themes() {
		fmt.Fprintf(&b, "\n  %s\n", t.Title)
		for _, s := range t.Scenarios {
			fmt.Fprintf(&b, "  %-32s %-7s  %s\n", s.Name, s.Tier, s.Doc)
		}
	}
	return b.String()
}
