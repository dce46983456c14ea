package offline

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/wire"
)

var monthScenarios = []kit.Scenario{{
	Name: "offline-month", Lab: kit.RealKubelets(kit.OnePool), Run: offlineMonth,
	Doc: "A hub's disk ages a month online and another month cut off; then the power fails. All Pods of the node run " +
		"again, including those whose ConfigMaps and Secrets are immutable or are read for environment variables only. " +
		"What nobody needs is forgotten.",
}}

const (
	monthName = "month"
	monthPort = 8098
	// monthStep and monthSteps make 30 days. The hub notes what is in use in between, as in a real month.
	monthStep, monthSteps = 5 * 24 * time.Hour, 6
	// monthHold is longer than a hub takes to see its file (5 s), note what is in use (30 s), and remove what has grown old (60
	// s).
	monthHold = 70 * time.Second
	// letGoWithin is longer than a kubelet and then a hub follow what nobody reads (5 min each).
	letGoWithin = 14 * time.Minute
)

// Selections that no Pod needs: one is read before the month that makes it old, the other after it.
var (
	notNeeded   = kit.AllNodePools.Path + "?labelSelector=read%3Dlong-ago"
	readLastDay = kit.AllNodePools.Path + "?labelSelector=read%3Dlately"
)

func offlineMonth(t *kit.T) {
	node := t.Pool.Follower(t.Pool.SettledAway())
	t.DeployWeb()
	want := t.Node(node).DeployNeedy()
	deployMonth(t, node)
	_, err := t.Node(node).List(notNeeded)
	t.Must(err)
	letGo(t, node, monthName)

	t.Say("a month passes for the disk of %s, in which the cloud can be asked", node)
	for day := monthStep; day <= monthSteps*monthStep; day += monthStep {
		diskClock(t, node, day)
	}
	_, err = t.Node(node).List(readLastDay)
	t.Must(err)
	t.Hold(3*time.Second, "the hub's disk is written once a second")

	cutOff(t, node)
	if _, err := t.Node(node).List(notNeeded); err == nil || !strings.Contains(err.Error(), "503") {
		t.Fail("what nobody has read for a month is still there (%v): no month has passed", err)
	}
	t.Say("another month passes, in which it cannot")
	diskClock(t, node, 2*monthSteps*monthStep)
	servers := t.Node(node).Servers()
	t.Say("power-cycling %s", node)
	began := time.Now()
	t.Figure("restart_offline_s", t.Node(node).PowerCycle(want).Seconds())
	t.Eventually(120*time.Second, "all Pods of the node run again, with what they had", func() error {
		if now := t.Node(node).Servers(); len(now) != len(servers) {
			return fmt.Errorf("%d web servers run, want %d", len(now), len(servers))
		}
		return monthAnswers(t, node)
	})
	t.Figure("power_on_to_all_run_s", time.Since(began).Seconds())
	if _, err := t.Node(node).List(readLastDay); err != nil {
		t.Fail("what was read on the last day before the cut has been forgotten while cut off: %w", err)
	}

	again := t.Node(node).Processes(fmt.Sprintf("httpd -f -p 127.0.0.1:%d", monthPort))
	t.Say("healing")
	t.Must(t.Lab.Heal(t.Ctx, lab.LAN, node))
	t.Heal(node)
	t.Pool.Settled(60 * time.Second)
	t.Must(monthAnswers(t, node))
	if now := t.Node(node).Processes(fmt.Sprintf("httpd -f -p 127.0.0.1:%d", monthPort)); !kit.SameKeys(now, again) {
		t.Fail("healing has restarted the Pod %s: %v, before %v", monthName, now, again)
	}
}

// diskClock makes the clock of a hub's disk run ahead by so much.
func diskClock(t *kit.T, node string, ahead time.Duration) {
	t.Must(t.Lab.HubSettings(node, fmt.Sprintf("disk-cache-clock-offset: %v\n", ahead)))
	t.Hold(monthHold, fmt.Sprintf("on the disk of %s it is %.0f days later", node, ahead.Hours()/24))
}

