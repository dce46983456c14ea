package front

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
)

func TestTheCloudIsAskedForItsOwnRevision(t *testing.T) {
	for query, want := range map[string]string{
		"watch=1&resourceVersion=" + edge.Shown(100, 1<<31).String(): "resourceVersion=100&watch=1",
		"watch=1&resourceVersion=100":                                "watch=1&resourceVersion=100",
		"resourceVersion=":                                           "resourceVersion=",
		"resourceVersion=nonsense":                                   "resourceVersion=nonsense",
		"a=%zz&resourceVersion=1":                                    "a=%zz&resourceVersion=1",
	} {
		if got := unshown(query); got != want {
			t.Errorf("%q became %q, want %q", query, got, want)
		}
	}
}

func TestAWriteOfAPartIsRefused(t *testing.T) {
	shown := edge.Shown(100, 1<<31).String()
	info := &request.RequestInfo{IsResourceRequest: true, Resource: "endpointslices", APIGroup: "discovery.k8s.io", Name: "web-1"}
	for body, refused := range map[string]bool{
		`{"metadata":{"resourceVersion":"` + shown + `"}}`:                           true,
		"metadata:\n  resourceVersion: " + shown:                                     true,
		`[{"op":"test","path":"/metadata/resourceVersion","value":"` + shown + `"}]`: true,
		"k8s\x00\x32\x13" + shown + "\x3a":                                           true,
		`{"metadata":{"resourceVersion":"100"}}`:                                     false,
		`{"metadata":{"annotations":{"at":"1764000000000000000"}}}`:                  false,
		`{"n":"` + shown + `0"}`:                                                     false,
		"":                                                                           false,
	} {
		r := httptest.NewRequest(http.MethodPut, "/", strings.NewReader(body))
		s := overwrites(r, info)
		if (s != nil) != refused || s != nil && s.Code != http.StatusConflict {
			t.Errorf("%q: %v", body, s)
		}
		if got, err := io.ReadAll(r.Body); err != nil || string(got) != body {
			t.Errorf("%q was passed on as %q, %v", body, got, err)
		}
	}
	broken := errors.New("broken")
	r := httptest.NewRequest(http.MethodPut, "/", io.MultiReader(strings.NewReader("{"), failed{broken}))
	if s := overwrites(r, info); s != nil {
		t.Error(s)
	}
	if got, err := io.ReadAll(r.Body); !errors.Is(err, broken) || string(got) != "{" {
		t.Errorf("a body that breaks is %q, %v", got, err)
	}
	other := httptest.NewRequest(http.MethodPut, "/", strings.NewReader(shown))
	if s := overwrites(other, &request.RequestInfo{IsResourceRequest: true, Resource: "pods"}); s != nil {
		t.Errorf("a Pod: %v", s)
	}
}

// told is a replica of EndpointSlices, which records what it is asked for.
type told struct{ query string }

func (*told) Has(r schema.GroupVersionResource) bool { return r.Resource == "endpointslices" }

func (t *told) ServeHTTP(_ http.ResponseWriter, r *http.Request) { t.query = r.URL.RawQuery }

// TestAReplicaLearnsThatAViewWasSeen: to a client that resumes where a view was shown, a replica tells everything anew.
func TestAReplicaLearnsThatAViewWasSeen(t *testing.T) {
	var query string
	_, u := cloud(t, func(_ http.ResponseWriter, r *http.Request) { query = r.URL.RawQuery })
	replica := &told{}
	address, _ := hub(t, Config{Cloud: u, Replicas: replica})
	asked := "resourceVersion=" + edge.Shown(100, 1<<31).String() + "&watch=1"
	ask(t, http.MethodGet, address+"/apis/discovery.k8s.io/v1/endpointslices?"+asked)
	if replica.query != asked {
		t.Errorf("the replica is asked %q, want %q", replica.query, asked)
	}
	ask(t, http.MethodGet, address+"/api/v1/endpoints?"+asked)
	if want := "resourceVersion=100&watch=1"; query != want {
		t.Errorf("the cloud is asked %q, want %q", query, want)
	}
}
