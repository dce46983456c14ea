package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/link"
)

// playedCloud has CSINodes, and is an Upstream that needs no server.
type playedCloud struct {
	nodes map[string]string // path → drivers
	cut   bool
}

func (c *playedCloud) AsNode() http.RoundTripper   { return c }
func (c *playedCloud) AsCaller() http.RoundTripper { return c }
func (*playedCloud) Serves(context.Context) bool   { return false }

func (c *playedCloud) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.cut {
		return nil, errors.New("no route to host")
	}
	w, path, code := httptest.NewRecorder(), r.URL.Path, http.StatusOK
	if r.Method == http.MethodPost {
		path, code = path+"/n1", http.StatusCreated
	}
	drivers, there := c.nodes[path]
	w.Header().Set("Content-Type", "application/json")
	switch r.Method {
	case http.MethodGet:
		if !there {
			http.NotFound(w, r)
			return w.Result(), nil
		}
	case http.MethodDelete:
		delete(c.nodes, path)
		_, err := io.WriteString(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`)
		return w.Result(), err
	default:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		drivers = string(body)
		c.nodes[path] = drivers
	}
	w.WriteHeader(code)
	_, err := fmt.Fprintf(w,
		`{"kind":"CSINode","apiVersion":"storage.k8s.io/v1","metadata":{"name":"n1"},"spec":{"drivers":[%s]}}`, drivers)
	return w.Result(), err
}

// kubelets takes every request for kubelet's.
type kubelets struct{}

func (kubelets) Judge(*http.Request) front.Verdict       { return front.Kubelet }
func (kubelets) Credentials(*http.Request) front.Verdict { return front.Kubelet }

// TestWhatKubeletHasWrittenIsWhatItReads after a cut, and a restart of kubelet: not what the cloud said of the object before.
func TestWhatKubeletHasWrittenIsWhatItReads(t *testing.T) {
	h, err := stored(t, "")
	if err != nil {
		t.Fatal(err)
	}
	cloud, serves := &playedCloud{nodes: map[string]string{}}, h.serves
	serves.Cloud, serves.Metrics, serves.Proof = cloud, nil, kubelets{}
	serves.CloudLink = func() link.State {
		if cloud.cut {
			return link.Down
		}
		return link.Up
	}
	f := front.New(serves)
	const all, own = "/apis/storage.k8s.io/v1/csinodes", "/apis/storage.k8s.io/v1/csinodes/n1"
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		out, r := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("User-Agent", "kubelet/v1.36.0")
		f.ServeHTTP(out, r)
		return out
	}
	ask(http.MethodGet, own, "") // there is none
	for _, step := range []struct {
		method, path, body string
		code, cut          int
		drivers            string
	}{
		{http.MethodPost, all, ` `, http.StatusCreated, http.StatusOK, `"drivers":[ ]`},
		{http.MethodGet, own, ``, http.StatusOK, http.StatusOK, `"drivers":[ ]`},
		{http.MethodPut, own, `"a"`, http.StatusOK, http.StatusOK, `"drivers":["a"]`},
		{http.MethodPatch, own, `"b"`, http.StatusOK, http.StatusOK, `"drivers":["b"]`},
		{http.MethodDelete, own, ``, http.StatusOK, http.StatusBadGateway, ""},
	} {
		if out := ask(step.method, step.path, step.body); out.Code != step.code {
			t.Fatalf("%s: %d %s", step.method, out.Code, out.Body)
		}
		cloud.cut = true
		if out := ask(http.MethodGet, own, ""); out.Code != step.cut || !strings.Contains(out.Body.String(), step.drivers) {
			t.Errorf("cut off after %s: %d %s; want %d with %s", step.method, out.Code, out.Body, step.cut, step.drivers)
		}
		cloud.cut = false
	}
}
