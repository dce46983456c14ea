package plugin

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
)

func linkDown(s corev1.ConditionStatus) corev1.NodeCondition {
	return corev1.NodeCondition{Type: edge.ConditionCloudLinkDown, Status: s, Reason: "R", Message: "M."}
}

// relayed has a node report itself over another's line.
func relayed(s Subject) Subject {
	metav1.SetMetaDataAnnotation(&s.Lease.ObjectMeta, edge.AnnotationRelayedBy, "n2")
	return s
}

// What is concluded, and of what the sentence must tell.
func TestConclude(t *testing.T) {
	const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	held := corev1.NodeCondition{Type: conditionEvictionsHeld, Status: yes}
	pool := &Pool{Name: "a", Leader: "a9"}
	for name, c := range map[string]struct {
		s     Subject
		state string
		tells string
	}{
		"neither": {
			Subject{},
			StateNotFound, "neither a Node nor a heartbeat",
		},
		"no Lease": {
			Subject{Node: ptr.To(aNode("n", "a", yes))},
			StateUnknown, "no Lease",
		},
		"well": {
			subject(aNode("n", "a", yes, linkDown(no)), 0, false),
			StateConnected, "are fine",
		},
		"well, but not Ready": {
			subject(aNode("n", "a", no, linkDown(no)), 0, false),
			StateConnected, "kubelet says",
		},
		"delegated": {
			subject(aNode("n", "a", yes, linkDown(yes)), 0, true),
			StateDelegated, "another node of its pool",
		},
		"delegated, by whom": {
			inPool(subject(aNode("n", "a", yes, linkDown(yes)), 0, true), pool),
			StateDelegated, "a9, the leader",
		},
		"delegated, and the last report says that it leads itself": {
			inPool(subject(aNode("a9", "a", yes, linkDown(yes)), 0, true), pool),
			StateDelegated, "down; it led its pool until then, and the node that leads now forwards its heartbeats",
		},
		"relayed": {
			relayed(subject(aNode("n", "a", yes, linkDown(yes)), 0, true)),
			StateDelegated, "over the link of n2",
		},
		"relayed, seen at the coordinator": {
			func() Subject {
				s := relayed(subject(aNode("n", "a", yes), 0, false))
				s.Within = true
				return s
			}(),
			StateDelegated, "over the link of n2",
		},
		"dead": {
			subject(aNode("n", "a", unknown, linkDown(unknown)), time.Hour, false),
			StateSilent, "nobody in its pool",
		},
		"dead while delegated": {
			subject(aNode("n", "a", unknown, linkDown(unknown)), time.Hour, true),
			StateSilent, "still reported for it",
		},
		"the whole pool": {
			subject(aNode("n", "a", unknown, linkDown(unknown), held), time.Hour, false),
			StateSilent, "evictions are held",
		},
		"no controller, fresh": {
			subject(aNode("n", "", yes), 30*time.Second, false),
			StateConnected, "itself",
		},
		"no controller, marked": {
			subject(aNode("n", "", yes), 30*time.Second, true),
			StateDelegated, "link to the cloud is down",
		},
		"no controller, old": {
			subject(aNode("n", "", yes), 41*time.Second, false),
			StateSilent, "41s ago",
		},
		"a clock that is ahead": {
			subject(aNode("n", "", yes), -5*time.Minute, false),
			StateConnected, "itself",
		},

		"at a coordinator: well": {
			here(subject(aNode("n", "a", yes), 0, false)),
			StateConnected, "reaches the cloud itself",
		},
		"at a coordinator: delegated": {
			here(subject(aNode("n", "a", yes), 0, true)),
			StateDelegated, "its own link",
		},
		"at a coordinator: silent": {
			here(subject(aNode("n", "a", yes), 2*time.Minute, true)),
			StateSilent, "2m ago",
		},
	} {
		state, because := conclude(c.s, noon)
		if state != c.state || !strings.Contains(because, c.tells) {
			t.Errorf("%s: %s: %s\nwant %s, telling of %q", name, state, because, c.state, c.tells)
		}
	}
}

