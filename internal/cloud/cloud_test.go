package cloud

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/cloud/coordinator"
	"yurtcoordinator/internal/edge"
)

// cloudStub answers what the program asks of an API server with one node whose Lease is annotated, and an autonomous one
// with a Pod. It does not change: what is written to it is handed to the test.
type cloudStub struct {
	t       *testing.T
	patches chan patch
}

type patch struct{ path, query, body string }

func (s *cloudStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPatch:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			s.t.Error(err)
		}
		select {
		case s.patches <- patch{r.URL.Path, query.Encode(), string(body)}:
		default: // the test has seen enough
		}
		if strings.HasPrefix(r.URL.Path, "/api/v1/nodes/") {
			s.answer(w, http.StatusOK, stubNode())
		} else {
			s.answer(w, http.StatusOK, stubPod())
		}
	case r.Method == http.MethodPost && r.URL.Path == "/apis/authentication.k8s.io/v1/tokenreviews":
		s.review(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		s.reviewAccess(w, r)
	case r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/apis/events.k8s.io/"):
		w.WriteHeader(http.StatusCreated) // the recorder does not look at the answer
	case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/kube-system/configmaps/"):
		http.NotFound(w, r) // nothing is on any roll
	case r.Method == http.MethodDelete &&
		r.URL.Path == "/api/v1/namespaces/kube-system/configmaps/"+edge.ConfigMapCoordinatedPools,
		strings.HasPrefix(r.URL.Path, "/apis/apps.openyurt.io/") && strings.Count(r.URL.Path, "/") > 3:
		http.NotFound(w, r) // what a controller that is off has left: its kinds are not installed
	case query.Get("sendInitialEvents") == "true":
		s.answer(w, http.StatusUnprocessableEntity, &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
	case query.Get("watch") == "true":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.URL.Path == "/api/v1/nodes":
		s.answer(w, http.StatusOK, &corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Node{*stubNode(), *autonomousNode()}})
	case r.URL.Path == "/api/v1/pods" && (query.Get("limit") == "1" || query.Get("fieldSelector") == "spec.nodeName=n2"):
		s.answer(w, http.StatusOK, &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.Pod{*stubPod()}})
	case r.URL.Path == "/api/v1/namespaces/kube-system/pods" && strings.Contains(query.Get("labelSelector"), "yurthub-upgrade"):
		s.answer(w, http.StatusOK, &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}})
	case r.URL.Path == "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases":
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: "kube-node-lease", UID: "l1",
			Annotations: map[string]string{edge.DelegateHeartbeat: "true"}}}
		s.answer(w, http.StatusOK, &coordinationv1.LeaseList{
			TypeMeta: metav1.TypeMeta{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []coordinationv1.Lease{lease}})
	case r.URL.Path == "/apis/certificates.k8s.io/v1/certificatesigningrequests" &&
		query.Get("fieldSelector") == "spec.signerName!=kubernetes.io/kube-apiserver-client-kubelet":
		s.answer(w, http.StatusOK, &certificatesv1.CertificateSigningRequestList{
			TypeMeta: metav1.TypeMeta{Kind: "CertificateSigningRequestList", APIVersion: "certificates.k8s.io/v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
	case r.URL.Path == "/apis/apps.openyurt.io/v1beta2": // not installed
		s.answer(w, http.StatusNotFound, &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	default:
		s.t.Errorf("asked for %s %s", r.Method, r.URL)
		http.NotFound(w, r)
	}
}

// review knows the tokens prometheus and somebody.
func (s *cloudStub) review(w http.ResponseWriter, r *http.Request) {
	review := &authenticationv1.TokenReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		s.t.Error(err)
	}
	if user := review.Spec.Token; user == "prometheus" || user == "somebody" {
		review.Status = authenticationv1.TokenReviewStatus{
			Authenticated: true, User: authenticationv1.UserInfo{Username: user},
		}
	}
	s.answer(w, http.StatusCreated, review)
}

// reviewAccess lets prometheus get /metrics.
func (s *cloudStub) reviewAccess(w http.ResponseWriter, r *http.Request) {
	review := &authorizationv1.SubjectAccessReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		s.t.Error(err)
	}
	asked := review.Spec.NonResourceAttributes
	review.Status.Allowed = review.Spec.User == "prometheus" && asked != nil && asked.Path == "/metrics" && asked.Verb == "get"
	s.answer(w, http.StatusCreated, review)
}

func stubNode() *corev1.Node {
	return &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "n1", UID: types.UID("u1"), ResourceVersion: "7", Labels: map[string]string{edge.LabelNodePool: "p1"},
		}}
}

