package kit

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/lab"
)

// PowerCycle restarts a whole node and returns how long it took until its Pod answered again.
func (node Node) PowerCycle(want string) time.Duration {
	began := time.Now()
	node.t.Must(node.t.Lab.Node(node.t.Ctx, lab.Restart, node.name, lab.All))
	node.t.Eventually(120*time.Second, "the Pod "+NeedyName+" answers again", func() error {
		answer, err := node.NeedyAnswers()
		if err == nil && answer != want {
			err = fmt.Errorf("it answers %q, before %q", answer, want)
		}
		return err
	})
	return time.Since(began)
}

// Servers returns the web servers of the node, by their processes. A hollow node has no such processes; there it returns the
// Pods that the node's kubelet runs.
func (node Node) Servers() map[string]bool {
	if node.t.Config.Kubelet == lab.Hollow {
		return node.HollowPods()
	}
	return node.Processes("httpd -f")
}

// ServersBack waits until as many web servers run on the node as before its loss of power, and kube-proxy has rules for the web
// Service in each of the lab's IP families.
func (node Node) ServersBack(before map[string]bool) {
	t := node.t
	t.Eventually(60*time.Second, "all Pods of the node run again", func() error {
		if now := node.Servers(); len(now) != len(before) {
			return fmt.Errorf("%d web servers run, want %d", len(now), len(before))
		}
		return nil
	})
	for _, save := range t.Config.SaveRules() {
		t.Eventually(60*time.Second, "kube-proxy has rules for the Service, says "+save, func() error {
			saved, err := t.Lab.Output(t.Ctx, node.name, save, "-t", "nat")
			if err == nil && !strings.Contains(saved, "\""+Namespace+"/"+WebName+" ->") {
				err = fmt.Errorf("no rule leads to an endpoint of %s", WebName)
			}
			return err
		})
	}
}

// HealingKeeps heals the node's links: the needy Pod continues in one of the running containers, and the cloud learns of it.
func (node Node) HealingKeeps(servers map[string]bool) {
	t := node.t
	t.Say("healing")
	t.Must(t.Lab.Heal(t.Ctx, lab.LAN, node.name))
	t.Heal(node.name)
	t.Pool.Settled(60 * time.Second)
	t.Eventually(60*time.Second, "the cloud shows the Pod "+NeedyName+" ready on "+node.name, func() error {
		p, err := t.Cloud.CoreV1().Pods(Namespace).Get(t.Ctx, NeedyName, metav1.GetOptions{})
		if err == nil && !PodReady(p) {
			err = fmt.Errorf("its conditions: %v", p.Status.Conditions)
		}
		return err
	})
	if _, err := node.NeedyAnswers(); err != nil {
		t.Fail("the Pod %s, which nothing evicts: %w", NeedyName, err)
	}
	kept := false
	for now := range node.Servers() {
		kept = kept || IsNeedy(now) && servers[now]
	}
	if !kept {
		t.Fail("healing has restarted the Pod %s", NeedyName)
	}
}
