package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// Finding is one thing found about a node, in the words of `yurthub check`.
type Finding struct {
	// Level is how bad it is.
	Level string `json:"level"`
	// What names the thing looked at, Why gives the reason for the level, Do says what to do about it; empty means nothing.
	What string `json:"what"`
	Why  string `json:"why"`
	Do   string `json:"do,omitempty"`
}

// Levels of findings.
const (
	LevelOK   = "ok"
	LevelWarn = "warn"
	LevelFail = "fail"
)

// failed reports whether any finding is a failure.
func failed(all []Finding) bool {
	return slices.ContainsFunc(all, func(f Finding) bool { return f.Level == LevelFail })
}

// onTheNode is how to look further than the cloud sees.
const onTheNode = "on the node: yurthub check"

// Check says what is known of a node's hub, its links and its pool, in the order in which a person would look.
func Check(s Subject, now time.Time) []Finding {
	var c checker
	if s.Node == nil && s.Lease == nil {
		c.add(LevelFail, "node", "there is neither a Node nor a heartbeat of that name here",
			"look for its name: kubectl get nodes")
		return c.found
	}
	c.heartbeat(s, now)
	if s.Node != nil {
		c.kubelet(s)
		c.settings(s.Node)
		c.pressures(s.Node)
	} else if !s.Within {
		c.add(LevelFail, "node", "it has a heartbeat, and no Node",
			"check whether somebody deleted the Node: its kubelet creates it again when it starts")
	}
	c.pool(s)
	c.grace(s)
	for _, policy := range s.Evictors {
		c.add(LevelWarn, "descheduler", "ConfigMap "+policy+" has Pods evicted from nodes whose heartbeats are delegated",
			"add "+edge.TaintUnschedulable+" to excludedTaints of RemovePodsViolatingNodeTaints: docs/beside-others.md")
	}
	return c.found
}

type checker struct{ found []Finding }

func (c *checker) add(level, what, why, do string) {
	c.found = append(c.found, Finding{level, what, why, do})
}

func (c *checker) heartbeat(s Subject, now time.Time) {
	state, because := conclude(s, now)
	because = strings.TrimSuffix(because, ".")
	because = strings.ToLower(because[:1]) + because[1:]
	switch state {
	case StateConnected:
		c.add(LevelOK, "heartbeat", because, "")
	case StateDelegated:
		c.add(LevelWarn, "heartbeat", because, "check the node's link to the cloud; "+onTheNode)
	default:
		c.add(LevelFail, "heartbeat", because, "check whether the machine has power and reaches its LAN; "+onTheNode)
	}
}

func (c *checker) kubelet(s Subject) {
	ready := conditionOf(s.Node, corev1.NodeReady)
	switch {
	case ready == nil:
		c.add(LevelFail, "kubelet", "it has never reported", "on the node: systemctl status kubelet")
	case ready.Status == corev1.ConditionTrue:
		c.add(LevelOK, "kubelet", sentence(ready.Reason, ready.Message), "")
	case ready.Reason == edge.ReasonCloudLinkDown:
		c.add(LevelWarn, "kubelet", sentence(ready.Reason, ready.Message), "")
	default:
		c.add(LevelFail, "kubelet", sentence(ready.Reason, ready.Message), "on the node: systemctl status kubelet")
	}
}

// settings is what the hub says of its pool's settings.
func (c *checker) settings(node *corev1.Node) {
	const what = "settings of the pool"
	text := node.Annotations[edge.AnnotationSettings]
	if text == "" {
		return
	}
	r, err := edge.ParseSettingsReport(text)
	switch {
	case err != nil:
		c.add(LevelWarn, what, "the hub's report about them can't be read: "+err.Error(), onTheNode)
	case r.State == edge.SettingsRefused:
		c.add(LevelFail, what, fmt.Sprintf("the hub cannot use generation %d, and runs with %d: %s", r.Told, r.Runs, r.Why),
			"correct the PoolSettings, or the node's own settings")
	case r.State == edge.SettingsNeedRestart:
		c.add(LevelWarn, what, fmt.Sprintf("of generation %d, %s take effect when the hub restarts", r.Told, r.Why),
			"on the node: systemctl restart yurthub; kubelet and Pods keep running meanwhile")
	default:
		c.add(LevelOK, what, fmt.Sprintf("the hub runs with generation %d", r.Runs), "")
	}
}

// grace is what coordinator-controller has seen of kube-controller-manager's times, within the hour that Events last.
func (c *checker) grace(s Subject) {
	for i := range s.Events {
		if e := &s.Events[i]; e.Reason == edge.ReasonGracePeriodTooShort {
			c.add(LevelWarn, "grace period", strings.TrimSuffix(e.Message, "."),
				"helm upgrade with controller.silenceAfter below --node-monitor-grace-period: docs/pool-cut.md")
			return
		}
	}
}

// pressures are what else kubelet and others complain of.
func (c *checker) pressures(node *corev1.Node) {
	for i := range node.Status.Conditions {
		cond := &node.Status.Conditions[i]
		switch cond.Type {
		case corev1.NodeReady, edge.ConditionCloudLinkDown, edge.ConditionPodsKept, conditionEvictionsHeld:
			continue // said above
		}
		if cond.Status == corev1.ConditionTrue {
			c.add(LevelWarn, string(cond.Type), cmp.Or(sentence(cond.Reason, cond.Message), "it is so"),
				"kubectl describe node "+node.Name)
		}
	}
}

func (c *checker) pool(s Subject) {
	if s.Pool == nil {
		c.add(LevelWarn, "pool", "the node is in no pool: nobody reports for it while its link is down",
			"kubectl label node "+s.Name+" "+edge.LabelNodePool+"=POOL")
		return
	}
	p := s.Pool
	switch {
	case p.Coordinator == CoordinatorNone:
		c.add(LevelOK, "coordinator", "pool "+p.Name+" has none, and needs none to run: nobody reports for the node "+
			"while its link is down", "")
		return
	case p.Coordinator != CoordinatorReady:
		c.add(LevelFail, "coordinator", "that of pool "+p.Name+" does not serve: "+p.Coordinator,
			"kubectl yurt status --problems "+p.Name)
		return
	}
	serves := "that of pool " + p.Name + " serves"
	if p.CoordinatorNode != "" {
		serves += " on " + p.CoordinatorNode
	}
	c.add(LevelOK, "coordinator", serves, "")
	if slices.Contains(p.Outside, s.Name) {
		c.add(LevelFail, "coordinator: this node", "no leader hears the node there, so nobody forwards its heartbeats",
			"look at the site's LAN; "+onTheNode)
	} else if p.Leader != "" && !s.Within {
		c.add(LevelOK, "coordinator: this node", "a leader hears the node there", "")
	}
	if p.Leader == "" {
		c.add(LevelFail, "leader", "no hub of the pool is known to lead", "kubectl yurt status --problems "+p.Name)
	} else {
		c.add(LevelOK, "leader", p.Leader+" leads the pool", "")
	}
	way := p.Kubelets[edge.NodeName(s.Name)]
	switch text := kubeletSays[way]; way {
	case edge.KubeletPinned, edge.KubeletSigned:
		c.add(LevelOK, "kubelet at the coordinator", text, "")
	case "":
	case edge.KubeletOverdue:
		c.add(LevelWarn, "kubelet at the coordinator", text, "kubectl get csr, and approve this node's pending request")
	default:
		c.add(LevelFail, "kubelet at the coordinator", text,
			"kubectl describe yurtcoordinator says what to do (KubeletsVerifiable)")
	}
}
