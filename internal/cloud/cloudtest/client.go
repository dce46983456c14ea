package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"yurtcoordinator/apis"
)

// within is how long Eventually waits. It is long, because only a failing test waits that long.
const within = 60 * time.Second

// Scheme knows all kinds of Kubernetes, CRDs and our own.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(kubernetes.AddToScheme(s), apiextensionsv1.AddToScheme(s), apis.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

// Client returns a client with Scheme that asks the API server itself.
func Client(t testing.TB, cfg *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: Scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// As returns a configuration for another user, by impersonation.
func As(cfg *rest.Config, user string, groups ...string) *rest.Config {
	as := rest.CopyConfig(cfg)
	as.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return as
}

// Restricted returns a configuration for a user who has only these rights, in the whole cluster. It waits until the API server
// grants them, because the API server learns of roles and bindings by watches. Tests that share a server may use the same user
// if they give it the same rules.
func Restricted(t testing.TB, cfg *rest.Config, user string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "cloudtest:" + user}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := Client(t, cfg).Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	for _, rule := range rules {
		asked := &authorizationv1.SubjectAccessReview{Spec: reviewOf(rule)}
		asked.Spec.User = user
		Eventually(t, "the rights of "+user, func() error {
			review := asked.DeepCopy()
			if err := Client(t, cfg).Create(t.Context(), review); err != nil || review.Status.Allowed {
				return err
			}
			return fmt.Errorf("not yet: %v", rule)
		})
	}
	return As(cfg, user)
}

// reviewOf asks for one of the rights that the rule gives.
func reviewOf(rule rbacv1.PolicyRule) authorizationv1.SubjectAccessReviewSpec {
	if len(rule.NonResourceURLs) > 0 {
		return authorizationv1.SubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: rule.Verbs[0], Path: rule.NonResourceURLs[0]},
		}
	}
	asked := &authorizationv1.ResourceAttributes{Verb: rule.Verbs[0], Group: rule.APIGroups[0]}
	asked.Resource, asked.Subresource, _ = strings.Cut(rule.Resources[0], "/")
	if len(rule.ResourceNames) > 0 {
		asked.Name = rule.ResourceNames[0]
	}
	return authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: asked}
}

// Eventually waits until check returns nil. If it never does, the test fails with its last error.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(within); time.Now().Before(deadline) && t.Context().Err() == nil; {
		if err = check(); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond) // waits for another process
	}
	t.Fatalf("%s: not within %v: %v", what, within, err)
}

// Quiet fails the test unless writes cease. One write may come after the call, because it may have been under way when the test
// saw the result. After that, no write may come for the time silence.
func Quiet(t testing.TB, writes func() []string, silence time.Duration) {
	t.Helper()
	first := writes()
	Eventually(t, "silence", func() error {
		before := writes()
		if len(before) > len(first)+1 {
			t.Fatalf("writes without need: %v", before[len(first):])
		}
		time.Sleep(silence) // proves that something does not happen
		if after := writes(); len(after) > len(before) {
			return fmt.Errorf("written: %v", after[len(before):])
		}
		return nil
	})
}

// Manager runs a manager with the controllers that the function add registers, until stop is called or the test ends. Unless
// the options say otherwise, the manager uses Scheme, serves nothing and elects no leader.
func Manager(t testing.TB, cfg *rest.Config, o manager.Options, add func(manager.Manager) error) (stop func()) {
	t.Helper()
	if o.Scheme == nil {
		o.Scheme = Scheme(t)
	}
	if o.Metrics.BindAddress == "" {
		o.Metrics = server.Options{BindAddress: "0"}
	}
	if o.Logger.GetSink() == nil {
		o.Logger = logr.Discard()
	}
	mgr, err := manager.New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := add(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // stop ends it, after the test's own context
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// May returns a rule for Restricted.
func May(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// Requests counts requests, by method and path.
type Requests struct {
	mu   sync.Mutex
	sent []string
}

// Count returns a copy of cfg that counts requests.
func Count(cfg *rest.Config) (*rest.Config, *Requests) {
	counted, r := rest.CopyConfig(cfg), &Requests{}
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			r.mu.Lock()
			r.sent = append(r.sent, req.Method+" "+req.URL.Path)
			r.mu.Unlock()
			return next.RoundTrip(req)
		})
	})
	return counted, r
}

// Sent returns the requests so far, as "GET /api/v1/nodes/n1".
func (r *Requests) Sent() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

// Writes returns the requests so far that change something, as "PATCH /api/v1/nodes/n1", without Events.
func (r *Requests) Writes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var writes []string
	for _, s := range r.sent {
		if !strings.HasPrefix(s, http.MethodGet) && !strings.Contains(s, "/events") {
			writes = append(writes, s)
		}
	}
	return writes
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
