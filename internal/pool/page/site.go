package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/internal/edge"
)

// AsRead is what a coordinator knows at one moment, and what the page shows of it as it was read.
type AsRead struct {
	// At is that moment. Began is when the coordinator started.
	At, Began time.Time
	// Host is the node that the coordinator runs on; empty means unknown. Version is the release of the coordinator.
	Host    edge.NodeName
	Version string
	// Leader is the node whose hub leads the pool; empty means that nobody does.
	Leader edge.NodeName
	Shared []edge.Shared
	Pods   []Pod
	// Events are the newest, the newest first.
	Events []Event
	// Missing says what could not be read, and why.
	Missing []string
}

// Facts are what a coordinator knows at one moment.
type Facts struct {
	AsRead
	Nodes  []NodeFact
	Leases []LeaseFact
	Heard  []edge.Heard
}

// NodeFact is what a Node says.
type NodeFact struct {
	Name edge.NodeName
	Pool edge.PoolName
	// Ready is the status of its condition of that name; empty means that it has none.
	Ready            string
	Unschedulable    bool
	Address, Version string
}

// LeaseFact is what a node's hub says of itself, in the coordinator's copy of the node's Lease.
type LeaseFact struct {
	Name edge.NodeName
	// Delegated: its own link to the cloud is down. RelayedBy is the node over whose line it reaches the cloud; empty means none.
	Delegated bool
	RelayedBy edge.NodeName
	// Renewed is by the node's clock.
	Renewed time.Time
	// Line and Traffic are nil if the hub does not tell.
	Line    *edge.Line
	Traffic *edge.Traffic
	// Kubelet is how the coordinator knows the node's kubelet; empty means that the hub does not tell.
	Kubelet edge.KubeletWay
	// Hub is the release of the hub; empty means that the hub does not tell.
	Hub string
}

// Pod is a Pod as `kubectl get pods -A -o wide` prints it.
type Pod struct {
	Namespace, Name, Ready, Status, Restarts, Age, IP string

	Node edge.NodeName
}

// Event is an Event of the pool.
type Event struct {
	Warning         bool
	Reason, Message string
	// About is KIND NAMESPACE/NAME. From is the program that tells it.
	About, From string
	Count       int
	At          time.Time
}

// Tone is how good the state of something is. The zero value says nothing about it.
type Tone string

// Tones, from the best to the worst.
const (
	Good Tone = "good"
	Warn Tone = "warn"
	Bad  Tone = "bad"
)

// worse orders tones.
var worse = map[Tone]int{Good: 1, Warn: 2, Bad: 3}

// Link is how a node reaches the cloud.
type Link string

// Links.
const (
	LinkUp      Link = "up"      // by its own line
	LinkRelayed Link = "relayed" // over a neighbour's
	LinkDown    Link = "down"    // not at all
	LinkSilent  Link = "silent"  // its hub is not heard of any more
	LinkUnheard Link = "unheard" // nor since the coordinator started
)

// Site is what the page shows. Its Pods are those with trouble first.
type Site struct {
	AsRead
	Pool edge.PoolName
	// Headlines say how the pool is, the worst first. There is at least one.
	Headlines []Headline
	Nodes     []Node
	// Links counts the nodes that reach the cloud. Heard counts the nodes that send heartbeats. Troubled counts the Pods that do
	// not run as they should.
	Links, Heard, Troubled int
	// Sent and Received are bytes, over the links of all nodes, each since its hub's start.
	Sent, Received uint64
}

// Headline is one sentence.
type Headline struct {
	Tone Tone
	Text string
}

// Node is one node.
type Node struct {
	NodeFact
	LeaseFact
	Name edge.NodeName
	Link Link
	// Says is a sentence about the link.
	Says string
	// Quiet is for how long its hub has not been heard of, up to its grace period. Hears says whether that is known.
	Quiet time.Duration
	Hears bool
	// Leads: its hub speaks for the pool. Hosts: the coordinator runs there.
	Leads, Hosts bool
	// Pods counts its Pods, Troubled those that do not run as they should.
	Pods, Troubled int
	// Apart is how the hub's release differs from the coordinator's.
	Apart Apart
}

// Tone says how good the node's state is.
func (n *Node) Tone() Tone {
	switch {
	case n.Link == LinkSilent || n.Link == LinkUnheard:
		return Bad
	case n.Link != LinkUp, n.Ready != "True":
		return Warn
	default:
		return Good
	}
}

