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
		{"creating it", with(func(r *Request) { r.Verb = "create"; r.Name = "" }), on, OwnLease},
		{"creating it, with no coordinator", with(func(r *Request) { r.Verb = "create"; r.Name = "" }), off, Cloud},
		{"creating it with own credentials", with(func(r *Request) {
			r.Verb, r.Name, r.OwnCredentials = "create", "", true
		}), on, Cloud},
		{"creating in another namespace", with(func(r *Request) {
			r.Verb, r.Name, r.Namespace = "create", "", "kube-system"
		}), on, Cloud},
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

func TestWhatIsKept(t *testing.T) {
	pod := Request{Verb: "get", Resource: "pods", Namespace: "a", Name: "p", Path: "/api/v1/namespaces/a/pods/p", Cached: true}
	with := func(change func(*Request)) Request {
		r := pod
		change(&r)
		return r
	}
	token := Request{
		Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "a", Name: "sa", Cached: true,
		Path: "/api/v1/namespaces/a/serviceaccounts/sa/token",
	}
	path := func(verb, path string) Request { return Request{Verb: verb, Path: path, Cached: true} }
	for _, tc := range []struct {
		name string
		req  Request
		want Kind
	}{
		{"an object", pod, Kept},
		{"a list", with(func(r *Request) { r.Verb, r.Name = "list", "" }), Kept},
		{"a watch", with(func(r *Request) { r.Verb, r.Name = "watch", "" }), Kept},
		{"a program whose reads are not kept", with(func(r *Request) { r.Cached = false }), Cloud},
		{"what there is a replica of", with(func(r *Request) { r.Replicated = true }), Replica},
		{"credentials of its own", with(func(r *Request) { r.OwnCredentials = true }), Cloud},
		{"a list with credentials of its own", with(func(r *Request) { r.Verb, r.OwnCredentials = "list", true }), Cloud},
		{"as somebody else", with(func(r *Request) { r.AssumesIdentity = "Impersonate-User" }), Refused},
		{"as somebody else, with credentials",
			with(func(r *Request) { r.AssumesIdentity, r.OwnCredentials = "Impersonate-User", true }), Cloud},
		{"a subresource", with(func(r *Request) { r.Subresource = "log" }), Cloud},
		{"a status", with(func(r *Request) { r.Subresource = "status" }), Cloud},
		{"creating", with(func(r *Request) { r.Verb = "create" }), Cloud},
		{"changing", with(func(r *Request) { r.Verb = "patch" }), Cloud},
		{"deleting", with(func(r *Request) { r.Verb = "delete" }), Cloud},
		{"deleting all", with(func(r *Request) { r.Verb = "deletecollection" }), Cloud},
		{"a proxy", with(func(r *Request) { r.Verb = "proxy" }), Cloud},
		{"a token", token, Kept},
		{"a token for credentials of its own",
			func() Request { r := token; r.OwnCredentials = true; return r }(), Cloud},
		{"reading a token", func() Request { r := token; r.Verb = "get"; return r }(), Cloud},
		{"a token of another group", func() Request { r := token; r.Group = "example.org"; return r }(), Cloud},
		{"a token of something else", func() Request { r := token; r.Resource = "pods"; return r }(), Cloud},
		{"who somebody is",
			Request{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews", Cached: true}, Kept},
		{"what somebody may",
			Request{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Cached: true}, Kept},
		{"what oneself may",
			Request{Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews", Cached: true}, Cloud},
		{"a known caller's object", with(func(r *Request) { r.OwnCredentials, r.Known = true, true }), Kept},
		{"a known caller's, of what there is a replica of",
			with(func(r *Request) { r.OwnCredentials, r.Known, r.Replicated = true, true, true }), Replica},
		{"a known caller as somebody else", with(func(r *Request) {
			r.OwnCredentials, r.Known, r.Replicated, r.AssumesIdentity = true, true, true, "Impersonate-User"
		}), Cloud},
		{"a token for a known caller",
			func() Request { r := token; r.OwnCredentials, r.Known = true, true; return r }(), Cloud},
		{"version", path("get", "/version"), Kept},
		{"groups", path("get", "/apis"), Kept},
		{"a group", path("get", "/apis/apps/v1"), Kept},
		{"the core group", path("get", "/api/v1"), Kept},
		{"health", path("get", "/healthz"), Cloud},
		{"readiness", path("get", "/readyz/ping"), Cloud},
		{"metrics", path("get", "/metrics"), Cloud},
		{"another path", path("get", "/apisx"), Cloud},
		{"posting", path("post", "/apis"), Cloud},
		{"the head alone", path("head", "/apis"), Cloud},
		{"discovery with credentials of its own",
			Request{Verb: "get", Path: "/apis", Cached: true, OwnCredentials: true}, Cloud},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Decide(tc.req, Situation{Node: "n1", Coordinator: true}); got.Kind != tc.want {
				t.Errorf("goes to %v, want %v", got.Kind, tc.want)
			}
		})
	}
}

// Whoever brings credentials of its own is answered by the API server, whatever else the request is.
func TestOwnCredentialsAreNeverAnsweredFromWhatTheNodeHas(t *testing.T) {
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
		for _, resource := range []string{"", "pods", "secrets", "serviceaccounts", "leases"} {
			for _, subresource := range []string{"", "token", "status"} {
				for _, name := range []string{"", "n1"} {
					r := Request{
						Verb: verb, Resource: resource, Subresource: subresource, Namespace: "kube-node-lease", Name: name,
						Path: "/apis", Cached: true, Replicated: true, OwnCredentials: true,
					}
					if resource == "leases" {
						r.Group = "coordination.k8s.io"
					}
					if got := Decide(r, Situation{Node: "n1", Coordinator: true}); got.Kind != Cloud {
						t.Errorf("%+v goes to %v", r, got.Kind)
					}
				}
			}
		}
	}
}
