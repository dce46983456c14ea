package access

import (
	"context"
	"crypto/x509/pkix"
	"path/filepath"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

// asked is what a review is about.
type asked = authorizer.AttributesRecord

const toKubelets = "openyurt:yurt-coordinator"

// TestWhoMayUseAKubelet tries everybody but the coordinator, and everything but what it needs, where all else is allowed.
func TestWhoMayUseAKubelet(t *testing.T) {
	all := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	dir := t.TempDir()
	ca := pooltest.NewAuthority(t, "ca")
	named := func(name, who string) string {
		return pooltest.WriteFile(t, dir, name, ca.Issue(t, pkix.Name{CommonName: who}, pooltest.Tomorrow()).Cert)
	}
	good := named("client.crt", toKubelets)
	ask := func(verb, subresource string) asked {
		return asked{
			User: &user.DefaultInfo{Name: toKubelets}, Verb: verb, Resource: "nodes", Subresource: subresource, Name: "n1",
			APIVersion: "v1", ResourceRequest: true,
		}
	}
	with := func(change func(*asked)) asked {
		a := ask("create", "proxy")
		change(&a)
		return a
	}
	kubelet := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{edge.GroupNodes}}
	for name, c := range map[string]struct {
		file   string
		caller user.Info
		review asked
		want   bool
	}{
		"exec":                      {good, kubelet, ask("create", "proxy"), true},
		"exec over WebSocket, logs": {good, kubelet, ask("get", "proxy"), true},
		"metrics":                   {good, kubelet, ask("get", "metrics"), true},
		"the kubelet's own logs":    {good, kubelet, ask("get", "log"), false},
		"a checkpoint":              {good, kubelet, ask("create", "checkpoint"), false},
		"its configuration":         {good, kubelet, ask("get", "configz"), false},
		"what it has not":           {good, kubelet, ask("create", "metrics"), false},
		"a deletion":                {good, kubelet, ask("delete", "proxy"), false},
		"the Node":                  {good, kubelet, ask("get", ""), false},
		"of another node":           {good, kubelet, with(func(a *asked) { a.Name = "n2" }), false},
		"of no node":                {good, kubelet, with(func(a *asked) { a.Name = "" }), false},
		"a Secret":                  {good, kubelet, with(func(a *asked) { a.Resource = "secrets" }), false},
		"another group's nodes":     {good, kubelet, with(func(a *asked) { a.APIGroup = "metrics.k8s.io" }), false},
		"a path":                    {good, kubelet, asked{User: ask("", "").User, Verb: "get", Path: "/"}, false},
		"an administrator":          {good, kubelet, with(of("admin", "system:masters")), false},
		"the cloud's API server":    {good, kubelet, with(of("kube-apiserver-kubelet-client", "system:masters")), false},
		"an operator":               {good, kubelet, with(of("alice", edge.GroupOperators)), false},
		"a node":                    {good, kubelet, with(of("system:node:n1", edge.GroupNodes)), false},
		"a Pod":                     {good, kubelet, with(of("system:serviceaccount:shop:web")), false},
		"nobody":                    {good, kubelet, with(of("")), false},
		"nobody, of a certificate":  {named("nobody.crt", ""), kubelet, with(of("")), false},
		"without a certificate":     {"", kubelet, ask("create", "proxy"), false},
		"with one that is not there": {
			filepath.Join(dir, "none"), kubelet, ask("create", "proxy"), false,
		},
		"with one that is none": {
			pooltest.WriteFile(t, dir, "bad.crt", []byte("x")), kubelet, ask("create", "proxy"), false,
		},
		"asked by an operator of himself": {good, &user.DefaultInfo{Name: "alice"}, ask("delete", ""), true}, // the inner one's
		"asked by nobody":                 {good, nil, ask("create", "proxy"), false},
	} {
		ctx := t.Context()
		if c.caller != nil {
			ctx = request.WithUser(ctx, c.caller)
		}
		got, _, err := NewReviews(all, c.file).Authorize(ctx, c.review)
		if err != nil || (got == authorizer.DecisionAllow) != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func of(name string, groups ...string) func(*asked) {
	return func(a *asked) { a.User = &user.DefaultInfo{Name: name, Groups: groups} }
}
