package kit

import (
	"fmt"
	"net"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/lab"
)

// CutOff cuts the node's WAN link for three times the time in which Kubernetes evicts, and heals it. It expects that nothing
// happens to the node's Pods and endpoints, and that no new Pod goes there. pods are all Pods of DeployWeb. CutOff calls during
// while the link is cut; during may be nil.
func (node Node) CutOff(pods map[types.UID]PodAt, during func()) {
	t := node.t
	onNode := On(pods, node.name)
	if len(onNode) == 0 {
		t.Fail("no Pod of the Deployment is on %s", node.name)
	}
	node.WebAnswers()

	t.Say("cutting the WAN link of %s, silently", node.name)
	cut := time.Now()
	t.Cut(node.name)
	node.Delegated(cut)
	t.Say("scaling the Deployment up while %s is cut off", node.name)
	t.Scale(int32(len(pods) + 3))
	if during != nil {
		during()
	}
	t.Hold(time.Until(cut.Add(3*(t.Config.Timing.Grace+t.Config.Timing.Toleration))),
		"three times the time in which Kubernetes evicts")

	now := time.Now()
	t.NeverNotReady(cut, node.name)
	t.Must(t.Seen.Untouched(onNode, cut))
	t.Must(t.Seen.EndpointsKept(Addresses(onNode), cut))
	if t.Seen.Node(node.name).Taint == "" {
		t.Fail("%s lost its taint", node.name)
	}
	after := t.Seen.LivePods()
	if len(after) != len(pods)+3 {
		t.Fail("%d Pods instead of %d", len(after), len(pods)+3)
	}
	t.Must(noneNew(onNode, On(after, node.name)))
	node.WebAnswers()
	t.Say("%s was Ready all the time, its Pods and endpoints are the same, and no new Pod went there", node.name)
	t.Figure("largest_lease_age_s", t.Seen.LargestAge(node.name, cut, now).Seconds())

	t.Say("healing the link")
	healed := time.Now()
	t.Heal(node.name)
	node.Direct(healed)
	t.Hold(t.Config.Timing.Grace, "a grace period after healing")
	t.NeverNotReady(cut, node.name)
	t.Must(t.Seen.Untouched(onNode, cut))
	t.Must(t.Seen.EndpointsKept(Addresses(onNode), cut))
}

func noneNew(before, after map[types.UID]PodAt) error {
	for uid, p := range after {
		if _, ok := before[uid]; !ok {
			return fmt.Errorf("the Pod %s was placed on %s", p.Name, p.Node)
		}
	}
	return nil
}

// WebAnswers expects the web Service to answer in the node's own network, at each of the Service's addresses. An answer shows
// that kube-proxy, which knows the cloud only through the hub, has programmed the node. On a node with hollow Pods it checks
// nothing.
func (node Node) WebAnswers() {
	t := node.t
	if t.Config.Kubelet != lab.Real || t.Config.NoProxy {
		return
	}
	service, err := t.Cloud.CoreV1().Services(Namespace).Get(t.Ctx, WebName, metav1.GetOptions{})
	t.Must(err)
	for _, address := range service.Spec.ClusterIPs {
		url := "http://" + net.JoinHostPort(address, "80") + "/"
		t.Eventually(20*time.Second, "Service "+WebName+" answers on "+node.name+" at "+address, func() error {
			body, err := node.Fetch(url)
			if err == nil && !strings.HasPrefix(body, WebName+"-") {
				err = fmt.Errorf("it answers %q", body)
			}
			return err
		})
	}
}
