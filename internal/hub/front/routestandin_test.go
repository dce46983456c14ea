package front

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
		"PATCH " + podStatus:         true,
		"PUT " + podStatus:           true,
		"PATCH " + nodeStatus:        true,
		"POST " + shopEvents:         true,
		"PATCH " + shopEvents + "/e": true,

		// Nobody but the cloud and, of its own coordinator, this hub says who somebody is and what he may do.
		"POST " + reviews: false,
		"POST /apis/authentication.k8s.io/v1/tokenreviews":              false,
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

// TestRoutesOfReviews is who is asked what somebody may do: first the hub itself, and never the coordinator.
func TestRoutesOfReviews(t *testing.T) {
	access := Request{Verb: "create", Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}
	token := Request{Verb: "create", Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews"}
	with := func(r Request, change func(*Request)) Request {
		change(&r)
		return r
	}
	kept := func(r *Request) { r.Cached = true }
	up, down := Situation{Node: "n1", CloudLink: link.Up}, Situation{Node: "n1", CloudLink: link.Down}
	for name, tc := range map[string]struct {
		req  Request
		s    Situation
		want []Answerer
	}{
		"access":             {with(access, kept), up, []Answerer{Warrant, Cloud, Recall}},
		"access, cut":        {with(access, kept), down, []Answerer{Warrant, Recall, Cloud}},
		"access, not kept":   {access, up, []Answerer{Warrant, Cloud}},
		"access, dry run":    {with(access, func(r *Request) { r.DryRun = true }), down, []Answerer{Warrant, Cloud}},
		"access of a guest":  {with(access, func(r *Request) { r.OwnCredentials, r.Known = true, true }), up, []Answerer{Cloud}},
		"a list":             {with(access, func(r *Request) { r.Verb = "list" }), up, []Answerer{Cloud}},
		"one's own access":   {with(access, func(r *Request) { r.Resource = "selfsubjectaccessreviews" }), up, []Answerer{Cloud}},
		"a bearer":           {with(token, kept), up, []Answerer{Cloud, Follow, Recall}},
		"a bearer, cut":      {with(token, kept), down, []Answerer{Follow, Recall, Cloud}},
		"a bearer, not kept": {token, down, []Answerer{Cloud}},
		"a namespace's access": {with(access, func(r *Request) {
			r.Resource, r.Namespace = "localsubjectaccessreviews", "shop"
		}), up, []Answerer{Cloud}},
	} {
		for _, stood := range []bool{true, false} {
			tc.s.StandIn, tc.s.CoordinatorLink = stood, link.Up
			if got := Decide(tc.req, tc.s).Answerers; !slices.Equal(got, tc.want) {
				t.Errorf("%s (stand-in: %v): %v, want %v", name, stood, got, tc.want)
			}
		}
	}
}