func autonomousNode() *corev1.Node {
	node := stubNode()
	node.Name, node.UID, node.Annotations = "n2", "u2", map[string]string{edge.AnnotationAutonomy: "true", "other": "x"}
	return node
}

func stubPod() *corev1.Pod {
	seconds := int64(300)
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p1", ResourceVersion: "8",
			Annotations: map[string]string{edge.AnnotationHeldSince: "2026-11-21T12:00:00Z"}},
		Spec: corev1.PodSpec{NodeName: "n2", Tolerations: []corev1.Toleration{{
			Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		}, {
			Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: &seconds,
		}}}}
}

func (s *cloudStub) answer(w http.ResponseWriter, code int, obj any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(obj); err != nil {
		s.t.Error(err)
	}
}

func kubeconfigFor(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`, server)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// freeAddress returns a loopback address that nobody listened on a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// quiet is a context whose logger discards.
func quiet(t *testing.T) context.Context {
	return klog.NewContext(t.Context(), logr.Discard())
}

// TestRun starts the whole program against a stub of an API server, twice, for it must leave nothing behind.
func TestRun(t *testing.T) {
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			stub := &cloudStub{t: t, patches: make(chan patch, 16)}
			server := httptest.NewServer(stub)
			defer server.Close()
			ctx, stop := context.WithTimeout(quiet(t), 2*time.Minute)
			defer stop()
			c := Config{
				Heartbeats: true, Autonomy: true, PoolCuts: true, Signer: true,
				Connect:        Kubeconfig(kubeconfigFor(t, server.URL)),
				HealthAddress:  freeAddress(t),
				MetricsAddress: freeAddress(t),
			}
			running, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- Run(running, c) }()

			wanted := map[string]string{
				"/api/v1/nodes/n1": `{"metadata":{"resourceVersion":"7"},"spec":{"taints":[{"effect":"NoSchedule",` +
					`"key":"node.openyurt.io/unschedulable"}]}}`,
				"/api/v1/nodes/n2/status": `"type":"PodsKept"`,
				"/api/v1/namespaces/default/pods/p": `[{"op":"replace","path":"/metadata/resourceVersion","value":"8"},` +
					`{"op":"remove","path":"/spec/tolerations/1/tolerationSeconds"},` +
					`{"op":"add","path":"/metadata/annotations/apps.openyurt.io~1original-unreachable-toleration-duration",` +
					`"value":"300"},`,
			}
			for len(wanted) > 0 {
				select {
				case p := <-stub.patches:
					if want, ok := wanted[p.path]; ok && (p.query != "fieldManager=coordinator-controller" ||
						!strings.Contains(p.body, want)) {
						t.Errorf("patch %+v, want %s", p, want)
					}
					delete(wanted, p.path) // what is not written down is written again
				case err := <-ended:
					t.Fatalf("Run = %v before it was asked to stop", err)
				}
			}
			get(ctx, t, "http://"+c.HealthAddress+"/healthz", "")
			get(ctx, t, "http://"+c.HealthAddress+"/readyz", "")
			if text := get(ctx, t, "https://"+c.MetricsAddress+"/metrics", "prometheus"); !strings.Contains(text,
				`coordinator_controller_delegated_nodes{pool="p1"} 0`) { // annotated, but not seen to be renewed
				t.Errorf("metrics lack the delegated nodes:\n%s", text)
			} else if !strings.Contains(text, `coordinator_controller_autonomous_nodes{pool="p1",rule="Kept"} 1`) {
				t.Errorf("metrics lack the autonomous nodes:\n%s", text)
			}
			isClosed(t, c.MetricsAddress)
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run = %v after it was asked to stop", err)
			}
			if conn, err := net.Dial("tcp", c.HealthAddress); err == nil {
				conn.Close()
				t.Error("still serves after Run returned")
			}
		})
	}
}

// isClosed expects that /metrics tells nothing to those whom the API server does not know, or not let get it, nor in the clear.
func isClosed(t *testing.T, address string) {
	t.Helper()
	for token, want := range map[string]int{
		"": http.StatusUnauthorized, "made-up": http.StatusInternalServerError, "somebody": http.StatusForbidden,
	} {
		for _, path := range []string{"/metrics", "/metrics/", "/", "/debug/pprof/"} {
			code, text, err := ask(t.Context(), "https://"+address+path, token)
			if path != "/metrics" {
				want = http.StatusNotFound
			}
			if err != nil || code != want || strings.Contains(text, "coordinator_controller") {
				t.Errorf("%s, with the token %q: %d, %v, want %d: %s", path, token, code, err, want, text)
			}
		}
	}
	if _, text, err := ask(t.Context(), "https://"+address+"/metrics", "prometheus"); err != nil || !strings.Contains(text,
		`coordinator_controller_metrics_answers_total{code="403"} 1`) {
		t.Errorf("the refusal is not counted: %v\n%s", err, text)
	}
	code, text, err := ask(t.Context(), "http://"+address+"/metrics", "prometheus")
	if err == nil && code != http.StatusBadRequest {
		t.Errorf("in the clear: %d %s", code, text)
	}
}

// anyServer is a client that does not look at certificates.
var anyServer = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
	DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
}}

func ask(ctx context.Context, url, token string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := anyServer.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// get asks until the answer is 200.
func get(ctx context.Context, t *testing.T, url, token string) string {
	t.Helper()
	for {
		code, body, err := ask(ctx, url, token)
		if ctx.Err() != nil {
			t.Fatalf("GET %s: %d, %v", url, code, err)
		}
		if err == nil && code == http.StatusOK {
			return body
		}
	}
}

// TestMetricsCertificate: a certificate that is in the directory is shown; without one, another.
func TestMetricsCertificate(t *testing.T) {
	stub := httptest.NewServer(&cloudStub{t: t, patches: make(chan patch, 16)})
	defer stub.Close()
	dir := t.TempDir()
	shown := func(given bool) {
		if given {
			certificate, key, err := cert.GenerateSelfSignedCertKey("metrics.example.org", nil, nil)
			if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600),
				os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithTimeout(quiet(t), time.Minute)
		defer stop()
		c := Config{
			Heartbeats: true, Autonomy: true, PoolCuts: true, Signer: true,
			Connect: Kubeconfig(kubeconfigFor(t, stub.URL)), HealthAddress: "0",
			MetricsAddress: freeAddress(t), MetricsCertDir: dir,
		}
		running, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- Run(running, c) }()
		get(ctx, t, "https://"+c.MetricsAddress+"/metrics", "prometheus")
		dialer := &tls.Dialer{Config: anyServer.Transport.(*http.Transport).TLSClientConfig}
		conn, err := dialer.DialContext(ctx, "tcp", c.MetricsAddress)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
		if (leaf.VerifyHostname("metrics.example.org") == nil) != given {
			t.Errorf("with a certificate %t: %v", given, leaf.DNSNames)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	shown(false)
	shown(true)
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("clusters: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	unreached := Kubeconfig(kubeconfigFor(t, "http://127.0.0.1:1"))
	paced := func(r coordinator.Rollout) (c Config) {
		c.Coordinator.Rollout = r
		return c
	}
	for _, tt := range []struct {
		name string
		c    Config
		want string
	}{
		{"no kubeconfig outside of a cluster", Config{Connect: Kubeconfig("")}, "--kubeconfig is missing"},
		{"missing kubeconfig", Config{Connect: Kubeconfig("/nonexistent/kc")}, "/nonexistent/kc"},
		{"broken kubeconfig", Config{Connect: Kubeconfig(broken)}, "--kubeconfig " + broken},
		{"health address taken",
			Config{Connect: unreached, HealthAddress: taken.Addr().String(), MetricsAddress: "0"},
			"address already in use"},
		{"metrics address taken",
			Config{Connect: unreached, HealthAddress: "0", MetricsAddress: taken.Addr().String()},
			"address already in use"},
		{"too long a hold", Config{Connect: unreached, HoldEvictions: 169 * time.Hour}, "up to 168h0m0s"},
		{"no coordinator at a time", paced(coordinator.Rollout{MaxUnavailable: "0"}), "give a number from 1"},
		{"a share of none", paced(coordinator.Rollout{MaxUnavailable: "0%"}), "up to 100%"},
		{"a time that is less than none", paced(coordinator.Rollout{Settle: -1}), "use 0 or more"},
		{"a hold of less than nothing", Config{Connect: unreached, HoldEvictions: -1}, "use 0 for not at all"},
		{"too little patience", Config{Connect: unreached, SilenceAfter: time.Millisecond}, "use at least 2s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Run(quiet(t), tt.c)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Run = %v, want one line with %q", err, tt.want)
			}
		})
	}
}

// What controllers read of a Node's annotations comes through the cache, which drops all others.
func TestCachedAnnotations(t *testing.T) {
	keys := cachedAnnotations(stubNode())
	for _, read := range []string{
		edge.AnnotationLANAddress, edge.AnnotationSettings, edge.AnnotationAutonomy, edge.AnnotationAutonomyDuration,
		edge.AnnotationProgram,
	} {
		if !slices.Contains(keys, read) {
			t.Errorf("%s is not cached", read)
		}
	}
}
