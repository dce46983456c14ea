package cloudscale

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

// images is how many images a kubelet reports at most (nodeStatusMaxImages). They are most of a Node.
const images = 50

func poolName(pool int) edge.PoolName { return edge.PoolName(fmt.Sprintf("p%04d", pool)) }

func nodeName(pool, node int) edge.NodeName {
	return edge.NodeName(fmt.Sprintf("p%04d-n%02d", pool, node))
}

func addressOf(pool, node int) string { return fmt.Sprintf("10.%d.%d.%d", 32+pool/256, pool%256, node) }

// makeNode returns a Node as a kubelet registers it, of some 9 KB.
func makeNode(pool, node int, now time.Time) *corev1.Node {
	name := string(nodeName(pool, node))
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				edge.LabelNodePool: string(poolName(pool)), "kubernetes.io/hostname": name, "kubernetes.io/arch": "arm64",
				"kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64", "beta.kubernetes.io/os": "linux",
				"node-role.kubernetes.io/edge": "",
			},
			Annotations: map[string]string{
				"volumes.kubernetes.io/controller-managed-attach-detach": "true", "node.alpha.kubernetes.io/ttl": "0",
			},
		},
		Spec: corev1.NodeSpec{PodCIDR: fmt.Sprintf("100.%d.%d.0/24", 64+pool/256, pool%256), ProviderID: "edge://" + name},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: addressOf(pool, node)}, {Type: corev1.NodeHostName, Address: name},
			},
			Capacity: capacity(), Allocatable: capacity(),
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: strings.Repeat("0123456789abcdef", 2), SystemUUID: "01234567-89ab-cdef-0123-456789abcdef",
				BootID: "01234567-89ab-cdef-0123-456789abcdef", KernelVersion: "6.1.0-37-arm64",
				OSImage: "Debian GNU/Linux 12 (bookworm)", ContainerRuntimeVersion: "containerd://2.1.4",
				KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "arm64",
			},
		},
	}
	for _, kind := range []corev1.NodeConditionType{
		corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady,
	} {
		c := corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficient" + string(kind),
			Message: "kubelet has enough of what this condition is about", LastHeartbeatTime: metav1.NewTime(now),
			LastTransitionTime: metav1.NewTime(now),
		}
		if kind == corev1.NodeReady {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"
		}
		n.Status.Conditions = append(n.Status.Conditions, c)
	}
	for i := range images {
		repository := fmt.Sprintf("registry.example.org/team-%02d/app-%02d", i%7, i)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names:     []string{repository + "@sha256:" + strings.Repeat("0123456789abcdef", 4), repository + ":v1.2.3"},
			SizeBytes: int64(1+i) << 20,
		})
	}
	return n
}

func capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8131308Ki"),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("61255492Ki"),
	}
}

// makeLease returns a node's Lease as its kubelet makes it.
func makeLease(n *corev1.Node, now time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, Namespace: corev1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(n.Name), LeaseDurationSeconds: ptr.To(int32(leaseDuration.Seconds())),
			RenewTime: ptr.To(metav1.NewMicroTime(now)),
		},
	}
}

func makePool(pool int) *v1beta2.NodePool {
	return &v1beta2.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: string(poolName(pool))}, Spec: v1beta2.NodePoolSpec{Type: v1beta2.Edge},
	}
}

func makeCoordinator(pool int) *v1alpha1.YurtCoordinator {
	return &v1alpha1.YurtCoordinator{
		ObjectMeta: metav1.ObjectMeta{Name: string(poolName(pool))},
		Spec:       v1alpha1.YurtCoordinatorSpec{NodePool: string(poolName(pool))},
	}
}
