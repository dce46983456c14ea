package thief

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var forgedScenarios = []kit.Scenario{{
	Name: "forged-coordinator", Lab: kit.OnePool.AsInstalled(), Run: forgedCoordinator,
	Doc: "A node creates a mirror Pod with the labels of its pool's coordinator, and is refused. Where the policy is " +
		"missing, no hub and no operator is sent there, an Event names the Pod, and it blocks no deletion.",
}}

// forged is the name of the Pod; a newer one of a later name would have counted before.
const forged = "z-forged"

// nodeClient returns the cloud's API as a node, over its own link.
func nodeClient(t *kit.T, node string) kubernetes.Interface {
	access, err := t.Lab.CloudConfigFrom(node)
	t.Must(err)
	client := t.Client(access)
	return client
}

func forgedCoordinator(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	at := t.Pool.CoordinatorNode()
	thief := t.Pool.Follower()
	genuine := t.Pool.CoordinatorPod()
	client := nodeClient(t, thief)
	pods := client.CoreV1().Pods(edge.NamespaceSystem)
	self, err := client.CoreV1().Nodes().Get(t.Ctx, thief, metav1.GetOptions{})
	t.Must(err)
	forge := func() error {
		_, err := pods.Create(t.Ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: forged, Labels: genuine.Labels, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Node", Name: thief, UID: self.UID, Controller: ptr.To(true),
				}},
			},
			Spec: corev1.PodSpec{
				NodeName: thief, HostNetwork: true, Containers: []corev1.Container{{Name: "yurt-coordinator", Image: "x"}},
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
			},
		}, metav1.CreateOptions{})
		return err
	}

	err = forge()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "can not make a coordinator") {
		t.Fail("%s makes a Pod with the coordinator's labels: %v; want it forbidden by our policy", thief, err)
	}
	t.Say("refused: %v", err)

	t.Say("without the policy, as where it is switched off")
	before := whatIsTold(t)
	t.Must(t.Cloud.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().
		Delete(t.Ctx, "coordinator-pods.openyurt.io", metav1.DeleteOptions{}))
	// kubelet removes mirror Pods that it has no manifest for: he makes it anew each time.
	keep := func() error {
		if err := forge(); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	}
	t.Eventually(20*time.Second, thief+" makes the Pod", keep)
	t.Eventually(20*time.Second, "an Event names it", func() error {
		t.Must(keep())
		events, err := t.Cloud.CoreV1().Events(metav1.NamespaceAll).List(t.Ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "ForeignPod" && strings.Contains(e.Message, forged) {
				t.Say("%s: %s", e.InvolvedObject.Name, e.Message)
				return nil
			}
		}
		return fmt.Errorf("%d Events, none about it", len(events.Items))
	})
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
		t.Must(keep())
		for name, hub := range t.Pool.Hubs() {
			if hub.Role == kit.RolePending {
				t.Fail("the hub of %s has lost the coordinator: %+v", name, hub)
			}
		}
		t.Pause(time.Second, "the Pod stays")
	}
	if now := whatIsTold(t); now != before {
		t.Fail("what hubs and operators are told was\n%s\nand is\n%s", before, now)
	}
	yc, err := t.Cloud.YurtCoordinator("p1")
	t.Must(err)
	if yc.Status.NodeName != at {
		t.Fail("the YurtCoordinator is said to be on %s, and it is on %s", yc.Status.NodeName, at)
	}

	t.Say("deleting the YurtCoordinator, with the Pod there")
	t.Must(t.Cloud.Objects.Resource(lab.YurtCoordinators).Delete(t.Ctx, "p1", metav1.DeleteOptions{}))
	t.Eventually(time.Minute, "the YurtCoordinator is gone", func() error {
		t.Must(keep())
		if _, err := t.Cloud.YurtCoordinator("p1"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	err = t.Cloud.CoreV1().Pods(edge.NamespaceSystem).Delete(t.Ctx, forged,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if !apierrors.IsNotFound(err) {
		t.Must(err)
	}
	t.Cloud.Gone("p1", "p1")
}

// whatIsTold says what hubs and operators are told of the coordinator, and how often that was written.
func whatIsTold(t *kit.T) string {
	hint, err := t.Cloud.CoreV1().ConfigMaps(edge.NamespaceSystem).Get(t.Ctx, edge.PoolName("p1").DiscoveryConfigMap(),
		metav1.GetOptions{})
	t.Must(err)
	var versions []string
	for _, name := range []string{edge.PoolName("p1").CoordinatorSecret(), edge.PoolName("p1").KubeconfigSecret()} {
		s, err := t.Cloud.CoreV1().Secrets(edge.NamespaceSystem).Get(t.Ctx, name, metav1.GetOptions{})
		t.Must(err)
		versions = append(versions, name+"="+s.ResourceVersion)
	}
	return fmt.Sprintf("%s in version %s; %v", hint.Data[edge.DiscoveryServer], hint.ResourceVersion, versions)
}
