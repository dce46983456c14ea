package upgrades

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

func TestRead(t *testing.T) {
	made := metav1.NewTime(noon)
	pod := func(phase corev1.PodPhase, state corev1.ContainerState) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labelVersion: newer}, CreationTimestamp: made},
			Status:     corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{State: state}}},
		}
	}
	ended := func(message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}
	}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "m"}}
	}
	none := corev1.ContainerState{}
	going := pod(corev1.PodSucceeded, none)
	going.DeletionTimestamp = &made
	long := strings.Repeat("x", 2*maxMessage)
	for name, tt := range map[string]struct {
		pull, deliver *corev1.Pod
		work          work
		why           string
	}{
		"it has to wait":         {pull: pod(corev1.PodPending, waits("ContainerCreating")), work: pulling},
		"there is no such image": {pull: pod(corev1.PodPending, waits("ErrImagePull")), work: pulling, why: "ErrImagePull: m"},
		"it was pulled":          {pull: pod(corev1.PodSucceeded, none), work: pulled},
		"it could not be run":    {pull: pod(corev1.PodFailed, ended("")), work: lost},
		"it is going":            {pull: going, work: lost},
		"it is delivered":        {pull: pod(corev1.PodSucceeded, none), deliver: pod(corev1.PodRunning, none), work: busy},
		"it is upgraded":         {deliver: pod(corev1.PodSucceeded, ended(`{"outcome":"Upgraded"}`)), work: done},
		"it went back": {
			deliver: pod(corev1.PodFailed, ended(`{"outcome":"WentBack","why":"w"}`)), work: wentBack, why: "w",
		},
		"it was refused": {
			deliver: pod(corev1.PodFailed, ended(`{"outcome":"Refused","why":"w"}`)), work: refused, why: "w",
		},
		"nobody on the node acts": {
			deliver: pod(corev1.PodFailed, ended(`{"why":"has not answered"}`)), work: refused, why: "has not answered",
		},
		"it was ended":           {deliver: pod(corev1.PodFailed, ended("")), work: lost},
		"the node has forgotten": {deliver: pod(corev1.PodFailed, none), work: lost},
		"a node that says a lot": {
			deliver: pod(corev1.PodFailed, ended(`{"outcome":"WentBack","why":"`+long+`"}`)),
			work:    wentBack, why: long[:maxMessage] + "…",
		},
		"the one that was pulled": {pull: going, deliver: pod(corev1.PodRunning, none), work: busy},
		"an upgrader that can't go": {
			deliver: pod(corev1.PodPending, waits("CreateContainerError")), work: busy, why: "CreateContainerError: m",
		},
	} {
		if u := read(tt.pull, tt.deliver); u != (upgrader{work: tt.work, of: newer, since: noon, why: tt.why}) {
			t.Errorf("%s: %+v", name, u)
		}
	}
	if u := read(nil, nil); u != (upgrader{}) {
		t.Errorf("no Pods: %+v", u)
	}
}

// TestPods: what an upgrader may have of its node; the policy of the chart is tried elsewhere.
func TestPods(t *testing.T) {
	c := Config{Program: Program{Image: "r/yurthub", PullPolicy: corev1.PullNever, PullSecrets: []string{"s"}}}
	pull, deliver := c.podFor(prefixPull, "p1", step{"n1", newer}), c.podFor(prefixDeliver, "p1", step{"n1", newer})
	for _, p := range []*corev1.Pod{pull, deliver} {
		s := p.Spec
		if objects.PinnedTo(p) != "n1" || s.NodeSelector[edge.LabelNodePool] != "p1" ||
			s.Containers[0].Image != "r/yurthub:v0.3.0" || s.ImagePullSecrets[0].Name != "s" ||
			s.Containers[0].ImagePullPolicy != corev1.PullNever || *s.AutomountServiceAccountToken ||
			*s.SecurityContext.RunAsUser != edge.UpgradeUser || s.HostNetwork || p.Labels[labelVersion] != newer {
			t.Errorf("%+v", p)
		}
	}
	if pull.Name != "yurthub-pull-n1" || len(pull.Spec.Volumes) > 0 {
		t.Errorf("the one that pulls: %+v", pull)
	}
	if deliver.Name != "yurthub-upgrade-n1" || len(deliver.Spec.Volumes) != 2 ||
		!slices.Equal(deliver.Spec.Containers[0].Args, []string{"upgrade", "deliver", "--id=$(POD_UID)", "--version=v0.3.0"}) {
		t.Errorf("the one that delivers: %+v", deliver)
	}
	long := edge.NodeName(strings.Repeat("n", 250))
	if name := podName(prefixDeliver, long); len(name) > 253 || name == podName(prefixDeliver, long+"x") {
		t.Errorf("the name for a long one is %s", name)
	}
	if deadline < 10*time.Minute {
		t.Error("a Pod ends before it gives up by itself, and says nothing")
	}
}
