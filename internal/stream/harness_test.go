package stream_test

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/stream"
)

// encodings are all, for tests that hold in each.
var encodings = []stream.Encoding{stream.Protobuf, stream.JSON}

func mediaType(e stream.Encoding) runtime.SerializerInfo {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), e.ContentType(false))
	if !ok {
		panic("Kubernetes does not have " + e.String())
	}
	return info
}

// kubernetesFrame is a watch event as an API server writes it.
func kubernetesFrame(t testing.TB, e stream.Encoding, kind watch.EventType, o runtime.Object) []byte {
	t.Helper()
	info := mediaType(e)
	var out bytes.Buffer
	encoder := streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(&out), info.StreamSerializer.Serializer)
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: kubernetesObject(t, e, o)}}
	if err := encoder.Encode(event); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// kubernetesObject is an object, or a list, as an API server answers it.
func kubernetesObject(t testing.TB, e stream.Encoding, o runtime.Object) []byte {
	t.Helper()
	var out bytes.Buffer
	encoder := runtime.Encoder(mediaType(e).Serializer)
	if _, custom := o.(runtime.Unstructured); custom {
		encoder = unstructured.UnstructuredJSONScheme
	}
	if err := encoder.Encode(o, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// kubernetesDecoder is client-go's of a watch.
func kubernetesDecoder(e stream.Encoding, frames []byte) *restwatch.Decoder {
	info := mediaType(e)
	reader := info.StreamSerializer.NewFrameReader(io.NopCloser(bytes.NewReader(frames)))
	return restwatch.NewDecoder(streaming.NewDecoder(reader, info.StreamSerializer.Serializer),
		scheme.Codecs.UniversalDeserializer())
}

func typed[T runtime.Object](o T, apiVersion, kind string) T {
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	return o
}

// slice is an EndpointSlice such as the controller makes them.
func slice(name string, revision, endpoints int) *discoveryv1.EndpointSlice {
	s := typed(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, ResourceVersion: fmt.Sprint(revision), Generation: 3,
			UID:               "0b6a4a5e-5a0f-4b6c-8f5c-0e6f0c2f1a11",
			CreationTimestamp: metav1.Unix(1700000000, 0),
			Labels:            map[string]string{"kubernetes.io/service-name": "web", "app": "x"},
			Annotations:       map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": "2025-01-01T00:00:00Z"},
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: "1"}},
			ManagedFields:     []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`)}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080)}},
	}, "discovery.k8s.io/v1", "EndpointSlice")
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250)},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			NodeName:   ptr.To(fmt.Sprint("edge-node-", i)),
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: "default", Name: fmt.Sprint("web-5d8c7b9f4-", i),
				UID: "c3e1b1f0-66a7-4a7e-9b4c-2f1d1a7e0c55",
			},
		})
	}
	return s
}

func service(name string, revision int) *corev1.Service {
	return typed(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, ResourceVersion: fmt.Sprint(revision)},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.10", Ports: []corev1.ServicePort{{Port: 53}}},
	}, "v1", "Service")
}

func endpoints(name string, revision int) *corev1.Endpoints {
	return typed(&corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: fmt.Sprint(revision)},
		Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}}}},
	}, "v1", "Endpoints")
}

func node(name string, revision int) *corev1.Node {
	return typed(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: fmt.Sprint(revision)}}, "v1", "Node")
}

// widget is a custom resource with things in it that a sloppy reader takes for its metadata.
func widget(name string, revision int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget",
		"aaa": map[string]any{"metadata": map[string]any{"name": "not this", "resourceVersion": "1"}, "kind": "NotThis"},
		"metadata": map[string]any{
			"name": name, "namespace": "default", "resourceVersion": fmt.Sprint(revision),
			"labels":      map[string]any{"quoted \"": "line\nend ü \u2028 \\"},
			"annotations": map[string]any{"name": "nor this", "k8s.io/initial-events-end": "false"},
		},
		"spec": map[string]any{"list": []any{int64(1), -2.5, "}", "{\"", nil, true, []any{}, map[string]any{}}},
	}}
}

func bytesOf(frames ...[]byte) []byte { return bytes.Join(frames, nil) }

// read reads all events; err is what they end with.
func read(e stream.Encoding, frames []byte) (events []stream.Event, f *stream.FrameReader, err error) {
	return readFrom(e, bytes.NewReader(frames))
}

func readFrom(e stream.Encoding, r io.Reader) (events []stream.Event, f *stream.FrameReader, err error) {
	f = stream.NewFrameReader(r, e, 1<<20)
	for {
		event, err := f.Read()
		if err != nil {
			return events, f, err
		}
		events = append(events, event)
	}
}

// deliveries are ways in which the same bytes arrive.
var deliveries = map[string]func(io.Reader) io.Reader{
	"at once":      func(r io.Reader) io.Reader { return r },
	"by the byte":  iotest.OneByteReader,
	"by halves":    iotest.HalfReader,
	"end with end": iotest.DataErrReader,
}

func sequence(objects ...stream.Object) iter.Seq2[stream.Object, error] {
	return func(yield func(stream.Object, error) bool) {
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}
}
