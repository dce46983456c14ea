package access

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"yurtcoordinator/internal/edge"
)

func TestHints(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{edge.GroupOperators}}
	n1 := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{edge.GroupNodes}}
	carol := &user.DefaultInfo{Name: "carol", Groups: []string{edge.GroupDebuggers}}
	bob := &user.DefaultInfo{Name: "bob", Groups: []string{"people"}}
	vera := &user.DefaultInfo{Name: "vera", Groups: []string{edge.GroupViewers}}
	scraper := &user.DefaultInfo{Name: "scraper", Groups: []string{edge.GroupMetrics}}
	for what, c := range map[string]struct {
		caller             user.Info
		verb, group, thing string
		want               string
	}{
		"an operator deletes a Pod":     {alice, "delete", "", "pods", HintChange},
		"an operator deletes all":       {alice, "deletecollection", "", "pods", HintChange},
		"an operator debugs":            {alice, "patch", "", "pods/ephemeralcontainers", HintChange},
		"an operator drains":            {alice, "create", "", "pods/eviction", HintChange},
		"an operator writes a Secret":   {alice, "create", "", "secrets", HintChange},
		"an operator reads Secrets":     {alice, "list", "", "secrets", HintSecrets},
		"secrets of another group":      {alice, "list", "example.com", "secrets", hintOther},
		"an operator asks a kubelet":    {alice, "get", "", "nodes/proxy", HintProxy},
		"an operator runs by a kubelet": {alice, "create", "", "nodes/proxy", HintProxy},
		"an operator writes a Node":     {alice, "patch", "", "nodes/status", HintChange},
		"an operator asks a Pod":        {alice, "get", "", "pods/proxy", "use kubectl port-forward"},
		"an operator as another":        {alice, "impersonate", "", "users", HintSelf},
		"constrained":                   {alice, "impersonate-on:user-info:list", "", "pods", HintSelf},
		"what is not shown":             {alice, "list", "", "componentstatuses", hintOther},
		"somebody":                      {bob, "get", "", "pods", HintKubeconfig},
		"somebody execs":                {bob, "create", "", "pods/exec", HintKubeconfig},
		"a debugger deletes":            {carol, "delete", "", "pods", HintChange},
		"a viewer reads ConfigMaps":     {vera, "list", "", "configmaps", HintViewer},
		"a viewer execs":                {vera, "create", "", "pods/exec", HintViewer},
		"who reads metrics":             {scraper, "list", "", "pods", HintKubeconfig},
		"a node":                        {n1, "delete", "", "pods", ""},
		"nobody":                        {nil, "delete", "", "pods", ""},
	} {
		resource, sub, _ := strings.Cut(c.thing, "/")
		a := authorizer.AttributesRecord{
			User: c.caller, Verb: c.verb, APIGroup: c.group, Resource: resource, Subresource: sub, ResourceRequest: true,
		}
		if got := hint(a); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
		if decision, _, err := (hints{}).Authorize(t.Context(), a); decision != authorizer.DecisionNoOpinion || err != nil {
			t.Errorf("%s: %v, %v", what, decision, err)
		}
	}
	if got := hint(authorizer.AttributesRecord{User: alice, Verb: "get", Path: "/debug"}); got != "" {
		t.Errorf("of a path: %q", got)
	}
}
