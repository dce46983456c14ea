package yurtlab

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/machine"
	"yurtcoordinator/lab/wire"
)

// tone says whether something is good or bad.
type tone int

// Tones.
const (
	plain tone = iota
	good
	warning
	bad
)

// happening is one thing that has happened in the lab.
type happening struct {
	at   time.Time
	tone tone
	text string
}

// happened returns what has happened between two looks at a lab, node by node: causes first, then what came of them.
func happened(before, now lab.Status, at time.Time) []happening {
	var all []happening
	for i := range now.Nodes {
		n := &now.Nodes[i]
		was := slices.IndexFunc(before.Nodes, func(b lab.NodeStatus) bool { return b.Name == n.Name })
		if was < 0 {
			continue
		}
		say := func(t tone, format string, args ...any) {
			all = append(all, happening{at, t, n.Name + " " + fmt.Sprintf(format, args...)})
		}
		causes(&before.Nodes[was], n, say)
		effects(&before.Nodes[was], n, say)
	}
	return all
}

// teller says something about a node.
type teller func(t tone, format string, args ...any)

// causes tells what a user did to a node, or what happened on the node itself.
func causes(was, n *lab.NodeStatus, say teller) {
	if was.Power != n.Power {
		if n.Power {
			say(good, "is powered on")
		} else {
			say(bad, "has lost its power")
		}
	}
	for _, cable := range []struct{ name, was, is string }{{"WAN", was.WAN, n.WAN}, {"LAN", was.LAN, n.LAN}} {
		switch {
		case cable.was == cable.is:
		case cable.is == wire.None.String():
			say(good, "has its %s link again", cable.name)
		default:
			say(warning, "has its %s link cut (%s)", cable.name, cable.is)
		}
	}
	if !n.Power || !was.Power {
		return // its programs went with it
	}
	for _, p := range n.Processes {
		i := slices.IndexFunc(was.Processes, func(b machine.Process) bool { return b.Name == p.Name })
		if i < 0 || was.Processes[i].State == p.State && was.Processes[i].PID == p.PID {
			continue
		}
		switch {
		case p.State == machine.Exited && p.End != "exit status 0":
			say(bad, "%s has ended: %s", p.Name, p.End)
		case p.State == machine.Paused:
			say(warning, "%s is paused", p.Name)
		case p.State == machine.Running:
			say(good, "%s runs again", p.Name)
		}
	}
}

// effects tells how hubs and the cloud react to that.
func effects(was, n *lab.NodeStatus, say teller) {
	if was.Hub != nil && n.Hub != nil {
		if was.Hub.Cloud != n.Hub.Cloud {
			say(either(n.Hub.Cloud == "up", good, warning), "reports the cloud %s", n.Hub.Cloud)
		}
		if was.Hub.RelayedBy != n.Hub.RelayedBy && n.Hub.RelayedBy != "" {
			say(good, "reaches the cloud over the link of %s", n.Hub.RelayedBy)
		}
		if was.Hub.Role != n.Hub.Role {
			switch n.Hub.Role {
			case kit.RoleLeader:
				say(good, "leads its pool")
			case kit.RoleFollower:
				say(plain, "follows")
			default:
				say(warning, "has no coordinator")
			}
		}
	}
	if was.HeartbeatBy != n.HeartbeatBy {
		switch n.HeartbeatBy {
		case "":
		case "itself":
			say(good, "sends its heartbeats itself")
		default:
			say(warning, "is delegated: %s forwards its heartbeats", n.HeartbeatBy)
		}
	}
	if was.Taint != n.Taint {
		switch n.Taint {
		case "":
			say(good, "gets new Pods again")
		case corev1.TaintEffectPreferNoSchedule:
			say(warning, "gets only new Pods that fit nowhere else")
		default:
			say(warning, "gets no new Pods")
		}
	}
	if is := ready(n.Ready); ready(was.Ready) != is && is != "-" {
		say(either(is == "Ready", good, bad), "is %s", is)
	}
}

func either[T any](is bool, yes, no T) T {
	if is {
		return yes
	}
	return no
}

// toneOf says how good a node's state is.
func toneOf(n *lab.NodeStatus) tone {
	switch {
	case dead(*n) != "" || ready(n.Ready) == "NotReady":
		return bad
	case n.WAN != wire.None.String() || n.LAN != wire.None.String() || n.Taint != "" || n.HeartbeatBy != "itself" &&
		n.HeartbeatBy != "":
		return warning
	default:
		return plain
	}
}
