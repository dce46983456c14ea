package front

import (
	"strings"
	"testing"
)

// These stand for several kinds each.
const (
	Replica = PoolRead
	Kept    = Single
)

// coarse tells kinds apart by what the cloud is asked for only where there is nothing else.
func coarse(k Kind) Kind {
	switch k {
	case Listed, Review:
		return Kept
	case Write, UnkeptReview, Status, Event, WaitingEvent:
		return Passed
	default:
		return k
	}
}

func TestDecide(t *testing.T) {
	lease := Request{
		Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease", Name: "n1",
	}
	with := func(change func(*Request)) Request {
		r := lease
		change(&r)
		return r
	}
	on := Situation{Node: "n1"}
	off := Situation{Node: "n1"}
	for _, tc := range []struct {
		name string
		req  Request
		s    Situation
		want Kind
	}{
		{"renewal", lease, on, OwnLease},
		{"reading it", with(func(r *Request) { r.Verb = "get" }), on, OwnLease},
		{"creating it", with(func(r *Request) { r.Verb = "create"; r.Name = "" }), on, OwnLease},
		{"creating it with own credentials", with(func(r *Request) {
			r.Verb, r.Name, r.OwnCredentials = "create", "", true
		}), on, Passed},
		{"creating in another namespace", with(func(r *Request) {
			r.Verb, r.Name, r.Namespace = "create", "", "kube-system"
		}), on, Passed},
		{"patching it", with(func(r *Request) { r.Verb = "patch" }), on, Passed},
		{"deleting it", with(func(r *Request) { r.Verb = "delete" }), on, Passed},
		{"watching it", with(func(r *Request) { r.Verb = "watch" }), on, Passed},
		{"another node's", with(func(r *Request) { r.Name = "n2" }), on, Passed},
		{"another namespace", with(func(r *Request) { r.Namespace = "kube-system" }), on, Passed},
		{"another group", with(func(r *Request) { r.Group = "example.org" }), on, Passed},
		{"another resource", with(func(r *Request) { r.Resource = "leasecandidates" }), on, Passed},
		{"a subresource", with(func(r *Request) { r.Subresource = "status" }), on, Passed},
		{"a caller's own credentials", with(func(r *Request) { r.OwnCredentials = true }), on, Passed},
		{"a hub without a name", with(func(r *Request) { r.Name = "" }), Situation{}, Passed},
		{"pods", Request{Verb: "list", Resource: "pods"}, on, Passed},
		{"a replica's list", Request{Verb: "list", Resource: "endpoints", Replicated: true}, off, Replica},
		{"a replica's list, as a table",
			Request{Verb: "list", Resource: "endpoints", Replicated: true, Table: true}, off, PoolTable},
		{"a replica's watch", Request{Verb: "watch", Resource: "endpoints", Replicated: true}, on, Replica},
		{"a replica's object", Request{Verb: "get", Resource: "endpoints", Name: "a", Replicated: true}, on, Replica},
		{"a write to a replicated resource", Request{Verb: "update", Resource: "endpoints", Replicated: true}, on, Passed},
		{"a replicated resource's subresource",
			Request{Verb: "get", Resource: "services", Subresource: "status", Replicated: true}, on, Passed},
		{"a replica for a caller's own credentials",
			Request{Verb: "list", Resource: "endpoints", Replicated: true, OwnCredentials: true}, on, Passed},
		{"no resource", Request{Verb: "get", Path: "/version"}, on, Passed},
		{"as somebody else", Request{Verb: "get", Resource: "pods", AssumesIdentity: "Impersonate-User"}, off, Refused},
		{"the Lease as somebody else", with(func(r *Request) { r.AssumesIdentity = "X-Remote-User" }), on, Refused},
		{"as somebody else, with credentials",
			Request{Verb: "get", Resource: "pods", OwnCredentials: true, AssumesIdentity: "Impersonate-User"},
			on, Passed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Decide(tc.req, tc.s)
			if coarse(got.Kind) != tc.want {
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
		{"a program whose reads are not kept", with(func(r *Request) { r.Cached = false }), Passed},
		{"what there is a replica of", with(func(r *Request) { r.Replicated = true }), Replica},
		{"credentials of its own", with(func(r *Request) { r.OwnCredentials = true }), Passed},
		{"a list with credentials of its own", with(func(r *Request) { r.Verb, r.OwnCredentials = "list", true }), Passed},
		{"as somebody else", with(func(r *Request) { r.AssumesIdentity = "Impersonate-User" }), Refused},
		{"as somebody else, with credentials",
			with(func(r *Request) { r.AssumesIdentity, r.OwnCredentials = "Impersonate-User", true }), Passed},
		{"a subresource", with(func(r *Request) { r.Subresource = "log" }), Passed},
		{"a status", with(func(r *Request) { r.Subresource = "status" }), Passed},
		{"creating", with(func(r *Request) { r.Verb = "create" }), Passed},
		{"changing", with(func(r *Request) { r.Verb = "patch" }), Passed},
		{"deleting", with(func(r *Request) { r.Verb = "delete" }), Passed},
		{"deleting all", with(func(r *Request) { r.Verb = "deletecollection" }), Passed},
		{"a proxy", with(func(r *Request) { r.Verb = "proxy" }), Passed},
		{"a token", token, Kept},
		{"a token for credentials of its own",
			func() Request { r := token; r.OwnCredentials = true; return r }(), Passed},
		{"reading a token", func() Request { r := token; r.Verb = "get"; return r }(), Passed},
		{"a token of another group", func() Request { r := token; r.Group = "example.org"; return r }(), Passed},
		{"a token of something else", func() Request { r := token; r.Resource = "pods"; return r }(), Passed},
		{"who somebody is",
			Request{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews", Cached: true}, Kept},
		{"what somebody may",
			Request{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Cached: true}, Kept},
		{"what oneself may",
			Request{Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews", Cached: true}, Passed},
		{"a known caller's object", with(func(r *Request) { r.OwnCredentials, r.Known = true, true }), Kept},
		{"a known caller's, of what there is a replica of",
			with(func(r *Request) { r.OwnCredentials, r.Known, r.Replicated = true, true, true }), Replica},
		{"a known caller as somebody else", with(func(r *Request) {
			r.OwnCredentials, r.Known, r.Replicated, r.AssumesIdentity = true, true, true, "Impersonate-User"
		}), Passed},
		{"a token for a known caller",
			func() Request { r := token; r.OwnCredentials, r.Known = true, true; return r }(), Passed},
		{"version", path("get", "/version"), Kept},
		{"groups", path("get", "/apis"), Kept},
		{"a group", path("get", "/apis/apps/v1"), Kept},
		{"the core group", path("get", "/api/v1"), Kept},
		{"health", path("get", "/healthz"), Passed},
		{"readiness", path("get", "/readyz/ping"), Passed},
		{"metrics", path("get", "/metrics"), Passed},
		{"another path", path("get", "/apisx"), Passed},
		{"posting", path("post", "/apis"), Passed},
		{"the head alone", path("head", "/apis"), Passed},
		{"discovery with credentials of its own",
			Request{Verb: "get", Path: "/apis", Cached: true, OwnCredentials: true}, Passed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Decide(tc.req, Situation{Node: "n1"}); coarse(got.Kind) != tc.want {
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
					if got := Decide(r, Situation{Node: "n1"}); coarse(got.Kind) != Passed {
						t.Errorf("%+v goes to %v", r, got.Kind)
					}
				}
			}
		}
	}
}
