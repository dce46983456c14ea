package offline

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

const (
	fickleName    = "fickle"
	fickleCommand = "sleep 86432"
	// idleAtHub is longer than a hub follows what nobody reads, if its disk has it (5 min and a half).
	idleAtHub = 6 * time.Minute
)

// keptInMemory expects that a hub with a full disk has what a container needs to start again while the node is cut off. It has
// that even if no program has read it for long.
func keptInMemory(t *kit.T, node string) {
	deployFickle(t, node)
	_, err := t.Cloud.CoreV1().Secrets(kit.Namespace).Patch(t.Ctx, fickleName, types.MergePatchType,
		[]byte(`{"stringData":{"key":"second"}}`), metav1.PatchOptions{})
	t.Must(err)
	crashFickle(t, node, "second")
	t.Eventually(letGoWithin, "kubelet has let go of the Secret, which its hub has in memory alone", func() error {
		if kept, ok := keptFickle(t, node); !ok || kept.Requests > 0 {
			return fmt.Errorf("the hub follows it: %v, for %d requests", ok, kept.Requests)
		}
		return nil
	})
	t.Hold(idleAtHub, "nobody reads it")
	if h := t.Pool.Hubs()[node]; h.Disk == nil || h.Disk.Error == "" {
		t.Fail("the disk of %s is not full any longer: %+v", node, h.Disk)
	}
	cutOff(t, node)
	crashFickle(t, node, "second")
	t.Must(t.Lab.Heal(t.Ctx, lab.LAN, node))
	t.Heal(node)
	t.Pool.Settled(60 * time.Second)
}

// deployFickle runs a Pod on a node that gets a Secret only by env.
func deployFickle(t *kit.T, node string) {
	_, err := t.Cloud.CoreV1().Secrets(kit.Namespace).Create(t.Ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: fickleName}, StringData: map[string]string{"key": "first"},
	}, metav1.CreateOptions{})
	t.Must(err)
	t.Node(node).RunPod(fickleName, strings.Fields(fickleCommand), func(p *corev1.Pod) {
		p.Spec.AutomountServiceAccountToken = ptr.To(false)
		p.Spec.Containers[0].Env = []corev1.EnvVar{fromSecret("GIVEN_SECRET", fickleName)}
	})
	fickleHas(t, node, "first")
}

// crashFickle kills the Pod's container and waits until the next one got a value.
func crashFickle(t *kit.T, node, value string) {
	before := t.Node(node).Processes(fickleCommand)
	_, err := t.Lab.Output(t.Ctx, node, "pkill", "-9", "-x", "-f", fickleCommand)
	t.Must(err)
	t.Eventually(10*time.Second, "the container of the Pod "+fickleName+" is killed", func() error {
		for now := range t.Node(node).Processes(fickleCommand) {
			if before[now] {
				return fmt.Errorf("there is %s", now)
			}
		}
		return nil
	})
	t.Figure("crash_to_running_s", fickleHas(t, node, value).Seconds())
}

// fickleHas waits until the Pod's container runs, and expects that it got a value.
func fickleHas(t *kit.T, node, value string) time.Duration {
	var has string
	took := t.Eventually(90*time.Second, "the container of the Pod "+fickleName+" runs", func() error {
		running := environs(t, node, fickleCommand)
		if len(running) != 1 {
			return fmt.Errorf("%d of them", len(running))
		}
		has = running[0]["GIVEN_SECRET"]
		return nil
	})
	if has != value {
		t.Fail("the container has been given the Secret as %q, want %q", has, value)
	}
	return took
}

// keptFickle returns what the hub says about the Secret that it follows for kubelet.
func keptFickle(t *kit.T, node string) (lab.KeptStatus, bool) {
	for _, kept := range t.Pool.Hubs()[node].Kept {
		if strings.Contains(kept.Selection, "metadata.name="+fickleName) {
			return kept, true
		}
	}
	return lab.KeptStatus{}, false
}

// environs returns the environments of a node's processes with a command line.
func environs(t *kit.T, node, command string) []map[string]string {
	const script = `for p in $(pgrep -x -f "$1"); do tr '\0' '\n' < /proc/$p/environ; echo; done`
	out, err := t.Lab.Output(t.Ctx, node, "sh", "-c", script, "sh", command)
	t.Must(err)
	var all []map[string]string
	for block := range strings.SplitSeq(strings.TrimSpace(out), "\n\n") {
		environ := map[string]string{}
		for line := range strings.Lines(block) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				environ[name] = value
			}
		}
		if len(environ) > 0 {
			all = append(all, environ)
		}
	}
	return all
}
