package views

import (
	"maps"
	"net"
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

const (
	// maxPods bounds the known Pods of other nodes. It is far more than a coordinator accepts.
	maxPods = 20_000
	// maxPodBytes bounds the names and addresses of each. Kubernetes' names, UIDs and addresses have 700 bytes at most.
	maxPodBytes = 1 << 10
)

// sizeOf returns the bytes of a Pod's names and addresses.
func sizeOf(p edge.PodPresence) int {
	n := len(p.Namespace) + len(p.Name) + len(p.UID) + len(p.Node)
	for _, ip := range p.IPs {
		n += net.IPv6len + len(ip.Zone())
	}
	return n
}

// word is the last status of a Pod that came from its kubelet.
type word struct {
	edge.PodPresence
	// kept says that the cloud has since marked the Pod as not ready without having heard kubelet.
	kept bool
	// from is the coordinator that reported the status.
	from string
	// as caches the KnownPod made from it.
	as *KnownPod
}

// facts holds what the pool knows. It does no I/O and has no clock.
type facts struct {
	node   edge.NodeName
	own    map[stream.Key]*word
	others map[stream.Key]*word
	// told holds the coordinator's status of this node's own Pods: what kubelet told an earlier process of this hub.
	told map[stream.Key]*word
	// ownAsOf is the cloud's revision up to which the hub knew all own Pods when this cut began.
	ownAsOf edge.Revision
	nodes   map[edge.NodeName]*neighbour
	// from are the coordinators that have reported something: for each slot, the last one.
	from map[int]string
}

// neighbour is a node that a coordinator saw renew.
type neighbour struct {
	at     map[int]heard // by slot
	silent bool          // this hub believes that the node is silent
}

// heard is a coordinator's report about a node.
type heard struct {
	edge.NodePresence
	from string
}

func newFacts(node edge.NodeName) *facts {
	return &facts{
		node: node, own: map[stream.Key]*word{}, others: map[stream.Key]*word{}, told: map[stream.Key]*word{},
		nodes: map[edge.NodeName]*neighbour{}, from: map[int]string{},
	}
}

func keyOf(p edge.PodName) stream.Key { return stream.Key{Namespace: p.Namespace, Name: p.Name} }

// after returns kubelet's last status of a Pod, given the last one known and a new report; nil means that there is none.
func after(last *word, heard word) *word {
	switch {
	case !heard.Overruled || heard.Said:
		if last != nil && last.equal(&heard) {
			last.from = heard.from
			return last
		}
		return &heard
	case last == nil || last.UID != heard.UID:
		return nil
	}
	kept := *last
	kept.kept, kept.Overruled, kept.from, kept.as = true, false, heard.from, nil
	kept.Terminating, kept.Finished = last.Terminating || heard.Terminating, heard.Finished
	if last.equal(&kept) {
		return last
	}
	return &kept
}

func (w *word) equal(o *word) bool {
	return w.UID == o.UID && w.Node == o.Node && w.Revision == o.Revision && w.History == o.History && w.Said == o.Said &&
		slices.Equal(w.IPs, o.IPs) && w.Ready == o.Ready && w.Terminating == o.Terminating && w.Finished == o.Finished &&
		w.kept == o.kept
}

func set(words map[stream.Key]*word, key stream.Key, w *word) {
	if w == nil {
		delete(words, key)
		return
	}
	words[key] = w
}

// heard records a report of the coordinator in a slot. Unless that coordinator is home, heard takes only the nodes from the
// report.
func (f *facts) heard(slot int, home bool, line edge.State) {
	f.from[slot] = line.Instance
	f.heardNodes(slot, line)
	if home {
		f.heardPods(line)
	}
}

// heardPods records a coordinator's report about Pods.
func (f *facts) heardPods(line edge.State) {
	in := make(map[stream.Key]struct{}, len(line.Pods))
	for _, p := range line.Pods {
		if sizeOf(p) > maxPodBytes {
			continue
		}
		key := keyOf(p.PodName)
		in[key] = struct{}{}
		words := f.others
		if p.Node == f.node {
			words = f.told
		}
		if words[key] == nil && len(words) >= maxPods {
			continue
		}
		set(words, key, after(words[key], word{PodPresence: p, from: line.Instance}))
	}
	for _, p := range line.Gone {
		delete(f.others, keyOf(p))
		delete(f.told, keyOf(p))
	}
	if !line.Whole {
		return
	}
	// A Pod that this coordinator reported before and no longer reports is no longer known. A Pod that another coordinator
	// reported stays, because this coordinator may not have heard of it yet.
	for _, words := range []map[stream.Key]*word{f.others, f.told} {
		for key, w := range words {
			if _, there := in[key]; !there && w.from == line.Instance {
				delete(words, key)
			}
		}
	}
}

// heardNodes records what the coordinator in a slot reports about nodes.
func (f *facts) heardNodes(slot int, line edge.State) {
	named := make(map[edge.NodeName]struct{}, len(line.Nodes))
	for _, n := range line.Nodes {
		named[n.Name] = struct{}{}
		if n.Name == f.node || len(n.Name) > maxPodBytes || f.nodes[n.Name] == nil && len(f.nodes) >= maxPods {
			continue
		}
		if f.nodes[n.Name] == nil {
			f.nodes[n.Name] = &neighbour{at: map[int]heard{}}
		}
		f.nodes[n.Name].at[slot] = heard{n, line.Instance}
	}
	for name, n := range f.nodes {
		if _, there := named[name]; line.Whole && !there && n.at[slot].from == line.Instance {
			delete(n.at, slot)
			if len(n.at) == 0 {
				delete(f.nodes, name)
			}
		}
	}
}

// ownPods records this node's Pods. The parameter cloud has all of them, as the cloud had them at the revision asOf. The
// parameter said has those whose status kubelet has written since.
func (f *facts) ownPods(cloud, said []edge.PodPresence, asOf edge.Revision) {
	if f.ownAsOf == 0 {
		f.ownAsOf = asOf
	}
	on := make(map[stream.Key]edge.PodPresence, len(said))
	for _, p := range said {
		on[keyOf(p.PodName)] = p
	}
	in := make(map[stream.Key]struct{}, len(cloud))
	for _, p := range cloud {
		key := keyOf(p.PodName)
		in[key] = struct{}{}
		heard := word{PodPresence: p}
		if s, ok := on[key]; ok && s.UID == p.UID && s.Revision == p.Revision {
			heard.PodPresence = s
		} else if t := f.told[key]; t != nil && t.Said && t.UID == p.UID && t.Revision == p.Revision {
			heard.PodPresence = t.PodPresence
		}
		heard.Terminating = heard.Terminating || p.Terminating
		set(f.own, key, after(f.own[key], heard))
	}
	for key := range f.own {
		if _, there := in[key]; !there {
			delete(f.own, key)
		}
	}
}

// decideSilent decides which nodes are silent. The map reached says for each slot how long this hub has reached the coordinator
// there without a break. The result again is the time after which to decide anew; 0 means after the next report.
func (f *facts) decideSilent(reached map[int]time.Duration) (again time.Duration) {
	if len(reached) == 0 {
		return 0
	}
	all := slices.Min(slices.Collect(maps.Values(reached)))
	for _, n := range f.nodes {
		hears, grace := false, time.Duration(0) // a coordinator hears it; one calls it silent, after this
		for slot := range reached {
			switch is, told := n.at[slot]; {
			case told && is.Silent:
				grace = max(grace, time.Duration(is.GraceSeconds)*time.Second)
			case told && is.from == f.from[slot]: // not by the word of one that was there before
				hears = true
			}
		}
		switch {
		case hears:
			n.silent = false
		case grace == 0:
		case n.silent || all >= grace:
			n.silent = true
		case again == 0 || grace-all < again:
			again = grace - all
		}
	}
	return again
}

// known returns the knowledge by which to show endpoints. The parameter in is the cloud's history. The parameter settling says
// that the cloud is back, but may not have heard from all kubelets yet.
func (f *facts) known(in edge.History, settling bool, unready map[stream.Key]struct{}) *Known {
	k := &Known{
		Node: f.node, OwnAsOf: f.ownAsOf, Pods: make(map[stream.Key]*KnownPod, len(f.own)+len(f.others)),
		Silent: map[edge.NodeName]struct{}{}, Unready: unready,
	}
	for key, w := range f.others {
		firm := w.Said || w.kept || settling
		if firm || w.History == in { // revisions of another history can't be compared
			k.Pods[key] = w.shown(key, firm)
		}
	}
	for key, w := range f.own {
		k.Pods[key] = w.shown(key, true)
	}
	for name, n := range f.nodes {
		if n.silent {
			k.Silent[name] = struct{}{}
		}
	}
	return k
}

// shown returns a word as endpoints need it. It returns the same pointer as before if nothing has changed.
func (w *word) shown(key stream.Key, firm bool) *KnownPod {
	if w.as == nil || w.as.Firm != firm {
		w.as = &KnownPod{
			Key: key, UID: w.UID, Node: w.Node, Revision: w.Revision, Firm: firm, IPs: w.IPs, Ready: w.Ready,
			Terminating: w.Terminating, Finished: w.Finished,
		}
	}
	return w.as
}
