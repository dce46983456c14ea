package charts

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/plugin"
)

// roleFor returns a role of the chart's.
func roleFor(t *testing.T, name string) (rules []rbacv1.PolicyRule, with map[string]string) {
	t.Helper()
	out, err := template(t, append([]string{"--show-only", "templates/people.yaml"}, required...)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range documents(t, out) {
		if o := parse(t, doc); o.GetName() == name {
			var role rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
				t.Fatal(err)
			}
			return role.Rules, role.Labels
		}
	}
	t.Fatalf("the chart has no role %s", name)
	return nil, nil
}

// words are the rights of rules, each as "verb resource".
func words(rules []rbacv1.PolicyRule) sets.Set[string] {
	all := sets.New[string]()
	for _, r := range rules {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				all.Insert(verb + " " + resource)
			}
		}
	}
	return all
}

// recorder passes requests on for somebody, and writes down which there were.
type recorder struct {
	*httptest.Server
	mu   sync.Mutex // guards the rest
	code map[string]int
}

func record(t *testing.T, as *rest.Config) *recorder {
	t.Helper()
	to, err := url.Parse(as.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(as)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{code: map[string]int{}}
	infos := request.RequestInfoFactory{
		APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
	}
	r.Server = httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite:      func(p *httputil.ProxyRequest) { p.SetURL(to) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ModifyResponse: func(answer *http.Response) error {
			info, err := infos.NewRequestInfo(answer.Request)
			if err != nil || !info.IsResourceRequest {
				return err
			}
			what := info.Verb + " " + info.Resource
			if info.Subresource != "" {
				what += "/" + info.Subresource
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.code[what] = answer.StatusCode
			return nil
		},
	})
	t.Cleanup(r.Close)
	return r
}

// asked returns the requests that were answered with a 403, or the others.
func (r *recorder) asked(refused bool) sets.Set[string] {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := sets.New[string]()
	for what, code := range r.code {
		if (code == http.StatusForbidden) == refused {
			all.Insert(what)
		}
	}
	return all
}

// commandsOf runs each command of kubectl yurt that reads for viewers, and returns what they said.
func commandsOf(t *testing.T, server, pool, node string) {
	t.Helper()
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	for _, c := range []struct {
		words string
		says  string // in its output or its error
		fails bool
	}{
		{"status", pool, false},
		{"status " + pool, pool, false},
		{"status -w", pool, false},
		{"why " + node, node, false},
		{"check " + node, "heartbeat", true}, // nobody has heard from it for long
		{"leader " + pool, node, false},
		{"traffic " + pool, "", true}, // no hub has said anything
		{"bundle " + pool + " -f " + bundle, bundle, false},
		{"__complete status p", pool, false},
		{"__complete why p", node, false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if strings.Contains(c.words, "-w") {
			ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
		}
		var out bytes.Buffer
		cmd := plugin.New(&out, io.Discard)
		args := strings.Fields(c.words)
		cmd.SetArgs(append(args[:1:1], append([]string{"--kubeconfig=/dev/null", "--server=" + server}, args[1:]...)...))
		err := cmd.ExecuteContext(ctx)
		cancel()
		if said := out.String(); (err != nil) != c.fails || !strings.Contains(said, c.says) {
			t.Errorf("kubectl yurt %s: %v\n%s", c.words, err, said)
		}
	}
}

// TestAPoolViewerReadsAllThatThePluginReads, and may do nothing else: its role has what was asked for, no more and no less.
func TestAPoolViewerReadsAllThatThePluginReads(t *testing.T) {
	const pool, node, ana = "looked-at", "looked-at-n1", "ana-the-viewer"
	cfg := policed(t)
	c := cloudtest.Client(t, cfg)
	create(t, c, &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool}})
	create(t, c, coordinator(pool, pool))
	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{edge.LabelNodePool: pool}}})
	create(t, c, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: edge.NamespaceSystem, Name: "coordinator-of-" + pool,
			Labels: map[string]string{edge.LabelApp: edge.AppCoordinator, edge.LabelNodePool: pool},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "coordinator", Image: "none"}}},
	})
	for _, name := range []string{node, edge.PoolName(pool).ReportLease(0)} {
		create(t, c, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: corev1.NamespaceNodeLease, Name: name, Labels: map[string]string{edge.LabelNodePool: pool},
			},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(node), RenewTime: ptr.To(metav1.NowMicro())},
		})
	}
	rules, _ := roleFor(t, "openyurt:pool-viewer")
	viewer := record(t, cloudtest.Restricted(t, cfg, ana, rules...))
	commandsOf(t, viewer.URL, pool, node)
	may := words(rules)
	got := viewer.asked(false)
	if !got.Equal(may) {
		t.Errorf("the plugin needs %v besides the role, and the role has %v for nothing", got.Difference(may).UnsortedList(),
			may.Difference(got).UnsortedList())
	}
	// What the commands do without.
	spare := sets.New("list configmaps", "list pods")
	if refused := viewer.asked(true); !refused.Equal(spare) {
		t.Errorf("refused was %v, want %v", refused.UnsortedList(), spare.UnsortedList())
	}

	more, _ := roleFor(t, "openyurt:pool-bundle")
	whole := record(t, cloudtest.Restricted(t, cfg, ana+"-who-helps", slices.Concat(rules, more)...))
	commandsOf(t, whole.URL, pool, node)
	if needs := whole.asked(false).Union(whole.asked(true)).Delete("list configmaps"); !needs.Equal(may.Union(words(more))) {
		t.Errorf("bundle asks for %v", needs.UnsortedList())
	}
}

