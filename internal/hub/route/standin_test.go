package route

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/hub/link"
)

// TestStandsIn is what somebody on the node can take in the cloud's place, by the addresses that programs write to.
func TestStandsIn(t *testing.T) {
	const (
		podStatus  = "/api/v1/namespaces/shop/pods/a/status"
		nodeStatus = "/api/v1/nodes/n1/status"
		shopEvents = "/api/v1/namespaces/shop/events"
		reviews    = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	)
	infos := request.RequestInfoFactory{
		APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
	}
	for target, want := range map[string]bool{
		"PATCH " + podStatus:                               true,
		"PUT " + podStatus:                                 true,
		"PATCH " + nodeStatus:                              true,
		"POST " + shopEvents:                               true,
		"PATCH " + shopEvents + "/e":                       true,
		"POST " + reviews:                                  true,
		"POST /apis/authentication.k8s.io/v1/tokenreviews": true,

		"PATCH " + podStatus + "?dryRun=All":                            false,
		"GET " + podStatus:                                              false,
		"DELETE /api/v1/namespaces/shop/pods/a":                         false,
		"PATCH /api/v1/namespaces/shop/pods/a":                          false,
		"POST /api/v1/namespaces/shop/pods/a/binding":                   false,
		"PATCH /api/v1/namespaces/shop/services/a/status":               false,
		"PATCH /api/v1/namespaces/shop/pods/a/b/status":                 false,
		"PATCH /api/v1/namespaces//pods/a/status":                       false,
		"PATCH /api/v1/nodes/n2/status":                                 false,
		"PATCH /api/v1/nodes/n1":                                        false,
		"POST /api/v1/nodes":                                            false,
		"PATCH /apis/apps/v1/namespaces/shop/pods/a/status":             false,
		"POST " + shopEvents + "/e":                                     false,
		"PATCH " + shopEvents:                                           false,
		"PATCH " + shopEvents + "/":                                     false,
		"PUT " + shopEvents + "/e":                                      false,
		"DELETE " + shopEvents:                                          false,
		"GET " + shopEvents:                                             false,
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews":   false,
		"POST /api/v1/namespaces/shop/serviceaccounts/default/token":    false,
		"POST /apis/events.k8s.io/v1/namespaces/shop/events":            false,
		"POST /apis/authorization.k8s.io/v1beta1/subjectaccessreviews":  false,
		"PATCH /api/v2/namespaces/shop/pods/a/status":                   false,
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews/a/log": false,
	} {
		method, address, _ := strings.Cut(target, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, address, nil)
		info, err := infos.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		req := Request{
			Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource,
			Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name, Path: info.Path, Cached: true,
			DryRun: strings.Contains(r.URL.RawQuery, "dryRun"),
		}
		cut := Situation{Node: "n1", StandIn: true, CloudLink: link.Down, CoordinatorLink: link.Up}
		if got := slices.Contains(Decide(req, cut).Answerers, StandIn); got != want {
			t.Errorf("%s: %v, want %v", target, got, want)
		}
		req.OwnCredentials = true
		if slices.Contains(Decide(req, cut).Answerers, StandIn) {
			t.Errorf("%s: somebody stands in for a caller with credentials of its own", target)
		}
		req.OwnCredentials, cut.StandIn = false, false
		if slices.Contains(Decide(req, cut).Answerers, StandIn) {
			t.Errorf("%s: somebody stands in where there is nobody", target)
		}
	}
}
