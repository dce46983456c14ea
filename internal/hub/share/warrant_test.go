package share

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

const (
	credentialID = "authentication.kubernetes.io/credential-id"

	ours    = "openyurt:yurt-coordinator:p1"
	held    = "X509SHA256=aa"
	ended   = "X509SHA256=bb"
	another = "X509SHA256=cc"
)

// asked is what kubelet asks about the pool's coordinator when it calls exec, with a change.
func asked(change func(*authorizationv1.SubjectAccessReviewSpec)) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: ours, Groups: []string{"system:authenticated"},
		Extra: map[string]authorizationv1.ExtraValue{credentialID: {held}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Version: "v1", Resource: "nodes", Subresource: "proxy", Name: "n1",
		},
	}
	change(&spec)
	return spec
}

func TestJudge(t *testing.T) {
	type spec = authorizationv1.SubjectAccessReviewSpec
	of := func(verb, subresource string) func(*spec) {
		return func(s *spec) { s.ResourceAttributes.Verb, s.ResourceAttributes.Subresource = verb, subresource }
	}
	as := func(name string) func(*spec) { return func(s *spec) { s.User = name } }
	in := func(group string) func(*spec) { return func(s *spec) { s.Groups = append(s.Groups, group) } }
	known := Word{Known: true, Clients: []string{another, held}}
	const rights, certificate = "and nothing else", "certificate"
	for name, c := range map[string]struct {
		change func(*spec)
		word   Word
		pool   string
		about  bool
		why    string // empty: allowed
	}{
		"exec":           {of("create", "proxy"), known, "p1", true, ""},
		"logs":           {of("get", "proxy"), known, "p1", true, ""},
		"top":            {of("get", "metrics"), known, "p1", true, ""},
		"a new one":      {func(s *spec) { s.Extra[credentialID][0] = another }, known, "p1", true, ""},
		"its pods":       {of("get", "pods"), known, "p1", true, rights}, // kubelet asks about proxy next
		"its health":     {of("get", "healthz"), known, "p1", true, rights},
		"its config":     {of("get", "configz"), known, "p1", true, rights},
		"its statistics": {of("get", "stats"), known, "p1", true, rights},
		"the node's log": {of("get", "log"), known, "p1", true, rights},
		"a checkpoint":   {of("create", "checkpoint"), known, "p1", true, rights},
		"deletion":       {of("delete", "proxy"), known, "p1", true, rights},
		"an update":      {of("update", "proxy"), known, "p1", true, rights},
		"any verb":       {of("*", "proxy"), known, "p1", true, rights},
		"posted metrics": {of("create", "metrics"), known, "p1", true, rights},
		"the Node":       {of("get", ""), known, "p1", true, rights},
		"another node":   {func(s *spec) { s.ResourceAttributes.Name = "n2" }, known, "p1", true, rights},
		"any node":       {func(s *spec) { s.ResourceAttributes.Name = "" }, known, "p1", true, rights},
		"another group":  {func(s *spec) { s.ResourceAttributes.Group = "apps" }, known, "p1", true, rights},
		"a namespace":    {func(s *spec) { s.ResourceAttributes.Namespace = "shop" }, known, "p1", true, rights},
		"a Pod's exec": {func(s *spec) {
			s.ResourceAttributes.Resource, s.ResourceAttributes.Subresource = "pods", "exec"
		}, known, "p1", true, rights},
		"a path": {func(s *spec) {
			s.ResourceAttributes = nil
			s.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: "/", Verb: "get"}
		}, known, "p1", true, rights},
		"a path besides": {func(s *spec) {
			s.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: "/", Verb: "get"}
		}, known, "p1", true, rights},

		"a withdrawn certificate": {func(s *spec) { s.Extra[credentialID][0] = ended }, known, "p1",
			true, certificate},
		"no certificate": {func(s *spec) { s.Extra = nil }, known, "p1", true, certificate},
		"two certificates": {func(s *spec) {
			s.Extra[credentialID] = []string{ended, held}
		}, known, "p1", true, certificate},
		"none holds":          {func(*spec) {}, Word{Known: true}, "p1", true, certificate},
		"a group":             {in("system:masters"), known, "p1", true, "in no group"},
		"another pool's":      {as("openyurt:yurt-coordinator:p2"), known, "p1", true, "not the coordinator"},
		"the one of all":      {as("openyurt:yurt-coordinator"), known, "p1", true, "not the coordinator"},
		"nearly its name":     {func(s *spec) { s.User = ours + "x" }, known, "p1", true, "not the coordinator"},
		"an unconfirmed pool": {func(*spec) {}, Word{Clients: []string{held}}, "p1", true, "has not shown"},
		"no pool":             {func(s *spec) { s.User = "openyurt:yurt-coordinator:" }, known, "", true, "has not shown"},

		"the cloud's API server": {func(s *spec) { s.User = "kube-apiserver-kubelet-client" }, known, "p1", false, ""},
		"an operator":            {func(s *spec) { s.User = "openyurt:operator:p1" }, known, "p1", false, ""},
		"nobody":                 {func(s *spec) { s.User = "" }, known, "p1", false, ""},
	} {
		about, why := reviewKubelet(asked(c.change), "n1", edge.PoolName(c.pool), c.word)
		if about != c.about || (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %v %q, want %v %q", name, about, why, c.about, c.why)
		}
	}
}

