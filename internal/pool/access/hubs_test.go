package access

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"yurtcoordinator/internal/edge"
)

func TestNodesDoWhatHubsDo(t *testing.T) {
	n1 := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{edge.GroupNodes}}
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{edge.GroupOperators}}
	const no, deny = authorizer.DecisionNoOpinion, authorizer.DecisionDeny
	for what, c := range map[string]struct {
		caller                               user.Info
		verb, group, resource, sub, in, name string
		want                                 authorizer.Decision
	}{
		"its heartbeat":           {n1, "update", "coordination.k8s.io", "leases", "", "kube-node-lease", "n1", no},
		"all heartbeats":          {n1, "watch", "coordination.k8s.io", "leases", "", "kube-node-lease", "", no},
		"the election":            {n1, "update", "coordination.k8s.io", "leases", "", "kube-system", "leader", no},
		"who is it":               {n1, "create", "authentication.k8s.io", "tokenreviews", "", "", "", deny},
		"may he":                  {n1, "create", "authorization.k8s.io", "subjectaccessreviews", "", "", "", deny},
		"all slices":              {n1, "list", "discovery.k8s.io", "endpointslices", "", "", "", no},
		"endpoints of a Service":  {n1, "get", "", "endpoints", "", "shop", "web", no},
		"an Event":                {n1, "create", "", "events", "", "default", "", deny},
		"an Event of the new API": {n1, "create", "events.k8s.io", "events", "", "default", "", deny},
		"another's Event":         {n1, "patch", "", "events", "", "kube-system", "e", deny},
		"its Node":                {n1, "create", "", "nodes", "", "", "n1", deny},
		"its Node's status":       {n1, "patch", "", "nodes", "status", "", "n1", deny},
		"reads its Node":          {n1, "get", "", "nodes", "", "", "n1", deny},
		"a mirror Pod":            {n1, "create", "", "pods", "", "default", "", deny},
		"deletes its Pod":         {n1, "delete", "", "pods", "", "default", "p", deny},
		"a Pod's status":          {n1, "patch", "", "pods", "status", "default", "p", deny},
		"its CSINode":             {n1, "create", "storage.k8s.io", "csinodes", "", "", "n1", deny},
		"a slice of devices":      {n1, "create", "resource.k8s.io", "resourceslices", "", "", "", deny},
		"a Secret":                {n1, "get", "", "secrets", "", "shop", "s", deny},
		"a ConfigMap":             {n1, "get", "", "configmaps", "", "shop", "s", deny},
		"a token":                 {n1, "create", "", "serviceaccounts", "token", "shop", "web", deny},
		"a request to sign":       {n1, "create", "certificates.k8s.io", "certificatesigningrequests", "", "", "", deny},
		"other Leases":            {n1, "create", "coordination.k8s.io", "leases", "", "default", "", deny},
		"a Lease of no namespace": {n1, "list", "coordination.k8s.io", "leases", "", "", "", deny},
		"part of a Lease":         {n1, "update", "coordination.k8s.io", "leases", "status", "kube-node-lease", "n1", deny},
		"what an operator does":   {alice, "list", "", "pods", "", "", "", no},
	} {
		a := authorizer.AttributesRecord{
			User: c.caller, Verb: c.verb, APIGroup: c.group, Resource: c.resource, Subresource: c.sub,
			Namespace: c.in, Name: c.name, ResourceRequest: true,
		}
		got, why, err := newAsHubs().Authorize(t.Context(), a)
		if got != c.want || err != nil || (c.want == deny) != strings.Contains(why, "what its hub does") {
			t.Errorf("%s: %v %q %v, want %v", what, got, why, err, c.want)
		}
	}
	got, _, _ := newAsHubs().Authorize(t.Context(), authorizer.AttributesRecord{User: n1, Verb: "get", Path: edge.PathMirror})
	if got != no {
		t.Errorf("a path: %v", got)
	}
}
