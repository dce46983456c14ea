package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var etcdAwayScenarios = []kit.Scenario{{
	Name: "etcd-away", Lab: kit.Beside(kit.RealKubelets(kit.OnePool), 1), Run: etcdAway,
	Doc: "The cloud's etcd is stopped for three minutes, and kube-apiserver runs on. The coordinator takes all heartbeats, " +
		"the token of a Pod is recognised, and reads come from what the hubs have. With etcd back, no node is NotReady for " +
		"longer than one without a hub, and everything is as before.",
}}

// readWithin is how long kubelet waits for an answer about its Node.
const readWithin = 10 * time.Second

func etcdAway(t *kit.T) {
	node := t.Pool.Follower(t.Pool.SettledAway())
	t.Node(node).DeployNeedy()
	pod := needyClient(t, node)
	reads := func(want string) func() error { return func() error { return readsConfig(t, pod, want) } }
	t.Eventually(30*time.Second, "the Pod's program reads its ConfigMap", reads("from-the-config"))
	t.Hold(5*time.Second, "the hub has what is read")
	delegated := map[string]float64{}
	for _, name := range t.Pool.Nodes() {
		delegated[name] = delegatedHeartbeats(t, name)
	}

	t.Say("etcd is stopped")
	began := time.Now()
	t.Must(t.Lab.Cloud(t.Ctx, lab.Kill, lab.Etcd))
	t.Eventually(time.Minute, "the coordinator takes the heartbeats of all nodes", func() error {
		for name, before := range delegated {
			if now := delegatedHeartbeats(t, name); now < before+2 {
				return fmt.Errorf("%v of %s, before %v", now, name, before)
			}
		}
		return nil
	})
	t.Eventually(time.Minute, "the hubs call the cloud failing", func() error {
		for name, h := range t.Pool.Hubs() {
			if h.Cloud != "failing" {
				return fmt.Errorf("the hub of %s calls it %s", name, h.Cloud)
			}
		}
		return nil
	})
	t.Figure("away_to_failing_s", time.Since(began).Seconds())
	var wrong []error
	for time.Since(began) < sickFor {
		asked := time.Now()
		readsWhileFailing(t, node, 1)
		if took := time.Since(asked); took > readWithin {
			wrong = append(wrong, fmt.Errorf("reads at the hub of %s took %v", node, took))
		}
		t.Must(reads("from-the-config")())
		strangerRefused(t, node)
		t.Hold(20*time.Second, "etcd stays away")
	}
	for name, h := range t.Pool.Hubs() {
		t.Say("the hub of %s calls the cloud %s", name, h.Cloud)
		if h.Cloud != "failing" || h.Coordinator != "up" {
			wrong = append(wrong, fmt.Errorf("the hub of %s calls the cloud %s and the coordinator %s",
				name, h.Cloud, h.Coordinator))
		}
	}

	t.Say("etcd is back")
	forwarded := t.Node(node).Metric("yurthub_forwarded_heartbeats_total")
	started := time.Now()
	t.Must(t.Lab.Cloud(t.Ctx, lab.Start, lab.Etcd))
	t.Eventually(5*time.Minute, "kube-apiserver has found it", func() error {
		ctx, cancel := context.WithTimeout(t.Ctx, 3*time.Second)
		defer cancel()
		_, err := t.Cloud.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		return err
	})
	back := time.Now()
	t.Figure("etcd_to_api_s", back.Sub(started).Seconds())
	first := map[string]time.Time{}
	t.Eventually(time.Minute, "a heartbeat of each node is in the cloud", func() error {
		for _, name := range t.Both() {
			at := t.Seen.Renewals(name, back)
			if len(at) == 0 {
				return fmt.Errorf("none of %s", name)
			}
			first[name] = at[0]
		}
		return nil
	})
	t.Pool.Settled(time.Minute)
	t.Eventually(time.Minute, "all nodes are Ready, and report themselves", func() error {
		for _, name := range t.Pool.Nodes() {
			if l, n := t.Seen.Lease(name), t.Seen.Node(name); l.Delegated || n.Taint != "" || n.LinkDown == corev1.ConditionTrue {
				return fmt.Errorf("%s: %+v, %+v", name, l, n)
			}
		}
		return t.Pool.NodesReady()
	})
	t.Figure("back_to_as_before_s", time.Since(back).Seconds())
	t.Figure("forwarded", t.Node(node).Metric("yurthub_forwarded_heartbeats_total")-forwarded)
	var hubs, plain time.Duration
	for _, name := range t.Pool.Nodes() {
		hubs = max(hubs, notReady(t, name, began))
		t.Figure("back_to_heartbeat_s", first[name].Sub(back).Seconds())
	}
	for _, name := range t.Plain() {
		plain = max(plain, notReady(t, name, began))
		t.Figure("plain_back_to_heartbeat_s", first[name].Sub(back).Seconds())
	}
	t.Figure("not_ready_s", hubs.Seconds())
	t.Figure("plain_not_ready_s", plain.Seconds())
	if hubs > plain+t.Config.Timing.Monitor || plain == 0 && hubs > 0 {
		t.Fail("a node was NotReady for %v, one without a hub for %v", hubs, plain)
	}

	config, err := t.Cloud.CoreV1().ConfigMaps(kit.Namespace).Get(t.Ctx, kit.NeedyName, metav1.GetOptions{})
	t.Must(err)
	config.Data["key"] = "another"
	_, err = t.Cloud.CoreV1().ConfigMaps(kit.Namespace).Update(t.Ctx, config, metav1.UpdateOptions{})
	t.Must(err)
	t.Eventually(currentWithin, "the Pod's program reads the change", reads("another"))
	bindLate(t, node)
	t.Figure("late_pod_runs_s", lateRuns(t, node, 30*time.Second).Seconds())
	t.Must(errors.Join(wrong...)) // what was wrong meanwhile is told after all the rest
}

