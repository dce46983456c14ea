package kit

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"yurtcoordinator/lab"
)

// NeedyName and NeedyPort belong to the Pod that needs one of everything that kubelet must read.
const (
	NeedyName = "needy"
	NeedyPort = 8099
)

// DeployNeedy runs a Pod on a node and waits until it answers. At a port of the node, the Pod serves what it was given: the
// content of a ConfigMap and a Secret, and the length of its token's payload.
func (node Node) DeployNeedy() (answer string) {
	data := map[string]string{"key": "from-the-config"}
	_, err := node.t.Cloud.CoreV1().ConfigMaps(Namespace).Create(node.t.Ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: NeedyName}, Data: data}, metav1.CreateOptions{})
	node.t.Must(err)
	_, err = node.t.Cloud.CoreV1().Secrets(Namespace).Create(node.t.Ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: NeedyName}, StringData: map[string]string{"key": "from-the-secret"},
	}, metav1.CreateOptions{})
	node.t.Must(err)
	mount := func(name string) corev1.VolumeMount { return corev1.VolumeMount{Name: name, MountPath: "/" + name} }
	script := fmt.Sprintf("mkdir -p /www; cat /config/key /secret/key > /www/index.html; "+
		"cut -d. -f2 /var/run/secrets/kubernetes.io/serviceaccount/token | wc -c >> /www/index.html; "+
		"exec httpd -f -p 127.0.0.1:%d -h /www", NeedyPort)
	node.RunPod(NeedyName, []string{"sh", "-c", script}, func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		c := &p.Spec.Containers[0]
		c.VolumeMounts = []corev1.VolumeMount{mount("config"), mount("secret")}
		c.Ports = []corev1.ContainerPort{{ContainerPort: NeedyPort}}
		c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
			TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt32(NeedyPort)},
		}}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: NeedyName},
			}}},
			{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: NeedyName}}},
		}
	})
	node.t.Eventually(60*time.Second, "the Pod "+NeedyName+" answers on "+node.name, func() error {
		var err error
		answer, err = node.NeedyAnswers()
		return err
	})
	if node.t.Config.Kubelet == lab.Real && !strings.HasPrefix(answer, "from-the-configfrom-the-secret") {
		node.t.Fail("the Pod %s answers %q", NeedyName, answer)
	}
	return answer
}

// NeedyAnswers returns what the needy Pod serves. On a hollow node, whose Pods serve nothing, it returns the Pod as the node's
// kubelet runs it.
func (node Node) NeedyAnswers() (string, error) {
	if node.t.Config.Kubelet == lab.Hollow {
		for pod := range node.HollowPods() {
			if IsNeedy(pod) {
				return pod, nil
			}
		}
		return "", fmt.Errorf("the kubelet of %s does not run %s", node.name, NeedyName)
	}
	return node.Fetch(fmt.Sprintf("http://127.0.0.1:%d/", NeedyPort))
}

// HollowPods returns what a hollow kubelet claims to run: "namespace/name uid". The kubelet may still be starting.
func (node Node) HollowPods() map[string]bool {
	pods := map[string]bool{}
	answer, err := node.Fetch("http://127.0.0.1:10250/runningpods/")
	if err != nil {
		return pods
	}
	var list corev1.PodList
	node.t.Must(json.Unmarshal([]byte(answer), &list))
	for _, p := range list.Items {
		pods[p.Namespace+"/"+p.Name+" "+string(p.UID)] = true
	}
	return pods
}

// IsNeedy reports whether this is the command line of the needy Pod's server.
func IsNeedy(server string) bool {
	return strings.Contains(server, fmt.Sprintf("127.0.0.1:%d", NeedyPort)) ||
		strings.HasPrefix(server, Namespace+"/"+NeedyName+" ")
}
