package hub

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

// rootCloud has kube-root-ca.crt, and is an Upstream that needs no server.
type rootCloud struct{ cut bool }

func (c *rootCloud) AsNode() http.RoundTripper   { return c }
func (c *rootCloud) AsCaller() http.RoundTripper { return c }
func (*rootCloud) Serves(context.Context) bool   { return false }

func (c *rootCloud) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.cut {
		return nil, errors.New("no route to host")
	}
	w := httptest.NewRecorder()
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt", Namespace: "shop", ResourceVersion: "7"},
		Data:       map[string]string{"ca.crt": "cloud\n"},
	}
	raw, err := m.Marshal()
	w.Header().Set("Content-Type", stream.Protobuf.ContentType(false))
	_, _ = w.Write(stream.Envelope(stream.Type{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Encoding: stream.Protobuf,
	}, raw))
	return w.Result(), err
}

// TestKubeletIsShownTheHubsAuthorities: kubelet's get of a ConfigMap shows the hub's authorities after the cloud's, both in an
// answer of the cloud and in a remembered one.
func TestKubeletIsShownTheHubsAuthorities(t *testing.T) {
	h, err := stored(t, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.disk.Close(); err != nil {
			t.Error(err)
		}
	}()
	cloud, state, serves := &rootCloud{}, link.Up, h.serves
	serves.Cloud, serves.Metrics, serves.Proof = cloud, nil, kubelets{}
	serves.CloudLink = func() link.State { return state }
	f := front.New(serves)
	get := func() string {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/shop/configmaps/kube-root-ca.crt", nil)
		r.Header.Set("User-Agent", "kubelet/v1")
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		_, raw, err := stream.OpenEnvelope(w.Body.Bytes())
		if err != nil {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		var m corev1.ConfigMap
		if err := m.Unmarshal(raw); err != nil {
			t.Fatal(err)
		}
		return m.Data["ca.crt"]
	}
	if got := get(); got != "cloud\n" {
		t.Errorf("before there are any: %q", got)
	}
	for _, authorities := range []string{"old\n", "old\nnew\n"} {
		h.shown.Change("kube-root-ca.crt", authorities)
		for _, cut := range []bool{false, true} {
			if cloud.cut, state = cut, link.Up; cut {
				state = link.Down
			}
			if got := get(); got != "cloud\n"+authorities {
				t.Errorf("cut off: %t: %q", cut, got)
			}
		}
	}
}
