package autonomy

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// fullPod is a Pod of the size that they have in a cluster: about 5 KB on the wire.
func fullPod(b *testing.B) []byte {
	pod := aPod(both(300, 300), nil)
	pod.Labels = map[string]string{"app": "web", "pod-template-hash": "5d4f8c7b9"}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kube-controller-manager", Operation: "Update", FieldsV1: metav1.NewFieldsV1(strings.Repeat("f", 1500))},
		{Manager: "kubelet", Operation: "Update", FieldsV1: metav1.NewFieldsV1(strings.Repeat("g", 1000))},
	}
	for i := range 2 {
		c := corev1.Container{Name: fmt.Sprint("c", i), Image: "registry.example.com/team/program:v1.2.3"}
		for j := range 12 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", j), Value: "some value of a variable"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image + "@sha256:" + strings.Repeat("a", 64),
			ContainerID: "containerd://" + strings.Repeat("b", 64),
		})
	}
	for _, condition := range []corev1.PodConditionType{"PodScheduled", "Initialized", "ContainersReady", "Ready"} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: "True"})
	}
	wire, err := pod.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	return wire
}

// BenchmarkPodElsewhere is what a change of a Pod costs whose node is ordinary: it is decoded and dropped.
func BenchmarkPodElsewhere(b *testing.B) {
	wire := fullPod(b)
	w := newWorld(b)
	q := worldQueue{w: w, of: "pod"}
	b.SetBytes(int64(len(wire)))
	b.ReportAllocs()
	for b.Loop() {
		var pod corev1.Pod
		if err := pod.Unmarshal(wire); err != nil {
			b.Fatal(err)
		}
		w.policy.sawPod(&pod, q)
	}
}

// BenchmarkRegistry is what an autonomous node costs in memory.
func BenchmarkRegistry(b *testing.B) {
	const nodes = 10000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r, m := newRegistry(), newMetrics()
		for i := range nodes {
			name := edge.NodeName(fmt.Sprintf("pool-%d-node-%d", i/100, i))
			r.put(name, Terms{Rule: Kept, For: 3600})
			m.stands(name, "pool", Kept)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/nodes, "bytes/node")
		runtime.KeepAlive(r)
		runtime.KeepAlive(m)
	}
}