// TestARequesterAsksForAViewersCertificate, and who may not is told which role may.
func TestARequesterAsksForAViewersCertificate(t *testing.T) {
	const pool, node, ana = "asked-for", "asked-for-n1", "ana-the-requester"
	cfg := policed(t)
	c := cloudtest.Client(t, cfg)
	create(t, c, &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool}})
	seat, n := coordinator(pool, pool), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{edge.LabelNodePool: pool}},
	}
	create(t, c, seat)
	create(t, c, n)
	seat.Status.Coordinators = []v1alpha1.CoordinatorInSlot{{NodeName: node}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.7.9"}}
	for _, o := range []client.Object{seat, n} {
		if err := c.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	looks, _ := roleFor(t, "openyurt:pool-viewer")
	asks, _ := roleFor(t, "openyurt:certificate-requester")
	run := func(user string, rules []rbacv1.PolicyRule) (*recorder, error) {
		r := record(t, cloudtest.Restricted(t, cfg, user, rules...))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		cmd := plugin.New(io.Discard, io.Discard)
		cmd.SetArgs([]string{"kubeconfig", pool, "--view", "--kubeconfig=/dev/null", "--server=" + r.URL})
		return r, cmd.ExecuteContext(ctx)
	}
	if _, err := run(ana+"-who-may-not", looks); err == nil || !strings.Contains(err.Error(), "openyurt:certificate-requester") {
		t.Errorf("whoever may not ask: %v", err)
	}
	r, err := run(ana, slices.Concat(looks, asks))
	if err == nil || !strings.Contains(err.Error(), "nobody has approved view-"+pool) {
		t.Errorf("whoever may ask: %v", err)
	}
	needs := r.asked(false).Delete("create selfsubjectreviews") // which everybody may
	if !needs.IsSuperset(words(asks)) || !words(slices.Concat(looks, asks)).IsSuperset(needs) || r.asked(true).Len() > 0 {
		t.Errorf("asked for %v, refused was %v", needs.UnsortedList(), r.asked(true).UnsortedList())
	}
	var all certificatesv1.CertificateSigningRequestList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all.Items, func(r certificatesv1.CertificateSigningRequest) bool {
		return r.Spec.Username == ana && r.Spec.SignerName == edge.SignerPeople+pool
	}) {
		t.Error("there is no request in her name")
	}
}

// TestWhoSeesOurKinds: Kubernetes' own roles get ours by labels that they select by. edit includes view, and admin includes edit.
func TestWhoSeesOurKinds(t *testing.T) {
	c := cloudtest.Client(t, policed(t))
	has := map[string]rbacv1.ClusterRole{}
	for _, name := range []string{"view", "edit", "admin"} {
		var role rbacv1.ClusterRole
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &role); err != nil {
			t.Fatal(err)
		}
		has[name] = role
	}
	seen, toView := roleFor(t, "openyurt:aggregate-to-view")
	written, toEdit := roleFor(t, "openyurt:aggregate-to-edit")
	for what, got := range map[string]bool{
		"view sees our kinds":          selects(t, has["view"], toView),
		"edit includes view":           selects(t, has["edit"], has["view"].Labels),
		"edit writes YurtAppSets":      selects(t, has["edit"], toEdit),
		"admin includes edit":          selects(t, has["admin"], has["edit"].Labels),
		"view does not write anything": !selects(t, has["view"], toEdit),
	} {
		if !got {
			t.Errorf("not so: %s", what)
		}
	}
	reads := sets.New[string]()
	for _, kind := range []string{"nodepools", "yurtcoordinators", "poolsettings", "yurtappsets"} {
		reads.Insert("get "+kind, "list "+kind, "watch "+kind)
	}
	if !words(seen).Equal(reads) {
		t.Errorf("view gets %v", words(seen).UnsortedList())
	}
	for word := range words(written) {
		if !strings.HasSuffix(word, " yurtappsets") {
			t.Errorf("edit may %s", word)
		}
	}
}

// selects reports whether an aggregating role takes in one with these labels.
func selects(t *testing.T, role rbacv1.ClusterRole, with map[string]string) bool {
	t.Helper()
	if role.AggregationRule == nil {
		t.Fatalf("%s aggregates nothing", role.Name)
	}
	return slices.ContainsFunc(role.AggregationRule.ClusterRoleSelectors, func(s metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			t.Fatal(err)
		}
		return selector.Matches(labels.Set(with))
	})
}
