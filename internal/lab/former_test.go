package lab

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/internal/lab/build"
)

// formerNode is a node of a lab that begins with former hubs.
func formerNode(t *testing.T) node {
	t.Helper()
	cfg := Config{Pools: 1, Nodes: 3, Kubelet: Real, Former: true}.AsInstalled()
	n := node{place: place{1, 1}, cfg: cfg, disk: t.TempDir()}
	n.bins.YurtHub, n.bins.Former.YurtHub = "/bin/present", "/bin/former"
	return n
}

// put says of which release the node's hub is from now on.
func put(t *testing.T, n node, release string) {
	t.Helper()
	if err := os.WriteFile(n.file(hubRelease), []byte(release), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFormerHub: a former hub gets the flags that it knows, and is found without TLS; the present one as ever.
func TestFormerHub(t *testing.T) {
	n := formerNode(t)
	kubelet := func() (kubeconfig string) {
		files := map[string]string{}
		n.addHubFiles(files)
		return files[kubeletUser+".kubeconfig"]
	}
	ofKubelet := func(arg string) bool { return strings.HasPrefix(arg, "--kubelet-config=") }
	for _, release := range []string{"", formerHub} { // without the file it begins as a former one
		if release != "" {
			put(t, n, release)
		}
		argv := n.hub()
		if argv[0] != "/bin/former" || slices.ContainsFunc(argv, ofKubelet) ||
			!slices.Contains(argv, "--disk-cache-path="+n.file(hubCache)) {
			t.Errorf("a former hub is started by %v", argv)
		}
		if k := kubelet(); !strings.Contains(k, `"http://127.0.0.1:10261"`) || strings.Contains(k, kubeletToken) {
			t.Errorf("kubelet finds a former hub by %s", k)
		}
	}
	put(t, n, "")
	if argv := n.hub(); argv[0] != "/bin/present" || !slices.ContainsFunc(argv, ofKubelet) {
		t.Errorf("the present hub is started by %v", argv)
	}
	if k := kubelet(); !strings.Contains(k, `"https://127.0.0.1:10261"`) || !strings.Contains(k, kubeletToken) {
		t.Errorf("kubelet finds the present hub by %s", k)
	}
}

// TestFormerNeedsItsLab: no other lab has former hubs.
func TestFormerNeedsItsLab(t *testing.T) {
	n := formerNode(t)
	n.cfg.Former = false
	if n.former() {
		t.Error("a lab without former programs has a former hub")
	}
	bare := Config{Name: "x", Pools: 1, Nodes: 3}.AsBare()
	bare.Former = true
	if err := bare.Validate(); err == nil || !strings.Contains(err.Error(), Former) {
		t.Errorf("a bare lab with former hubs: %v", err)
	}
	l := newLab(Config{Name: "x", Pools: 1, Nodes: 1}, t.TempDir(), build.Binaries{}, Images{})
	l.hosts["p1-n1"] = &host{}
	if err := l.runHub(t.Context(), "p1-n1", true); err == nil || !strings.Contains(err.Error(), "Config.Former") {
		t.Errorf("a former hub in another lab: %v", err)
	}
}

// trips records requests.
type trips []*http.Request

func (all *trips) RoundTrip(r *http.Request) (*http.Response, error) {
	*all = append(*all, r)
	return nil, http.ErrServerClosed
}

// TestAsServed: a client that goes on while a node's hub is replaced finds each as it serves.
func TestAsServed(t *testing.T) {
	n := formerNode(t)
	var sent trips
	client := http.Client{Transport: asServed{n.cfg, n.disk, &sent}}
	ask := func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hubAddress+"/api", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer x")
		if response, err := client.Do(r); err == nil {
			_ = response.Body.Close()
		}
		if r.URL.Scheme != "https" || r.Header.Get("Authorization") == "" {
			t.Errorf("the client's own request was changed: %v %v", r.URL, r.Header)
		}
	}
	ask()
	put(t, n, "")
	ask()
	put(t, n, formerHub)
	ask()
	if len(sent) != 3 {
		t.Fatalf("%d requests", len(sent))
	}
	for i, former := range []bool{true, false, true} {
		plain := sent[i].URL.Scheme == "http" && sent[i].Header.Get("Authorization") == ""
		if plain != former {
			t.Errorf("request %d: %v %v", i, sent[i].URL, sent[i].Header)
		}
	}
	if err := os.Remove(n.file(hubRelease)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(n.disk, hubRelease), 0o700); err != nil {
		t.Fatal(err)
	}
	if ask(); len(sent) != 3 {
		t.Error("a request is sent without knowing to what")
	}
}
