package ops

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/balancer"
	"yurtcoordinator/lab/e2e/kit"
)

var failingScenarios = []kit.Scenario{{
	Name: "failing-cloud", Lab: kit.RealKubelets(kit.OnePool), Run: failingCloud,
	Doc: "For one node of three a load balancer answers 503 for five minutes. A Pod that was bound before starts, one " +
		"that crashes restarts, heartbeats are delegated and reads come from what the hub has. Then everything is as " +
		"before.",
}}

const (
	failsFor     = 5 * time.Minute
	balancerPort = 7443
	lateName     = "late"
)

func failingCloud(t *kit.T) {
	leader := t.Pool.SettledAway()
	site := t.Pool.Coordinator(lab.Operator)
	node := t.Pool.Follower(leader)
	uid := deployCrasher(t, node)
	shownAsInTheCloud(t, site, t.Pool.Nodes(), 30*time.Second)
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.KubeletC))
	bindLate(t, node)
	t.Hold(5*time.Second, "the hub has heard of the Pod, of which kubelet has not")

	t.Say("a balancer without servers comes in the way of %s", node)
	began := time.Now()
	cloud := cloudURL(t)
	end := balance(t, node, cloud.Hostname(), cloud.Port())
	t.Eventually(20*time.Second, "its hub calls the cloud failing, and nobody else's does", func() error {
		for name, h := range t.Pool.Hubs() {
			if want := map[bool]string{true: "failing", false: "up"}[name == node]; h.Cloud != want || h.Coordinator != "up" {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
	t.Figure("balancer_to_failing_s", time.Since(began).Seconds())
	t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.KubeletC))
	t.Node(node).Delegated(began)
	t.Figure("start_to_late_pod_runs_s", lateRuns(t, node, 60*time.Second).Seconds())
	crash(t, node)
	restartsShown(t, site, 1, 60*time.Second)
	readsWhileFailing(t, node, 2)
	t.Hold(time.Until(began.Add(failsFor)), "5 minutes in all")
	readsWhileFailing(t, node, 2)
	if h := t.Pool.Hubs()[node]; h.Cloud != "failing" {
		t.Fail("the hub of %s says after 5 minutes: %+v", node, h)
	}
	t.NeverNotReady(began, node)
	t.Figure("largest_lease_age_s", t.Seen.LargestAge(node, began, time.Now()).Seconds())

	t.Say("the balancer goes")
	healed := time.Now()
	refused := end()
	t.Figure("requests_refused", float64(refused))
	t.Node(node).Direct(healed)
	t.Pool.Settled(20 * time.Second)
	t.Figure("healed_to_roles_right_s", time.Since(healed).Seconds())
	t.Eventually(60*time.Second, "the cloud shows the restart, and the late Pod", func() error {
		if p, restarts, err := crasher(t, t.Cloud); err != nil || p.UID != uid || restarts != 1 {
			return fmt.Errorf("%d restarts, %w", restarts, errors.Join(err))
		}
		return late(t, t.Cloud)
	})
	t.NeverNotReady(began, node)
}

// bindLate binds a Pod to a node. The Pod needs nothing that the node's hub does not know.
func bindLate(t *kit.T, node string) {
	t.Node(node).RunPod(lateName, []string{"sleep", "7654322"}, func(p *corev1.Pod) {
		p.Spec.HostNetwork, p.Spec.AutomountServiceAccountToken = true, ptr.To(false)
	})
}

// lateRuns waits until the late Pod's container runs.
func lateRuns(t *kit.T, node string, within time.Duration) time.Duration {
	return t.Eventually(within, "the Pod that was bound before runs", func() error {
		_, err := t.Lab.Output(t.Ctx, node, "pgrep", "-f", "^sleep 7654322")
		return err
	})
}

func late(t *kit.T, server kubernetes.Interface) error {
	p, err := server.CoreV1().Pods(kit.Namespace).Get(t.Ctx, lateName, metav1.GetOptions{})
	if err == nil && p.Status.Phase != corev1.PodRunning {
		err = fmt.Errorf("it is %s", p.Status.Phase)
	}
	return err
}

// readsWhileFailing reads through a hub as kubelet does, and records the times. The hub answers with what it has, after at most
// one failed try at the cloud. It has so many Pods of the node at least.
func readsWhileFailing(t *kit.T, node string, pods int) {
	access, err := t.Lab.HubConfig(node)
	t.Must(err)
	access.UserAgent = "kubelet/e2e"
	kubelet := t.Client(access)
	began := time.Now()
	_, err = kubelet.CoreV1().Nodes().Get(t.Ctx, node, metav1.GetOptions{})
	t.Must(err)
	t.Figure("get_s", time.Since(began).Seconds())
	began = time.Now()
	list, err := kubelet.CoreV1().Pods("").List(t.Ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	t.Must(err)
	t.Figure("list_s", time.Since(began).Seconds())
	if len(list.Items) < pods {
		t.Fail("the hub lists %d Pods of %s", len(list.Items), node)
	}
}

// balance puts a load balancer without servers between a machine and a server. The returned function removes it, and returns how
// many requests it refused.
func balance(t *kit.T, machine, host, port string) (end func() int) {
	o := balancer.Order{Listen: fmt.Sprintf("127.0.0.1:%d", balancerPort)}
	o.Cert, o.Key = t.Lab.CloudKeys()
	gone := kit.Play[balancer.Report](t, machine, balancer.Command, o)
	straight := divert(t, machine, []string{"OUTPUT", "-p", "tcp", "-d", host, "--dport", port})
	return func() int {
		straight()
		return int(gone().Refused)
	}
}

func cloudURL(t *kit.T) *url.URL {
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	cloud, err := url.Parse(access.Host)
	t.Must(err)
	return cloud
}

// divert redirects packets on a machine to the balancer there. match is a chain and its conditions. Packets of connections that
// were open before are answered with a reset. The returned function ends that.
func divert(t *kit.T, machine string, match []string) (end func()) {
	chain, reset := match[0], slices.Clone(match)
	if chain == "PREROUTING" {
		reset[0] = "INPUT"
	}
	rules := [][]string{
		slices.Concat(match, []string{"-t", "nat", "-j", "REDIRECT", "--to-ports", strconv.Itoa(balancerPort)}),
		// What still goes to the cloud itself belongs to an earlier connection.
		slices.Concat(reset, []string{"-j", "REJECT", "--reject-with", "tcp-reset"}),
	}
	for _, rule := range rules {
		t.Node(machine).IPTables(append([]string{"-I"}, rule...)...)
	}
	return func() {
		for _, rule := range rules {
			t.Node(machine).IPTables(append([]string{"-D"}, rule...)...)
		}
	}
}
