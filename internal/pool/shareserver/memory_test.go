package shareserver

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
)

// decodes returns what Decode makes of an object, as of all kinds that it could be.
func decodes(t *testing.T, o Message) error {
	t.Helper()
	raw, err := o.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	b := BuiltIn{New: func() Message { return o.DeepCopyObject().(Message) }}
	_, err = b.Decode(stream.Object{Key: stream.Key{Namespace: o.GetNamespace(), Name: o.GetName()}, Raw: raw})
	return err
}

// TestHonestObjectsFit: what Kubernetes makes is taken, also at its densest.
func TestHonestObjectsFit(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "a", Name: "b"}
	yes := true
	small := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "d"}}}}
	large := small.DeepCopy()
	for i := range 200 {
		name := fmt.Sprint("c", i)
		large.Spec.Containers = append(large.Spec.Containers, corev1.Container{
			Name: name, Image: "registry.example.org/web:1", Env: []corev1.EnvVar{{Name: "A"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
		})
		large.Spec.Volumes = append(large.Spec.Volumes, corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		})
		large.Status.ContainerStatuses = append(large.Status.ContainerStatuses, corev1.ContainerStatus{Name: name})
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta}
	endpoints := &corev1.Endpoints{ObjectMeta: meta, Subsets: make([]corev1.EndpointSubset, 1)}
	for range 1000 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"1.1.1.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes},
		})
		endpoints.Subsets[0].Addresses = append(endpoints.Subsets[0].Addresses, corev1.EndpointAddress{IP: "1.1.1.1"})
	}
	keys := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{}}
	for i := range 10000 {
		keys.Data[fmt.Sprint("key-", i)] = "x"
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	for range 1000 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{"a@sha256:0"}})
	}
	for _, o := range []Message{
		small, large, slice, endpoints, keys, node, &corev1.Event{ObjectMeta: meta}, pooltest.CloudSlice("s", 1, "10.0.0.1"),
		pooltest.CloudService(1),
	} {
		if err := decodes(t, o); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
}

// TestWhatGrowsIsRefused: an object with lists of empty messages, which take two bytes each and hundreds in memory, is not
// decoded.
func TestWhatGrowsIsRefused(t *testing.T) {
	const metadata, spec, status = 1, 2, 3
	for what, c := range map[string]struct {
		of   Message
		path []protowire.Number
		many int
	}{
		"containers":      {&corev1.Pod{}, []protowire.Number{spec, 2}, 700_000},
		"some containers": {&corev1.Pod{}, []protowire.Number{spec, 2}, 100},
		"conditions":      {&corev1.Pod{}, []protowire.Number{status, 2}, 5000},
		"owners":          {&corev1.Event{}, []protowire.Number{metadata, 13}, 5000},
		"endpoints":       {&discoveryv1.EndpointSlice{}, []protowire.Number{2}, 5000},
		"labels":          {&corev1.ConfigMap{}, []protowire.Number{metadata, 11}, 5000},
	} {
		var raw []byte
		for range c.many {
			raw = protowire.AppendBytes(protowire.AppendTag(raw, c.path[len(c.path)-1], protowire.BytesType), nil)
		}
		if len(c.path) > 1 {
			raw = protowire.AppendBytes(protowire.AppendTag(nil, c.path[0], protowire.BytesType), raw)
		}
		b := BuiltIn{New: func() Message { return c.of }}
		if _, err := b.Decode(stream.Object{Raw: raw}); err == nil || !strings.Contains(err.Error(), "of memory") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
