package thief

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

// The reasons of the Events that tell of streams.
const (
	podOpened  = "PodOpened"
	podRefused = "PodOpeningRefused"
)

// openingsTold has ana, a debugger, enter a Pod while the pool is cut off, and the operator try it. After healing the cloud knows
// both, by kubectl get events. Another leader tells what comes then, and nothing again. No node changes what was told.
func openingsTold(t *kit.T, debugs string) {
	t.Pool.Settled(30 * time.Second)
	t.Say("cutting all WAN links of the pool, silently")
	t.Must(t.Lab.Cut(t.Ctx, lab.WAN, "pool/p1", wire.Drop))
	t.Eventually(30*time.Second, "the hubs call the cloud down, and nobody leads", func() error {
		for name, h := range t.Pool.Hubs() {
			if h.Cloud != "down" || h.Coordinator != "up" || h.Role == "leader" {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
	before := time.Now().Add(-2 * time.Second)
	enter := func(command ...string) {
		args := []string{"exec", "privileged", "-n", workspace, "--kubeconfig=" + debugs, "--"}
		if out, err := kubectl(t, onSite, "", append(args, command...)...); err != nil {
			t.Fail("exec: %v: %s", err, out)
		}
	}
	enter("sleep", "0")
	if out, err := kubectl(t, onSite, "", "attach", "agent", "-n", workspace); err == nil {
		t.Fail("the operator attaches to a Pod that can act on its node: %s", out)
	}
	after := time.Now().Add(2 * time.Second)
	user := edge.PoolName("p1").OperatorUser()
	isExec := func(e *corev1.Event) bool {
		at := e.FirstTimestamp.Time
		return e.Reason == podOpened && strings.Contains(e.Message, "ana ("+edge.GroupDebuggers+") opened exec of sleep in Pod "+
			workspace+"/privileged") && !at.Before(before.Truncate(time.Second)) && !at.After(after)
	}
	isRefusal := func(e *corev1.Event) bool {
		at := e.LastTimestamp.Time
		return e.Reason == podRefused && strings.Contains(e.Message, user+" (") &&
			strings.Contains(e.Message, "was refused attach in Pod "+workspace+"/agent") &&
			strings.Contains(e.Message, "can act on its node (host namespaces)") && !at.Before(before.Truncate(time.Second))
	}
	for name, e := range openings(t) {
		if isExec(e) || isRefusal(e) {
			t.Fail("the cloud knows already: %s: %s", name, e.Message)
		}
	}

	t.Must(t.Lab.Heal(t.Ctx, lab.WAN, "pool/p1"))
	took := t.Eventually(90*time.Second, "the cloud knows who opened what", func() error {
		if !slices.ContainsFunc(slices.Collect(maps.Values(openings(t))), isExec) {
			return errors.New("no Event of the exec")
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(openings(t))), isRefusal) {
			return errors.New("no Event of the refusal")
		}
		return nil
	})
	t.Figure("openings_told_after_s", took.Seconds())
	out := kubectlMust(t, "", "get", "events", "--field-selector=reason="+podOpened)
	line := regexp.MustCompile(`yurtcoordinator/p1 +ana \(openyurt:coordinators:debug\) opened exec of sleep in Pod ` +
		`shop/privileged.* at \d{4}-`)
	if !line.MatchString(out) {
		t.Fail("kubectl get events:\n%s", out)
	}
	if out := kubectlMust(t, "", "describe", "yurtcoordinator", "p1"); !strings.Contains(out, podRefused) {
		t.Fail("kubectl describe yurtcoordinator:\n%s", out)
	}

	leader := t.Pool.Settled(60 * time.Second)
	t.Say("another leader than %s", leader)
	told := openings(t)
	t.Must(t.Lab.Cut(t.Ctx, lab.WAN, leader, wire.Drop))
	t.Eventually(30*time.Second, "another leads", func() error {
		now, err := t.Pool.Leader(t.Pool.Hubs())
		if err == nil && now == leader {
			err = fmt.Errorf("%s still leads", now)
		}
		return err
	})
	enter("sh", "-c", "exit 0 # hidden")
	t.Eventually(60*time.Second, "the cloud knows from another leader", func() error {
		for _, e := range openings(t) {
			if strings.Contains(e.Message, "exec of sh in") {
				if e.ReportingInstance == leader {
					return fmt.Errorf("it was %s", leader)
				}
				return nil
			}
		}
		return errors.New("no Event of it")
	})
	execs, refusals := 0, 0
	for name, e := range openings(t) {
		if was := told[name]; was != nil && was.ResourceVersion != e.ResourceVersion {
			t.Fail("told again: %s: %s", name, e.Message)
		}
		if strings.Contains(e.Message, "hidden") {
			t.Fail("an argument: %s", e.Message)
		}
		if isExec(e) {
			execs++
		}
		if isRefusal(e) {
			refusals++
		}
	}
	if execs != 1 || refusals != 1 {
		t.Fail("%d Events of one exec, %d of one refusal", execs, refusals)
	}
	t.Must(t.Lab.Heal(t.Ctx, lab.WAN, leader))
	t.Pool.Settled(60 * time.Second)

	t.Say("root on %s changes what it has told, with the node's own certificate", leader)
	access, err := t.Lab.CloudConfigFrom(leader)
	t.Must(err)
	client, err := kubernetes.NewForConfig(access)
	t.Must(err)
	for name := range told {
		_, err := client.CoreV1().Events(metav1.NamespaceDefault).Patch(t.Ctx, name, types.MergePatchType,
			[]byte(`{"message":"nothing happened"}`), metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), "only by the node that tells it, and not changed") {
			t.Fail("a node changes an Event of an opening: %v", err)
		}
	}
}

// openings are the cloud's Events about the pool's YurtCoordinator that hubs wrote, by name.
func openings(t *kit.T) map[string]*corev1.Event {
	list, err := t.Cloud.CoreV1().Events(metav1.NamespaceDefault).List(t.Ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=YurtCoordinator,involvedObject.name=p1", LabelSelector: edge.LabelNodePool + "=p1",
	})
	t.Must(err)
	all := map[string]*corev1.Event{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all
}
