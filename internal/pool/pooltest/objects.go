package pooltest

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// CloudMeta returns metadata as a cloud has it, with all that a server adds to what a client has sent.
func CloudMeta(name string, revision int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: "shop", UID: types.UID("uid-of-" + name), ResourceVersion: fmt.Sprint(revision), Generation: 3,
		CreationTimestamp: metav1.Unix(1_600_000_000, 0),
		Labels:            map[string]string{"app": "web", discoveryv1.LabelServiceName: "web"},
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: "uid-of-web"}},
		Finalizers:        []string{"example.org/finalizer"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			Time: &metav1.Time{Time: time.Unix(1_600_000_001, 0)}, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:app":{}}}}`),
		}},
	}
}

// CloudSlice returns an EndpointSlice with one endpoint for each address.
func CloudSlice(name string, revision int, addresses ...string) *discoveryv1.EndpointSlice {
	ready, port, portName, protocol := true, int32(8080), "http", corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: CloudMeta(name, revision), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
	}
	for i, address := range addresses {
		nodeName := fmt.Sprintf("n%d", i)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address}, NodeName: &nodeName,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: name + "-" + nodeName},
		})
	}
	return s
}

// CloudService returns a Service with all its defaults.
func CloudService(revision int) *corev1.Service {
	policy, family := corev1.IPFamilyPolicySingleStack, corev1.IPv4Protocol
	internal := corev1.ServiceInternalTrafficPolicyCluster
	return &corev1.Service{
		ObjectMeta: CloudMeta("web", revision),
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.3.4", ClusterIPs: []string{"10.96.3.4"}, Type: corev1.ServiceTypeClusterIP,
			IPFamilies: []corev1.IPFamily{family}, IPFamilyPolicy: &policy, InternalTrafficPolicy: &internal,
			SessionAffinity: corev1.ServiceAffinityNone, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP},
			},
		},
	}
}

// CloudEndpoints returns Endpoints with one address.
func CloudEndpoints(revision int) *corev1.Endpoints {
	return &corev1.Endpoints{
		ObjectMeta: CloudMeta("web", revision),
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}}, Ports: []corev1.EndpointPort{{Port: 8080, Protocol: "TCP"}},
		}},
	}
}

// AsObject returns an object as a stream carries it, in protobuf.
func AsObject(t testing.TB, o interface {
	metav1.Object
	Marshal() ([]byte, error)
}) stream.Object {
	t.Helper()
	raw, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	revision, err := edge.ParseRevision(o.GetResourceVersion())
	if err != nil {
		t.Fatal(err)
	}
	return stream.Object{Key: stream.Key{Namespace: o.GetNamespace(), Name: o.GetName()}, Revision: revision, Raw: raw}
}

// ProtobufType returns the type of objects of a kind in protobuf.
func ProtobufType(kind schema.GroupVersionKind) stream.Type {
	return stream.Type{GroupVersionKind: kind, Encoding: stream.Protobuf}
}

// Kinds that hubs push.
var (
	KindNode  = corev1.SchemeGroupVersion.WithKind("Node")
	KindPod   = corev1.SchemeGroupVersion.WithKind("Pod")
	KindMap   = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	KindEvent = corev1.SchemeGroupVersion.WithKind("Event")
)

// Put returns the event that an object is there.
func Put(o stream.Object) stream.Event { return stream.Event{Type: stream.Modified, Object: o} }

// Del returns the event that an object is gone.
func Del(o stream.Object) stream.Event { return stream.Event{Type: stream.Deleted, Object: o} }

// PodOf is a Pod as the cloud has it, which uses these ConfigMaps.
func PodOf(t testing.TB, n edge.NodeName, name string, revision int, uses ...string) stream.Object {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: CloudMeta(name, revision)}
	p.Spec.NodeName = string(n)
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "image"}}
	for _, each := range uses {
		p.Spec.Containers[0].EnvFrom = append(p.Spec.Containers[0].EnvFrom, corev1.EnvFromSource{
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: each}},
		})
	}
	p.Status.Phase = corev1.PodRunning
	return AsObject(t, p)
}

// MapOf returns a ConfigMap.
func MapOf(t testing.TB, name string, revision int) stream.Object {
	t.Helper()
	return AsObject(t, &corev1.ConfigMap{
		ObjectMeta: CloudMeta(name, revision), Data: map[string]string{"at": fmt.Sprint(revision)},
	})
}

// NodeOf returns a Node.
func NodeOf(t testing.TB, n edge.NodeName, revision int) stream.Object {
	t.Helper()
	meta := CloudMeta(string(n), revision)
	meta.Namespace = ""
	return AsObject(t, &corev1.Node{ObjectMeta: meta, Status: corev1.NodeStatus{Phase: corev1.NodeRunning}})
}

// EventOf returns an Event of node n about a Pod.
func EventOf(t testing.TB, n edge.NodeName, about string, revision int) stream.Object {
	t.Helper()
	return AsObject(t, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: about + ".17", UID: types.UID(about), ResourceVersion: fmt.Sprint(revision),
		},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: about},
		Source:         corev1.EventSource{Component: "kubelet", Host: string(n)},
	})
}
