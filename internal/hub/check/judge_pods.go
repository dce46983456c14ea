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

const approve = "in the cloud: give the chart controller.kubeletServing.cidrs with this node's address, or kubectl get csr and " +
	"kubectl certificate approve"

// serving says whether the pool's coordinator can know kubelet, for logs, exec and top on site.
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

// pods says whether Pods, and the node's agents among them, can go through the hub.
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

// past names the programs that ask API servers past the hub, once kubelet goes through it.
func (j *judge) past(f Facts) {
	const what = "programs past yurthub"
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
		if f.SeesAll {
			j.add(OK, what, "none: no other program of this node has a connection to the API servers", "")
		}
		return
	}
	var said []string
	for _, name := range slices.Sorted(maps.Keys(named)) {
		to := named[name]
		slices.SortFunc(to, netip.AddrPort.Compare)
		said = append(said, fmt.Sprintf("%s to %v", name, slices.Compact(to)[0]))
	}
	j.add(Warn, what, "these bypass yurthub, and get no answer when the cloud cannot be reached: "+
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