// See says what the facts mean.
func See(f Facts) *Site {
	s := &Site{AsRead: f.AsRead}
	s.Pods = slices.Clone(f.Pods)
	nodes := map[edge.NodeName]*Node{}
	node := func(name edge.NodeName) *Node {
		if nodes[name] == nil {
			nodes[name] = &Node{Name: name, Link: LinkUnheard, Leads: name == f.Leader, Hosts: name == f.Host}
		}
		return nodes[name]
	}
	for _, n := range f.Nodes {
		node(n.Name).NodeFact = n
		s.Pool = cmp.Or(s.Pool, n.Pool)
	}
	for _, l := range f.Leases {
		node(l.Name).LeaseFact = l
	}
	for _, h := range f.Heard {
		n := node(h.Name)
		n.Hears, n.Quiet = true, h.Quiet
		n.Link = linkOf(n.LeaseFact, h)
	}
	for _, p := range s.Pods {
		tone := p.Tone()
		if tone == Bad {
			s.Troubled++
		}
		if n := nodes[p.Node]; n != nil {
			n.Pods++
			if tone == Bad {
				n.Troubled++
			}
		}
	}
	for _, n := range nodes {
		n.Says, n.Apart = linkSays(n, f.Leader), apart(n.Hub, f.Version)
		s.add(n)
	}
	slices.SortFunc(s.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(s.Pods, func(a, b Pod) int {
		return cmp.Or(worse[b.Tone()]-worse[a.Tone()], cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	s.Headlines = headlines(s)
	return s
}

// add counts a node.
func (s *Site) add(n *Node) {
	s.Nodes = append(s.Nodes, *n)
	if n.Link == LinkUp || n.Link == LinkRelayed {
		s.Links++
	}
	if n.Link != LinkSilent && n.Link != LinkUnheard {
		s.Heard++
	}
	if n.Traffic != nil {
		s.Sent += n.Traffic.Sent
		s.Received += n.Traffic.Received
	}
}

func linkOf(l LeaseFact, h edge.Heard) Link {
	switch {
	case h.Silent:
		return LinkSilent
	case l.RelayedBy != "":
		return LinkRelayed
	case l.Delegated:
		return LinkDown
	default:
		return LinkUp
	}
}

func linkSays(n *Node, leader edge.NodeName) string {
	switch n.Link {
	case LinkUp:
		return "reaches the cloud itself"
	case LinkRelayed:
		return fmt.Sprintf("own link down; reaches the cloud over that of %s", n.RelayedBy)
	case LinkDown:
		if leader != "" {
			return fmt.Sprintf("own link down; %s reports for it", leader)
		}
		return "own link down, and nobody reports for it"
	case LinkSilent:
		return "not heard here any more: dead, or cut off from this coordinator"
	case LinkUnheard:
	}
	return "not heard here since this coordinator started"
}

// Tone says how good a Pod's state is, by the words that kubectl prints.
func (p *Pod) Tone() Tone {
	ready, all, _ := strings.Cut(p.Ready, "/")
	switch p.Status {
	case "Running":
		if ready == all {
			return Good
		}
		return Bad
	case "Completed", "Succeeded":
		return Good
	case "Pending", "ContainerCreating", "PodInitializing", "Terminating":
		return Warn
	}
	if strings.HasPrefix(p.Status, "Init:") && !strings.Contains(p.Status, "Err") && !strings.Contains(p.Status, "Back") {
		return Warn
	}
	return Bad
}

// headlines say in sentences how a pool is.
func headlines(s *Site) []Headline {
	var all []Headline
	say := func(t Tone, format string, a ...any) { all = append(all, Headline{t, fmt.Sprintf(format, a...)}) }
	by := map[Link][]string{}
	unready := []string{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		by[n.Link] = append(by[n.Link], string(n.Name))
		if n.NodeFact.Name != "" && n.Ready != "True" && n.Link != LinkSilent && n.Link != LinkUnheard {
			unready = append(unready, string(n.Name))
		}
	}
	down, silent, unheard := by[LinkDown], by[LinkSilent], by[LinkUnheard]
	switch {
	case s.Heard == 0:
		say(Bad, "No node has been heard here for a while.")
	case s.Links == 0:
		say(Warn, "This site is cut off from the cloud: no node reaches it. Pods run on; what comes from the cloud is as it was.")
	case s.Leader == "":
		say(Warn, "No hub leads this pool at the moment.")
	case len(down) > 0:
		say(Warn, "%s no link to the cloud; %s reports for %s.", have(down), s.Leader, them(down))
	}
	if relayed := by[LinkRelayed]; len(relayed) > 0 {
		say(Warn, "%s no link to the cloud of %s own; a neighbour's serves %s.", have(relayed), its(relayed), them(relayed))
	}
	if len(silent) > 0 && s.Heard > 0 {
		say(Bad, "%s silent: dead, or cut off from this coordinator.", are(silent))
	}
	if len(unheard) > 0 && s.Heard > 0 {
		say(Bad, "%s not been heard here since this coordinator started.", have(unheard))
	}
	if len(unready) > 0 {
		say(Warn, "%s not ready, as far as is known here.", are(unready))
	}
	if s.Troubled > 0 {
		say(Bad, "%s not run as %s should.", edge.Count(s.Troubled, "Pod does", "Pods do"), map[bool]string{true: "it",
			false: "they"}[s.Troubled == 1])
	}
	for _, m := range s.Missing {
		say(Bad, "%s", m)
	}
	if len(all) == 0 {
		say(Good, "All is well: %s, and each reaches the cloud.", edge.Count(len(s.Nodes), "node is here", "nodes are here"))
	}
	slices.SortStableFunc(all, func(a, b Headline) int { return worse[b.Tone] - worse[a.Tone] })
	return all
}

// list names up to three of all.
func list(all []string) string {
	const few = 3
	switch n := len(all); {
	case n == 1:
		return all[0]
	case n <= few:
		return strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	default:
		return fmt.Sprintf("%s and %d more nodes", strings.Join(all[:few-1], ", "), n-few+1)
	}
}

func have(all []string) string {
	return list(all) + map[bool]string{true: " has", false: " have"}[len(all) == 1]
}

func are(all []string) string {
	return list(all) + map[bool]string{true: " is", false: " are"}[len(all) == 1]
}

func them(all []string) string { return map[bool]string{true: "it", false: "them"}[len(all) == 1] }

func its(all []string) string { return map[bool]string{true: "its", false: "their"}[len(all) == 1] }
