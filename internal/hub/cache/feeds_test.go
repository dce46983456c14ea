package cache

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
)

func TestWhereASelectionIsRead(t *testing.T) {
	pods, deployments := schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	for _, tc := range []struct {
		resource        schema.GroupVersionResource
		namespace, want string
	}{
		{pods, "", "/api/v1/pods"},
		{pods, "a", "/api/v1/namespaces/a/pods"},
		{deployments, "", "/apis/apps/v1/deployments"},
		{deployments, "a", "/apis/apps/v1/namespaces/a/deployments"},
	} {
		if got := Collection(tc.resource, tc.namespace); got != tc.want {
			t.Errorf("%v in %q: %s, want %s", tc.resource, tc.namespace, got, tc.want)
		}
	}
	var asked []string
	newFeed := Feeds(&Sources{
		Cloud: &url.URL{Scheme: "https", Host: "10.0.0.1"}, CloudLink: live.NewValue(link.Up),
		AsNode: http.DefaultTransport,
		As: func(client string) http.RoundTripper {
			asked = append(asked, client)
			return http.DefaultTransport
		},
		Pool: &Pool{
			As: http.DefaultTransport, Base: &url.URL{Scheme: "https", Host: "10.0.0.2"}, Link: live.NewValue(link.Up),
			Standing: &live.Value[lead.Standing]{},
			Covered:  func(schema.GroupResource) *live.Value[bool] { return live.NewValue(true) },
			Filling:  func(schema.GroupResource) *live.Value[bool] { return live.NewValue(false) },
		},
	})
	r := replica.New(replica.Config{Resource: pods})
	for _, o := range []Order{{Client: Hub, Shared: true}, {Client: Hub}, {}, {Client: "sa 1"}} {
		o.Selection, o.Replica = Whole(pods), r
		newFeed(o)
		if own := o.Client == Hub || o.Client == ""; (o.watchTime() == ownWatchTime) != own {
			t.Errorf("the cloud is asked to keep a watch of client %q for %v", o.Client, o.watchTime())
		}
	}
	if !slices.Equal(asked, []string{"sa 1"}) { // and as the node for all others
		t.Errorf("the cloud is asked as %q", asked)
	}
}
