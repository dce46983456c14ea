package lab

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

func differing() Config {
	return Config{Name: "x", Pools: 3, Nodes: 3, Kubelet: Real, Timing: Stock, Variants: map[int]Variant{
		2: {Nodes: 1, NoHub: true}, 3: {Nodes: 2, NoCoordinator: true},
	}}
}

func TestVariantsOfPools(t *testing.T) {
	c := differing()
	var names []string
	for _, p := range c.places() {
		names = append(names, string(p.name()))
	}
	if want := []string{"p1-n1", "p1-n2", "p1-n3", "p2-n1", "p3-n1", "p3-n2"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	for _, tt := range []struct {
		place place
		want  []Component
	}{
		{place{1, 1}, []Component{Coordinator, Hub, Containerd, KubeletC, KubeProxy}},
		{place{2, 1}, []Component{Containerd, KubeletC, KubeProxy}},
		{place{3, 1}, []Component{Hub, Containerd, KubeletC, KubeProxy}},
	} {
		if got := (node{place: tt.place, cfg: c.of(tt.place.pool)}).components(); !slices.Equal(got, tt.want) {
			t.Errorf("%s runs %v, want %v", tt.place.name(), got, tt.want)
		}
	}
	if made := string(poolManifests(c)); strings.Count(made, "kind: NodePool") != 3 ||
		strings.Count(made, "kind: YurtCoordinator") != 1 {
		t.Errorf("want three pools and a coordinator for the first:\n%s", made)
	}
}

// Without a hub, a node's programs go to the cloud as they do without our system.
func TestProgramsWithoutAHub(t *testing.T) {
	files := map[string]string{}
	node{place: place{2, 1}, cfg: differing().of(2), disk: "/disk"}.addHubFiles(files)
	for name, want := range map[string][]string{
		"hub.kubeconfig":   {(Config{}).families().cloudAddress(), "/disk/pki/ca.crt", "client-certificate:", "p2-n1.key"},
		"proxy.kubeconfig": {(Config{}).families().cloudAddress(), "/disk/pki/ca.crt", tokenOf(proxyUser)},
	} {
		for _, part := range want {
			if !strings.Contains(files[name], part) {
				t.Errorf("%s lacks %q:\n%s", name, part, files[name])
			}
		}
	}
}

func TestVariantsAreOfPoolsThatThereAre(t *testing.T) {
	for _, tt := range []struct {
		pool    int
		variant Variant
		want    string
	}{
		{1, Variant{Nodes: 2}, ""},
		{4, Variant{}, "a variant of pool 4: want one of 1 to 3"},
		{1, Variant{Nodes: MaxNodes + 1}, "251 nodes in pool 1: want 1 to 250"},
	} {
		c := differing()
		c.Variants[tt.pool] = tt.variant
		if err := c.Validate(); (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%d %+v: %v, want %q", tt.pool, tt.variant, err, tt.want)
		}
	}
}

func TestRequestsOfNodes(t *testing.T) {
	const resource = `{"kind":"Event","stage":"ResponseComplete","verb":"update","userAgent":"kubelet/v1.36.3 (linux)",` +
		`"objectRef":{"resource":"nodes","subresource":"status"},"requestURI":"/api/v1/nodes/x/status"}` + "\n"
	const path = `{"kind":"Event","stage":"ResponseComplete","verb":"get","userAgent":"yurthub",` +
		`"requestURI":"/readyz?verbose"}` + "\n"
	var got []Request
	err := eachEvent(t.Context(), strings.NewReader(resource+path+`{"kind":"Ev`), "", func(e auditv1.Event) {
		got = append(got, request(e, "p1-n1"))
	})
	want := []Request{
		{Node: "p1-n1", Agent: "kubelet", Verb: "update", What: "nodes/status"},
		{Node: "p1-n1", Agent: "yurthub", Verb: "get", What: "/readyz"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// TestWaitKeys: a node's programs wait for the hub's files, and not for ever.
func TestWaitKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := node{place: place{1, 1}, disk: t.TempDir()}
		if err := n.waitKeys(t.Context()); err == nil || !strings.Contains(err.Error(), kubeletToken) {
			t.Errorf("without a hub: %v", err)
		}
		time.AfterFunc(time.Second, func() {
			if err := errors.Join(os.Mkdir(n.file(hubKeys), 0o700),
				os.WriteFile(n.file(filepath.Join(hubKeys, kubeletToken)), nil, 0o600)); err != nil {
				t.Error(err)
			}
		})
		if err := n.waitKeys(t.Context()); err != nil {
			t.Errorf("with a hub: %v", err)
		}
	})
}
