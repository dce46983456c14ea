package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/bypass"
)

func (j *judge) hub(f Facts) {
	const what = "yurthub"
	h, c := f.Hub, f.Settings
	switch {
	case h.Nobody && c.BeforeStart:
		j.add(OK, what, "no yurthub runs yet", "")
		return
	case h.Nobody:
		j.add(Fail, what, "no yurthub answers at "+c.healthURL(),
			"systemctl status yurthub; journalctl -u yurthub")
		return
	case h.Trouble != "":
		j.add(Fail, what, fmt.Sprintf("what answers at %s is no working yurthub: %s", c.healthURL(), h.Trouble),
			f.asRoot("end that program, or if it is yurthub, restart it: systemctl restart yurthub"))
		return
	case h.Status.Node != c.Node:
		j.add(Fail, what, fmt.Sprintf("the running yurthub is for the node %s, but these settings are for %s",
			h.Status.Node, c.Node), "give the settings with which it runs, or restart it: systemctl restart yurthub")
		return
	}
	j.add(OK, what, "runs as node "+string(h.Status.Node), "")
	switch h.Status.Cloud {
	case "down":
		j.add(Fail, findingHubCloud, "the running yurthub says that its link to the cloud is down",
			"see the lines about the cloud below")
	case "relayed":
		j.add(Warn, findingHubCloud, "the running yurthub reaches the cloud over a neighbour's link: its own link is down",
			"see the lines about the cloud below")
	case "failing":
		j.add(Fail, findingHubCloud,
			"the running yurthub says that the cloud, or a balancer in front of it, answers core requests with 502, 503 or 504",
			"look at the API servers and the balancer in front of them; the node keeps working with what it has meanwhile")
	case "unknown":
		j.add(Fail, findingHubCloud, "the running yurthub does not know yet whether it reaches the cloud",
			"ask again in a few seconds")
	}
	j.hubCoordinators(h)
	j.hubDisk(h)
	j.hubSettings(h)
}

// hubCoordinators says which of the pool's coordinators the hub reaches. A coordinator out of reach is only a warning, because a
// hub without a coordinator still works as a plain proxy.
func (j *judge) hubCoordinators(h Hub) {
	all := h.Status.Coordinators
	if len(all) == 0 {
		all = []edge.CoordinatorStatus{{Address: h.Status.CoordinatorAddress, Link: h.Status.Coordinator}}
	}
	for _, c := range all {
		switch c.Link {
		case "up":
			j.add(OK, "yurthub: coordinator", "the running yurthub reaches it at "+c.Address, "")
		case "down":
			j.add(Warn, "yurthub: coordinator", "the running yurthub does not reach it at "+orNone(c.Address),
				"see that it runs (kubectl yurt status), and that TCP 10270 is open to it; journalctl -u yurthub says why")
		}
	}
}

func (j *judge) hubDisk(h Hub) {
	d := h.Status.Disk
	if d == nil {
		return
	}
	if d.Error != "" {
		j.add(Fail, "yurthub: disk", "the running yurthub cannot write its data, so this node would not "+
			"start again while cut off: "+d.Error, "make space on the disk, or have it repaired; yurthub tries again by itself")
	} else {
		j.add(OK, "yurthub: disk", fmt.Sprintf("%s kept, %d KiB", edge.Count(len(h.Status.Kept), "selection is",
			"selections are"), d.Bytes>>10), "")
	}
	if d.Corrupt != "" {
		j.add(Warn, "yurthub: disk", "when it started, the running yurthub found damage on the disk: "+d.Corrupt,
			"have the disk looked at; the cache fills again by itself")
	}
}

func (j *judge) hubSettings(h Hub) {
	const what = "yurthub: settings of the pool"
	s := h.Status.Settings
	if s == nil {
		return
	}
	runs := fmt.Sprintf("it runs with generation %d", s.Runs)
	if s.Runs == 0 {
		runs = "it runs with none"
	}
	switch s.State {
	case edge.SettingsRefused:
		j.add(Fail, what, fmt.Sprintf("the running yurthub cannot use generation %d, and %s: %s", s.Told, runs, s.Why),
			"correct the PoolSettings, or this node's settings")
	case edge.SettingsNeedRestart:
		j.add(Warn, what,
			fmt.Sprintf("of generation %d, %s take effect when yurthub restarts; %s", s.Told, s.Why, runs),
			"systemctl restart yurthub; kubelet and Pods keep running meanwhile")
	default:
		j.add(OK, what, runs, "")
		if s.Why != "" {
			j.add(Warn, what, s.Why, "install the version of yurthub that goes with coordinator-controller")
		}
	}
	if len(s.Own) > 0 {
		j.add(OK, what, "this node has its own --"+strings.Join(s.Own, ", --")+", whatever the pool says", "")
	}
}

