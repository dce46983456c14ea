package model_test

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/kubernetes/plugin/pkg/admission/noderestriction"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/sim/model"
)

// Kubernetes' own plugins judge what is written.
func TestInternal(t *testing.T) {
	plugin := noderestriction.NewPlugin(nodeidentifier.NewDefaultNodeIdentifier())
	plugin.InspectFeatureGates(utilfeature.DefaultFeatureGate)
	plugin.SetExternalKubeInformerFactory(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	plugin.SetAuthorizer(authorizerfactory.NewAlwaysAllowAuthorizer())
	if err := plugin.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	s := model.NewServer(model.Config{
		Store: model.NewStore(), Clock: clock.RealClock{}, Random: model.NewRandom(0),
		Admission: model.Internal(legacyscheme.Scheme, plugin),
	})
	node := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup}}
	send := func(who user.Info, method, path, body string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://cloud"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := (&model.Wire{Handler: s, User: who}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil {
			t.Error(err)
		}
		return answer.StatusCode
	}
	send(&user.DefaultInfo{Name: "me"}, "POST", "/api/v1/namespaces", `{"metadata":{"name":"kube-node-lease"}}`)
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"POST", leases, `{"metadata":{"name":"n1"}}`, http.StatusCreated},
		{"POST", leases, `{"metadata":{"name":"n2"}}`, http.StatusForbidden},
		{"PUT", leases + "/n1", `{"metadata":{"name":"n1","resourceVersion":"3"},"spec":{"holderIdentity":"n1"}}`, http.StatusOK},
		{"POST", nodes, `{"metadata":{"name":"n1","labels":{"node-restriction.kubernetes.io/a":"b"}}}`, http.StatusForbidden},
		{"POST", nodes, `{"metadata":{"name":"n1"}}`, http.StatusCreated},
		{"PUT", nodes + "/n1", `{"metadata":{"name":"n1"}}`, http.StatusForbidden}, // it takes the taint of new nodes away
		{"DELETE", leases + "/n1", ``, http.StatusOK},
	} {
		if code := send(node, c.method, c.path, c.body); code != c.code {
			t.Errorf("%s %s %s: %d, must be %d", c.method, c.path, c.body, code, c.code)
		}
	}
}
