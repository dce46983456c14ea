package appset

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"yurtcoordinator/internal/edge"
)

func TestWhereNewPodsRun(t *testing.T) {
	node := func(name string, changes ...func(*corev1.Node)) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}}
		for _, change := range changes {
			change(&n)
		}
		return n
	}
	label := func(key, value string) func(*corev1.Node) { return func(n *corev1.Node) { n.Labels[key] = value } }
	taint := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	silent := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }
	port := corev1.Container{Name: "c", Ports: []corev1.ContainerPort{{HostPort: 80}}}
	pod := func(app, node string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{port}},
		}
	}
	prefers := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 10, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: "ups", Operator: corev1.NodeSelectorOpExists,
			}}},
		}},
	}}
	for name, c := range map[string]struct {
		nodes []corev1.Node
		spec  corev1.PodSpec
		other string // where another workload's Pod has the port
		want  string
	}{
		"another first":              {nodes: []corev1.Node{node("a"), node("b"), node("c")}, want: "b c a"},
		"no other":                   {nodes: []corev1.Node{node("a")}, want: "a"},
		"where the port is free":     {nodes: []corev1.Node{node("a"), node("b"), node("c")}, other: "b", want: "c a"},
		"not one that is silent":     {nodes: []corev1.Node{node("a"), node("b", silent), node("c")}, want: "c a"},
		"not one whose link is down": {nodes: []corev1.Node{node("a"), node("b", taint(edge.TaintUnschedulable))}, want: "a"},
		"not one that is cordoned":   {nodes: []corev1.Node{node("b", taint(corev1.TaintNodeUnschedulable))}, want: ""},
		"where it is preferred": {
			nodes: []corev1.Node{node("a"), node("b"), node("c", label("ups", "yes"))},
			spec:  corev1.PodSpec{Affinity: prefers}, want: "c b a",
		},
		"only where it may": {
			nodes: []corev1.Node{node("a"), node("b"), node("c", label("ups", "yes"))},
			spec:  corev1.PodSpec{NodeSelector: map[string]string{"ups": "yes"}}, want: "c",
		},
		"not where it is not tolerated": {nodes: []corev1.Node{node("a"), node("b", taint("gpu")), node("c")}, want: "c a"},
		"where it is tolerated": {
			nodes: []corev1.Node{node("a", taint("edge")), node("b", taint("edge"))},
			spec:  corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "edge", Operator: corev1.TolerationOpExists}}},
			want:  "b a",
		},
	} {
		c.spec.Containers = []corev1.Container{port}
		pods := []corev1.Pod{pod("web", "a")}
		if c.other != "" {
			pods = append(pods, pod("other", c.other))
		}
		is := labels.SelectorFromSet(labels.Set{"app": "web"})
		if got := strings.Join(placesFor(&c.spec, c.nodes, pods, is), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestPulled(t *testing.T) {
	pod := func(phase corev1.PodPhase, reason string, state corev1.ContainerState) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{
			Phase: phase, Reason: reason, ContainerStatuses: []corev1.ContainerStatus{{State: state}},
		}}
	}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: strings.Repeat("m", 1000)}}
	}
	ends := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: 128}}
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want Image
		why  string
	}{
		"there is none":           {nil, NotPulled, ""},
		"it has no container yet": {&corev1.Pod{}, Pulling, ""},
		"its container is made":   {pod(corev1.PodPending, "", waits("ContainerCreating")), Pulling, ""},
		"it may not be pulled": {pod(corev1.PodPending, "", waits("ErrImageNeverPull")), Pulling,
			"ErrImageNeverPull: mmm"},
		"there is no such image":            {pod(corev1.PodPending, "", waits("ErrImagePull")), Pulling, "ErrImagePull: mmm"},
		"its command can't be started":      {pod(corev1.PodFailed, "", ends("StartError")), Pulled, ""},
		"another runtime says so by itself": {pod(corev1.PodPending, "", waits("CreateContainerError")), Pulled, ""},
		"an image with such a command":      {pod(corev1.PodSucceeded, "", ends("Completed")), Pulled, ""},
		"it took too long": {pod(corev1.PodFailed, "DeadlineExceeded", waits("ErrImagePull")), NotPullable,
			"DeadlineExceeded"},
		"kubelet does not know it any more": {pod(corev1.PodFailed, "DeadlineExceeded", ends("ContainerStatusUnknown")),
			NotPullable, "has ended"},
		"kubelet has not taken it at all": {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods"}},
			NotPullable, "OutOfpods"},
	} {
		got, why := pulled(c.pod)
		if got != c.want || !strings.Contains(why, c.why) || c.why == "" && why != "" || len(why) > 600 {
			t.Errorf("%s: %s, %q", name, got, why)
		}
	}
}