const approve = "in the cloud: give the chart controller.kubeletServing.cidrs with this node's address, or kubectl get csr and " +
	"kubectl certificate approve"

// serving says whether the pool's coordinator can verify kubelet, for logs, exec and top on site.
func (j *judge) serving(f Facts) {
	const what = "kubelet's serving certificate"
	k := f.Hub.Status.Kubelet
	if k == nil {
		return // nobody on site asks
	}
	switch k.Way {
	case edge.KubeletPinned, edge.KubeletSigned:
		j.add(OK, what, fmt.Sprintf("the coordinator knows kubelet by %s (%s)", k.File, k.Way), "")
	case edge.KubeletOverdue, edge.KubeletUnapproved, edge.KubeletEnded:
		j.add(Warn, what, "the running yurthub says: "+k.Problem, approve)
	default:
		j.add(Warn, what, "the running yurthub says: "+k.Problem,
			"run join again; or set yurthub's --kubelet-config and --kubelet-serving-certificate")
	}
}

// pods says whether Pods, and the node's agents among them, can use the hub.
func (j *judge) pods(f Facts) {
	const what = "yurthub: Pods"
	c, s := f.Settings, f.Hub.Status.Pods
	bad := Warn
	if c.Agents {
		bad = Fail
	}
	switch {
	case c.SecureBindAddress == "" && !c.Agents:
		return // nobody has asked for it
	case s == nil:
		j.add(bad, what, "the running yurthub serves no Pods", "run join again, or restart it with --secure-bind-address")
	case s.Problem != "":
		do := "see the line about the serving certificate"
		if s.Address == "" {
			do = "see what is said of the cloud and of kubelet"
		}
		j.add(bad, what, "the running yurthub says: "+s.Problem, do)
	case !s.Told && (c.MasterService || c.Agents):
		j.add(bad, what, "Pods that start now get the cloud's address", "restart yurthub: systemctl restart yurthub")
	case s.Told:
		j.add(OK, what, "those that start now, and kube-proxy, use "+s.Address+" as the API server", "")
	default:
		j.add(OK, what, "served at "+s.Address, "")
	}
}

// past names the programs that connect to API servers past the hub, once kubelet uses the hub.
func (j *judge) past(f Facts) {
	if f.Settings.BeforeStart {
		return
	}
	hub := netip.AddrPort{}
	if s := f.Hub.Status.Pods; s != nil {
		hub, _ = netip.ParseAddrPort(s.Address) // not valid if it serves none
	}
	named := map[string][]netip.AddrPort{}
	for _, p := range f.Past {
		to := slices.DeleteFunc(slices.Clone(p.Past), func(a netip.AddrPort) bool { return a == hub })
		if len(to) > 0 {
			name := nameOf(p)
			named[name] = append(named[name], to...)
		}
	}
	if len(named) == 0 {
		if f.Root {
			j.add(OK, findingPast, "none: no other program of this node has a connection to the API servers", "")
		}
		return
	}
	var said []string
	for _, name := range slices.Sorted(maps.Keys(named)) {
		to := named[name]
		slices.SortFunc(to, netip.AddrPort.Compare)
		said = append(said, fmt.Sprintf("%s to %v", name, slices.Compact(to)[0]))
	}
	j.add(Warn, findingPast, "these bypass yurthub, and get no answer when the cloud cannot be reached: "+
		strings.Join(said, ", "), "kube-proxy, CoreDNS and flannel: yurthub join again; others: see docs/agents.md")
}

func nameOf(p bypass.Program) string {
	where := "of the host"
	switch {
	case p.Static:
		where = "of a static Pod"
	case p.Pod != "":
		where = "of a Pod"
	}
	return fmt.Sprintf("%s (process %d, %s)", line(p.Name), p.PID, where)
}
