package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/balancer"
)

var failingScenarios = []Scenario{{
	Name: "failing-cloud", Lab: realKubelets(pool), run: failingCloud,
	Doc: "for one node of three a balancer answers 503 for 5 minutes: a Pod that was bound to it before starts, one that " +
		"crashes starts again, its heartbeats are delegated, and reads come from what its hub has; then all is as before",
}}

const (
	failsFor     = 5 * time.Minute
	balancerPort = 7443
	lateName     = "late"
)

func failingCloud(t *T) {
	leader := t.settledAway()
	site := t.coordinator(lab.Operator)
	node := t.follower(leader)
	uid := t.deployCrasher(node)
	t.shownAsInTheCloud(site, t.nodeNames(), 30*time.Second)
	t.must(t.lab.Node(t.ctx, lab.Kill, node, lab.KubeletC))
	t.bindLate(node)
	t.hold(5*time.Second, "the hub has heard of the Pod, of which kubelet has not")

	t.say("a balancer without servers comes in the way of %s", node)
	began := time.Now()
	end := t.balance(node)
	t.eventually(20*time.Second, "its hub calls the cloud failing, and nobody else's does", func() error {
		for name, h := range t.hubs() {
			if want := map[bool]string{true: "failing", false: "up"}[name == node]; h.Cloud != want || h.Coordinator != "up" {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
	t.figure("balancer_to_failing_s", time.Since(began).Seconds())
	t.must(t.lab.Node(t.ctx, lab.Start, node, lab.KubeletC))
	t.delegated(node, began)
	t.figure("start_to_late_pod_runs_s", t.lateRuns(node, 60*time.Second).Seconds())
	t.crash(node)
	t.restartsShown(site, 1, 60*time.Second)
	t.readsWhileFailing(node)
	t.hold(time.Until(began.Add(failsFor)), "5 minutes in all")
	t.readsWhileFailing(node)
	if h := t.hubs()[node]; h.Cloud != "failing" {
		t.fail("the hub of %s says after 5 minutes: %+v", node, h)
	}
	t.must(t.seen.neverNotReady(node, began))
	t.figure("largest_lease_age_s", t.seen.largestAge(node, began, time.Now()).Seconds())

	t.say("the balancer goes")
	healed := time.Now()
	refused := end()
	t.figure("requests_refused", float64(refused))
	t.direct(node, healed)
	t.settled(20 * time.Second)
	t.figure("healed_to_roles_right_s", time.Since(healed).Seconds())
	t.eventually(60*time.Second, "the cloud shows the restart, and the late Pod", func() error {
		if p, restarts, err := t.crasher(t.cloud); err != nil || p.UID != uid || restarts != 1 {
			return fmt.Errorf("%d restarts, %w", restarts, errors.Join(err))
		}
		return t.late(t.cloud)
	})
	t.must(t.seen.neverNotReady(node, began))
}

// bindLate makes a Pod of a node that needs nothing which its hub does not know.
func (t *T) bindLate(node string) {
	_, err := t.cloud.CoreV1().Pods(namespace).Create(t.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: lateName},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true, TerminationGracePeriodSeconds: ptr.To[int64](1),
			AutomountServiceAccountToken: ptr.To(false),
			Containers:                   []corev1.Container{{Name: "c", Image: webImage, Command: []string{"sleep", "7654322"}}},
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	t.must(err)
}

// lateRuns waits until the late Pod's container runs.
func (t *T) lateRuns(node string, within time.Duration) time.Duration {
	return t.eventually(within, "the Pod that was bound before runs", func() error {
		_, err := t.lab.Output(t.ctx, node, "pgrep", "-f", "^sleep 7654322")
		return err
	})
}

func (t *T) late(server kubernetes.Interface) error {
	p, err := server.CoreV1().Pods(namespace).Get(t.ctx, lateName, metav1.GetOptions{})
	if err == nil && p.Status.Phase != corev1.PodRunning {
		err = fmt.Errorf("it is %s", p.Status.Phase)
	}
	return err
}

// readsWhileFailing reads through a hub as kubelet does: what it has is answered, after one failed try at most.
func (t *T) readsWhileFailing(node string) {
	access, err := t.lab.HubConfig(node)
	t.must(err)
	access.UserAgent = "kubelet/e2e"
	kubelet, err := kubernetes.NewForConfig(access)
	t.must(err)
	began := time.Now()
	_, err = kubelet.CoreV1().Nodes().Get(t.ctx, node, metav1.GetOptions{})
	t.must(err)
	t.figure("get_s", time.Since(began).Seconds())
	began = time.Now()
	list, err := kubelet.CoreV1().Pods("").List(t.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	t.must(err)
	t.figure("list_s", time.Since(began).Seconds())
	if len(list.Items) < 2 {
		t.fail("the hub lists %d Pods of %s", len(list.Items), node)
	}
}

// balance puts a balancer without servers in the way from a node to the cloud. The function that it returns takes it away,
// and returns how many requests it refused.
func (t *T) balance(node string) (end func() int) {
	self, err := os.Executable()
	t.must(err)
	cmd, err := t.lab.Inside(t.ctx, node, self, balancer.Command)
	t.must(err)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	t.must(err)
	out, err := cmd.StdoutPipe()
	t.must(err)
	t.must(cmd.Start())
	o := balancer.Order{Listen: fmt.Sprintf("127.0.0.1:%d", balancerPort)}
	o.Cert, o.Key = t.lab.CloudKeys()
	err = json.NewEncoder(in).Encode(o)
	if _, ready := io.ReadFull(out, make([]byte, 1)); err != nil || ready != nil {
		t.fail("the balancer: %w", errors.Join(err, ready, in.Close(), cmd.Wait(), errors.New(complaints.String())))
	}
	access, err := t.lab.CloudConfig()
	t.must(err)
	cloud, err := url.Parse(access.Host)
	t.must(err)
	toCloud := []string{"OUTPUT", "-p", "tcp", "-d", cloud.Hostname(), "--dport", cloud.Port()}
	rules := [][]string{
		slices.Concat(toCloud, []string{"-t", "nat", "-j", "REDIRECT", "--to-ports", strconv.Itoa(balancerPort)}),
		// What still goes to the cloud itself is of a connection from before.
		slices.Concat(toCloud, []string{"-j", "REJECT", "--reject-with", "tcp-reset"}),
	}
	for _, rule := range rules {
		t.iptables(node, append([]string{"-I"}, rule...)...)
	}
	return func() int {
		for _, rule := range rules {
			t.iptables(node, append([]string{"-D"}, rule...)...)
		}
		var refused int
		t.must(errors.Join(in.Close(), json.NewDecoder(out).Decode(&refused), cmd.Wait()))
		return refused
	}
}

// iptables changes a rule of a node's network.
func (t *T) iptables(node string, rule ...string) {
	cmd, err := t.lab.Inside(t.ctx, node, append([]string{"iptables", "--wait"}, rule...)...)
	t.must(err)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.fail("iptables %s: %w: %s", strings.Join(rule, " "), err, text)
	}
}