// cutOff cuts a node off from cloud and pool, and waits until its hub knows.
func cutOff(t *kit.T, node string) {
	t.Say("cutting %s off from cloud and pool", node)
	t.Cut(node)
	t.Must(t.Lab.Cut(t.Ctx, lab.LAN, node, wire.Drop))
	t.Eventually(30*time.Second, "its hub calls both down", func() error {
		if h := t.Pool.Hubs()[node]; h.Cloud != "down" || h.Coordinator != "down" {
			return fmt.Errorf("it says: cloud %q, coordinator %q", h.Cloud, h.Coordinator)
		}
		return nil
	})
}

// letGo waits until hubs no longer follow any ConfigMap or Secret whose name begins so. kubelet has stopped before that.
func letGo(t *kit.T, node, name string) {
	took := t.Eventually(letGoWithin, "kubelet and hub have let go of what is read for env alone", func() error {
		h, ok := t.Pool.Hubs()[node]
		if !ok || len(h.Kept) == 0 {
			return fmt.Errorf("the hub of %s says that it follows nothing", node)
		}
		for _, kept := range h.Kept {
			if strings.Contains(kept.Selection, "metadata.name="+name) {
				return fmt.Errorf("the hub of %s follows %s", node, kept.Selection)
			}
		}
		return nil
	})
	t.Figure("let_go_s", took.Seconds())
}

// monthFixtures are the names of the month's Pod's ConfigMaps and Secrets, one of each. The value says whether they are
// immutable.
var monthFixtures = map[string]bool{monthName + "-env": false, monthName + "-fixed-env": true, monthName + "-fixed-file": true}

// deployMonth runs a Pod on a node that serves the ConfigMaps and Secrets that it was given. The mutable ones it gets as
// environment variables, the immutable ones as environment variables and as files.
func deployMonth(t *kit.T, node string) {
	for name, immutable := range monthFixtures {
		meta := metav1.ObjectMeta{Name: name}
		_, err := t.Cloud.CoreV1().ConfigMaps(kit.Namespace).Create(t.Ctx, &corev1.ConfigMap{
			ObjectMeta: meta, Data: map[string]string{"key": name + "-config"}, Immutable: &immutable,
		}, metav1.CreateOptions{})
		t.Must(err)
		_, err = t.Cloud.CoreV1().Secrets(kit.Namespace).Create(t.Ctx, &corev1.Secret{
			ObjectMeta: meta, StringData: map[string]string{"key": name + "-secret"}, Immutable: &immutable,
		}, metav1.CreateOptions{})
		t.Must(err)
	}
	file := corev1.LocalObjectReference{Name: monthName + "-fixed-file"}
	script := fmt.Sprintf("mkdir -p /www; echo $A $B $C $D $(cat /config/key) $(cat /secret/key) > /www/index.html; "+
		"exec httpd -f -p 127.0.0.1:%d -h /www", monthPort)
	t.Node(node).RunPod(monthName, []string{"sh", "-c", script}, func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		p.Spec.Containers[0].Env = []corev1.EnvVar{
			fromConfig("A", monthName+"-env"), fromSecret("B", monthName+"-env"),
			fromConfig("C", monthName+"-fixed-env"), fromSecret("D", monthName+"-fixed-env"),
		}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
			{Name: "config", MountPath: "/config"}, {Name: "secret", MountPath: "/secret"},
		}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: file},
			}},
			{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: file.Name}}},
		}
	})
	t.Eventually(60*time.Second, "the Pod "+monthName+" answers on "+node, func() error { return monthAnswers(t, node) })
}

// monthAnswers expects the month's Pod to serve everything that it must be given.
func monthAnswers(t *kit.T, node string) error {
	const want = "month-env-config month-env-secret month-fixed-env-config month-fixed-env-secret " +
		"month-fixed-file-config month-fixed-file-secret"
	answer, err := t.Node(node).Fetch(fmt.Sprintf("http://127.0.0.1:%d/", monthPort))
	if err == nil && strings.TrimSpace(answer) != want {
		err = fmt.Errorf("the Pod %s answers %q, want %q", monthName, answer, want)
	}
	return err
}

// fromConfig and fromSecret return variables with the key of a ConfigMap or Secret.
func fromConfig(variable, name string) corev1.EnvVar {
	return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "key",
	}}}
}

func fromSecret(variable, name string) corev1.EnvVar {
	return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "key",
	}}}
}