func subject(n corev1.Node, ago time.Duration, mark bool) Subject {
	return Subject{Name: n.Name, Node: &n, Lease: ptr.To(aLease(n.Name, ago, mark))}
}

func inPool(s Subject, p *Pool) Subject {
	s.Pool = p
	return s
}

func here(s Subject) Subject {
	s.Within = true
	return s
}

func TestExplain(t *testing.T) {
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-ago)) }
	node := aNode("a2", "a", corev1.ConditionTrue, linkDown(corev1.ConditionTrue),
		corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
		corev1.NodeCondition{
			Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue, Reason: "Low", LastTransitionTime: at(time.Minute),
		})
	node.Spec.Taints = []corev1.Taint{
		{Key: edge.TaintUnschedulable, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: ptr.To(at(time.Second))},
	}
	s := subject(node, 4*time.Second, true)
	s.Lease.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubelet", Time: ptr.To(at(time.Hour))}, {Manager: "yurthub", Time: ptr.To(at(4 * time.Second))},
	}
	s.Pool = &Pool{Name: "a", Leader: "a1", LeaderSaid: ptr.To(noon.Add(-9 * time.Second)), Coordinator: "Ready",
		CoordinatorNode: "a3", Outside: []string{"a2"}}
	s.Events = []corev1.Event{
		{Reason: "CloudLinkDown", Message: "down", EventTime: metav1.NewMicroTime(noon.Add(-time.Minute)),
			Series: &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(noon.Add(-30 * time.Second))}},
		{Reason: "NodeReady", Message: "ready", LastTimestamp: at(time.Hour), Count: 1},
	}
	e := Explain(s, noon)
	var b strings.Builder
	if err := (&printer{out: &b, now: noon}).explanation(e); err != nil {
		t.Fatal(err)
	}
	want := `Node a2 of pool a: Delegated
Its own link to the cloud is down; a1, the leader of its pool, forwards its heartbeats. Its Pods are kept, new ones go elsewhere.

EVIDENCE                                          SINCE    SAYS
Last heartbeat                                    4s ago   forwarded by another node of its pool, written by yurthub
Leader of pool a                                  9s ago   a1
Coordinator                                       -        Ready on a3
Outside the pool                                  -        no leader hears it at a coordinator of the pool
Condition CloudLinkDown=True                      -        R: M.
Condition MemoryPressure=True                     60s ago  Low
Condition Ready=True                              60m ago  KubeletReady
Taint node.openyurt.io/unschedulable:NoSchedule   -        no new Pods while its heartbeats are delegated
Taint node.kubernetes.io/unreachable:NoExecute    1s ago   Pods are evicted after their tolerationSeconds

HISTORY         SINCE     SAYS
NodeReady       60m ago   ready
CloudLinkDown   30s ago   down (3 times)
`
	if squeeze(b.String()) != squeeze(want) {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}

// TestHistoryIsInOrder, whatever has no time.
func TestHistoryIsInOrder(t *testing.T) {
	var events []corev1.Event
	for _, hour := range []int{3, 0, 1, 0, 2} {
		e := corev1.Event{Reason: strconv.Itoa(hour)}
		if hour > 0 {
			e.LastTimestamp = metav1.NewTime(noon.Add(time.Duration(hour) * time.Hour))
		}
		events = append(events, e)
	}
	var order string
	for _, item := range history(events) {
		order += item.What
	}
	if want := "00123"; order != want {
		t.Errorf("the order is %s, want %s", order, want)
	}
}

// TestATaintSaysWhatItKeepsOff: a node that is relayed is not closed.
func TestATaintSaysWhatItKeepsOff(t *testing.T) {
	says := func(e corev1.TaintEffect) string {
		return taintSays(corev1.Taint{Key: edge.TaintUnschedulable, Effect: e})
	}
	if got := says(corev1.TaintEffectPreferNoSchedule); !strings.Contains(got, "nowhere else") {
		t.Errorf("relayed: %q", got)
	}
	if got := says(corev1.TaintEffectNoSchedule); !strings.HasPrefix(got, "no new Pods") {
		t.Errorf("delegated: %q", got)
	}
}

// squeeze makes columns as narrow as they can be: how wide they are is the tab writer's business.
func squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}
