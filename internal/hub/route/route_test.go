package route

import (
	"strings"
	"testing"
)

func TestDecide(t *testing.T) {
	lease := Request{
		Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease", Name: "n1",
	}
	with := func(change func(*Request)) Request {
		r := lease
		change(&r)
		return r
	}
	on := Situation{Node: "n1", Coordinator: true}
	off := Situation{Node: "n1"}
	for _, tc := range []struct {
		name string
		req  Request
		s    Situation
		want Kind
	}{
		{"renewal", lease, on, OwnLease},
		{"reading it", with(func(r *Request) { r.Verb = "get" }), on, OwnLease},
		{"no coordinator", lease, off, Cloud},
		{"creating it", with(func(r *Request) { r.Verb = "create"; r.Name = "" }), on, Cloud},
		{"patching it", with(func(r *Request) { r.Verb = "patch" }), on, Cloud},
		{"deleting it", with(func(r *Request) { r.Verb = "delete" }), on, Cloud},
		{"watching it", with(func(r *Request) { r.Verb = "watch" }), on, Cloud},
		{"another node's", with(func(r *Request) { r.Name = "n2" }), on, Cloud},
		{"another namespace", with(func(r *Request) { r.Namespace = "kube-system" }), on, Cloud},
		{"another group", with(func(r *Request) { r.Group = "example.org" }), on, Cloud},
		{"another resource", with(func(r *Request) { r.Resource = "leasecandidates" }), on, Cloud},
		{"a subresource", with(func(r *Request) { r.Subresource = "status" }), on, Cloud},
		{"a caller's own credentials", with(func(r *Request) { r.OwnCredentials = true }), on, Cloud},
		{"a hub without a name", with(func(r *Request) { r.Name = "" }), Situation{Coordinator: true}, Cloud},
		{"pods", Request{Verb: "list", Resource: "pods"}, on, Cloud},
		{"a replica's list", Request{Verb: "list", Resource: "endpoints", Replicated: true}, off, Replica},
		{"a replica's watch", Request{Verb: "watch", Resource: "endpoints", Replicated: true}, on, Replica},
		{"a replica's object", Request{Verb: "get", Resource: "endpoints", Name: "a", Replicated: true}, on, Replica},
		{"a write to a replicated resource", Request{Verb: "update", Resource: "endpoints", Replicated: true}, on, Cloud},
		{"a replicated resource's subresource",
			Request{Verb: "get", Resource: "services", Subresource: "status", Replicated: true}, on, Cloud},
		{"a replica for a caller's own credentials",
			Request{Verb: "list", Resource: "endpoints", Replicated: true, OwnCredentials: true}, on, Cloud},
		{"no resource", Request{Verb: "get", Path: "/version"}, on, Cloud},
		{"as somebody else", Request{Verb: "get", Resource: "pods", AssumesIdentity: "Impersonate-User"}, off, Refused},
		{"the Lease as somebody else", with(func(r *Request) { r.AssumesIdentity = "X-Remote-User" }), on, Refused},
		{"as somebody else, with credentials",
			Request{Verb: "get", Resource: "pods", OwnCredentials: true, AssumesIdentity: "Impersonate-User"},
			on, Cloud},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Decide(tc.req, tc.s)
			if got.Kind != tc.want {
				t.Errorf("goes to %v, want %v", got.Kind, tc.want)
			}
			if (got.Kind == Refused) != (got.Reason != "") {
				t.Errorf("%v with reason %q", got.Kind, got.Reason)
			}
			if got.Kind == Refused && !strings.Contains(got.Reason, tc.req.AssumesIdentity) {
				t.Errorf("reason %q does not name the header", got.Reason)
			}
		})
	}
}

func TestZeroDestinationRefuses(t *testing.T) {
	if k := (Destination{}).Kind; k != Refused || k.String() != "refused" {
		t.Errorf("the zero Destination is %v", k)
	}
}