// TestAnswer: kubelet sends and reads protobuf or JSON, and whatever is not about a coordinator is left to others.
func TestAnswer(t *testing.T) {
	registry := prometheus.NewRegistry()
	v := NewWarrants(WarrantsConfig{Node: "n1", Pool: "p1", Metrics: registry, Word: func() Word {
		return Word{Known: true, Clients: []string{held}}
	}})
	review := func(change func(*authorizationv1.SubjectAccessReviewSpec)) *authorizationv1.SubjectAccessReview {
		return &authorizationv1.SubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"}, Spec: asked(change),
		}
	}
	inJSON := func(o any) []byte {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	mine := review(func(*authorizationv1.SubjectAccessReviewSpec) {})
	theirs := review(func(s *authorizationv1.SubjectAccessReviewSpec) { s.User = "openyurt:yurt-coordinator:p2" })
	raw, err := mine.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	inProtobuf := stream.Envelope(stream.Type{
		GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), Encoding: stream.Protobuf,
	}, raw)
	for name, c := range map[string]struct {
		body              []byte
		accept, encoding  string
		answered, allowed bool
	}{
		"JSON":              {inJSON(mine), "application/json", "", true, true},
		"protobuf":          {inProtobuf, "application/vnd.kubernetes.protobuf,application/json", "", true, true},
		"protobuf for JSON": {inProtobuf, "application/json", "", true, true},
		"another pool's":    {inJSON(theirs), "application/vnd.kubernetes.protobuf", "", true, false},
		"compressed":        {inJSON(mine), "", "gzip", false, false},
		"a large body":      {nil, "", "", false, false},
		"no review":         {[]byte(`{"kind":"Pod","apiVersion":"v1"}`), "", "", false, false},
		"a token's":         {[]byte(`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1"}`), "", "", false, false},
		"nonsense":          {[]byte("may it?"), "", "", false, false},
		"somebody else": {inJSON(review(func(s *authorizationv1.SubjectAccessReviewSpec) { s.User = "ana" })),
			"", "", false, false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews",
			bytes.NewReader(c.body))
		r.Header.Set("Accept", c.accept)
		if c.encoding != "" {
			r.Header.Set("Content-Encoding", c.encoding)
		}
		w := httptest.NewRecorder()
		if v.Answer(w, r, c.body) != c.answered {
			t.Errorf("%s: answered %v", name, !c.answered)
		}
		if !c.answered {
			if w.Body.Len() > 0 || len(w.Header()) > 0 {
				t.Errorf("%s: not answered, but %q was written", name, w.Body)
			}
			continue
		}
		accepts, _, _ := strings.Cut(c.accept, ",")
		got, _, err := scheme.Codecs.UniversalDeserializer().Decode(w.Body.Bytes(), nil, nil)
		answer, ok := got.(*authorizationv1.SubjectAccessReview)
		if err != nil || !ok || w.Code != http.StatusCreated || w.Header().Get("Content-Type") != accepts ||
			bytes.HasPrefix(w.Body.Bytes(), []byte("k8s\x00")) != (accepts == runtime.ContentTypeProtobuf) {
			t.Fatalf("%s: %d %v %q, %v", name, w.Code, w.Header(), w.Body, err)
		}
		if answer.Status.Allowed != c.allowed || answer.Status.Denied || answer.Status.Reason == "" ||
			answer.Spec.ResourceAttributes.Name != "n1" {
			t.Errorf("%s: %+v", name, answer)
		}
	}
	if allowed := testutil.ToFloat64(v.answers.WithLabelValues("allowed")); allowed != 3 {
		t.Errorf("%v were allowed", allowed)
	}
	if refused := testutil.ToFloat64(v.answers.WithLabelValues("refused")); refused != 1 {
		t.Errorf("%v were refused", refused)
	}
}
