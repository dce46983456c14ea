package kit

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Names and sizes of the scenarios' own workload.
const (
	WebName   = "web"
	WebImage  = "registry.local/shell:1"
	Namespace = corev1.NamespaceDefault
)

// RunPod makes a Pod that stays on the node, whatever the cloud thinks of the node. Its container has the Pod's name, and runs a
// command. edit changes the Pod before it is made; nil changes nothing.
func (node Node) RunPod(name string, command []string, edit func(p *corev1.Pod)) types.UID {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: node.name, TerminationGracePeriodSeconds: ptr.To[int64](1),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: name, Image: WebImage, Command: command}},
		},
	}
	if edit != nil {
		edit(p)
	}
	p, err := node.t.Cloud.CoreV1().Pods(p.Namespace).Create(node.t.Ctx, p, metav1.CreateOptions{})
	node.t.Must(err)
	return p.UID
}

// PodRuns waits until a Pod of the scenarios' namespace runs.
func (t *T) PodRuns(name string) {
	t.Eventually(60*time.Second, "the Pod "+name+" runs", func() error {
		p, err := t.Cloud.CoreV1().Pods(Namespace).Get(t.Ctx, name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}
		return err
	})
}

// DeployWeb deploys a web server with two Pods for each node, spread evenly, behind a Service with an address of each of the
// lab's IP families. It waits until all Pods are ready endpoints.
func (t *T) DeployWeb() map[types.UID]PodAt {
	replicas := int32(2 * t.Config.Pools * t.Config.Nodes)
	labels := map[string]string{"app": WebName}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: WebName},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
						LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
					}},
					Containers: []corev1.Container{{
						Name: WebName, Image: WebImage,
						Command: []string{"sh", "-c",
							"mkdir -p /www; hostname > /www/index.html; exec httpd -f -p 80 -h /www"},
						Ports: []corev1.ContainerPort{{ContainerPort: 80}},
					}},
				},
			},
		},
	}
	_, err := t.Cloud.AppsV1().Deployments(Namespace).Create(t.Ctx, d, metav1.CreateOptions{})
	t.Must(err)
	_, err = t.Cloud.CoreV1().Services(Namespace).Create(t.Ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: WebName},
		Spec: corev1.ServiceSpec{
			Selector: labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}},
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
		},
	}, metav1.CreateOptions{})
	t.Must(err)
	start := time.Now()
	goal := fmt.Sprintf("%d Pods of Deployment %s are ready endpoints", replicas, WebName)
	t.Eventually(90*time.Second, goal, func() error {
		pods := t.Seen.LivePods()
		for _, p := range pods {
			if !p.Ready {
				return fmt.Errorf("the Pod %s is not ready", p.Name)
			}
		}
		if len(pods) != int(replicas) {
			return fmt.Errorf("%d Pods", len(pods))
		}
		return t.Seen.EndpointsKept(Addresses(pods), start.Add(time.Hour)) // only the present state counts
	})
	return t.Seen.LivePods()
}

// Scale sets the number of Pods and returns at once.
func (t *T) Scale(replicas int32) {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := t.Cloud.AppsV1().Deployments(Namespace).Patch(t.Ctx, WebName, types.MergePatchType, patch,
		metav1.PatchOptions{})
	t.Must(err)
}

// On returns the Pods on a node.
func On(pods map[types.UID]PodAt, node string) map[types.UID]PodAt {
	out := map[types.UID]PodAt{}
	for uid, p := range pods {
		if p.Node == node {
			out[uid] = p
		}
	}
	return out
}

// Addresses returns the addresses of Pods.
func Addresses(pods map[types.UID]PodAt) []string {
	var all []string
	for _, p := range pods {
		all = append(all, p.IPs...)
	}
	return all
}