// needyClient returns the client of the needy Pod's program, with the token that the Pod has. It may read ConfigMaps.
func needyClient(t *kit.T, node string) kubernetes.Interface {
	t.Grant("needy-reader", []rbacv1.PolicyRule{kit.Reads("", "configmaps")}, kit.Account("default"))
	token, err := t.Lab.Output(t.Ctx, node, "sh", "-c", fmt.Sprintf(
		"nsenter -t $(pgrep -f 'httpd -f -p 127.0.0.1:%d' | head -1) "+
			"-m cat /var/run/secrets/kubernetes.io/serviceaccount/token", kit.NeedyPort))
	t.Must(err)
	return programWith(t, node, strings.TrimSpace(token))
}

// programWith returns the client of a program of a node, with a token, whose reads the hub keeps.
func programWith(t *kit.T, node, token string) kubernetes.Interface {
	access, err := t.Lab.HubConfigAs(node, token)
	t.Must(err)
	access.UserAgent, access.Timeout = "coredns/e2e", 20*time.Second
	return t.Client(access)
}

func readsConfig(t *kit.T, client kubernetes.Interface, want string) error {
	list, err := client.CoreV1().ConfigMaps(kit.Namespace).List(t.Ctx, metav1.ListOptions{
		FieldSelector: metav1.ObjectNameField + "=" + kit.NeedyName,
	})
	if err == nil && (len(list.Items) != 1 || list.Items[0].Data["key"] != want) {
		err = fmt.Errorf("it reads %+v", list.Items)
	}
	return err
}

// strangerRefused expects that the hub answers nothing to a token that nobody gave out.
func strangerRefused(t *kit.T, node string) {
	err := programWith(t, node, "not.a.token").CoreV1().RESTClient().Get().Namespace(kit.Namespace).Resource("configmaps").
		MaxRetries(0).Do(t.Ctx).Error()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code < http.StatusUnauthorized {
		t.Fail("a token that nobody gave out: %v", err)
	}
}

// delegatedHeartbeats returns how many heartbeats of a node only the coordinator has taken.
func delegatedHeartbeats(t *kit.T, node string) float64 {
	return t.Node(node).Metric("yurthub_heartbeats_total", `result="delegated"`)
}

// notReady returns for how long in all a node was not Ready since then.
func notReady(t *kit.T, node string, since time.Time) (sum time.Duration) {
	ready := func(want bool) func(kit.NodeAt) bool {
		return func(n kit.NodeAt) bool { return (n.Ready == corev1.ConditionTrue) == want }
	}
	for {
		at, was := t.Seen.FirstNode(node, since, ready(false))
		if !was {
			return sum
		}
		if since, was = t.Seen.FirstNode(node, at, ready(true)); !was {
			return sum + time.Since(at)
		}
		sum += since.Sub(at)
	}
}
