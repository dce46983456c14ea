package replica_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// service returns a Service as it travels.
func service(t *testing.T, name, ip string, revision edge.Revision) stream.Object {
	t.Helper()
	s := corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, ResourceVersion: revision.String()},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Type: corev1.ServiceTypeClusterIP},
	}
	raw, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return stream.Object{Key: stream.Key{Namespace: "a", Name: name}, Revision: revision, Raw: raw}
}

// TestFieldsOfServices: kube-proxy asks for those with a cluster IP.
func TestFieldsOfServices(t *testing.T) {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	r := replica.New(replica.Config{Resource: resource})
	if err := r.Replace(t.Context(), stream.Snapshot{
		Type:     stream.Type{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service"), Encoding: stream.Protobuf},
		Revision: 10,
		Objects:  []stream.Object{service(t, "headless", "None", 8), service(t, "web", "10.0.0.1", 9)},
	}); err != nil {
		t.Fatal(err)
	}
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	for query, want := range map[string][]string{
		"spec.clusterIP!%3DNone":                                      {"a/web"},
		"spec.clusterIP%3DNone":                                       {"a/headless"},
		"spec.type%3DClusterIP":                                       {"a/headless", "a/web"},
		"metadata.name%3Dheadless,spec.clusterIP!%3DNone":             nil,
		"metadata.name%3Dweb,spec.clusterIP!%3DNone":                  {"a/web"},
		"metadata.namespace!%3Da,spec.type%3DClusterIP":               nil,
		"spec.clusterIP!%3DNone,metadata.namespace%3Da,spec.type!%3D": {"a/web"},
	} {
		a := s.get(t, "/api/v1/services?fieldSelector="+query, asProtobuf)
		got, _, err := stream.ReadList(strings.NewReader(string(a.body)), stream.Protobuf, 1<<20)
		if err != nil {
			t.Errorf("%s: %s: %v", query, a.Status, err)
			continue
		}
		if !slices.Equal(names(got.Objects), want) {
			t.Errorf("%s: %v, want %v", query, names(got.Objects), want)
		}
	}
	if a := s.get(t, "/api/v1/services?fieldSelector=spec.x%3D1", asJSON); a.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown field: %s", a.Status)
	}
}
