package pool

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/access"
	"yurtcoordinator/internal/pool/pooltest"
)

func heartbeat(name string) *coordinationv1.Lease {
	seconds := int32(40)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       &name,
			LeaseDurationSeconds: &seconds,
			RenewTime:            &metav1.MicroTime{Time: time.Now()},
		},
	}
}

func forbidden(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: got %v, want 403", what, err)
	}
}

// tell replaces what a file says, at once.
func tell(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func allowed(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	n1, n2, alice := c.as(t, pooltest.Node("n1")), c.as(t, pooltest.Node("n2")), c.as(t, pooltest.Operator())
	ctx := t.Context()

	t.Run("a node's heartbeat", func(t *testing.T) {
		own := n1.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		lease, err := own.Create(ctx, heartbeat("n1"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if lease.Annotations[edge.AnnotationCoordinatorHost] != "true" {
			t.Error("the coordinator's own node is not marked")
		}
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		lease.Annotations = nil
		lease, err = own.Update(ctx, lease, metav1.UpdateOptions{})
		allowed(t, "renew", err)
		if lease.Annotations[edge.AnnotationCoordinatorHost] != "true" {
			t.Error("a renewal took the mark off")
		}
		for holder, patch := range map[string]string{"n2": `"n2"`, "nobody": `null`} {
			_, err = own.Patch(ctx, "n1", types.MergePatchType,
				[]byte(`{"spec":{"holderIdentity":`+patch+`}}`), metav1.PatchOptions{})
			forbidden(t, "own Lease held by "+holder, err)
		}
		_, err = own.Create(ctx, heartbeat("n2"), metav1.CreateOptions{})
		forbidden(t, "create another's", err)

		other := heartbeat("n2")
		other.Annotations = map[string]string{edge.AnnotationCoordinatorHost: "true"}
		other, err = n2.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, other, metav1.CreateOptions{})
		allowed(t, "create", err)
		if len(other.Annotations) != 0 {
			t.Error("a node marked itself as the coordinator's")
		}
		_, err = own.Update(ctx, other, metav1.UpdateOptions{})
		forbidden(t, "update another's", err)
		_, err = own.Patch(ctx, "n2", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		forbidden(t, "patch another's", err)
		forbidden(t, "delete another's", own.Delete(ctx, "n2", metav1.DeleteOptions{}))
		forbidden(t, "delete all", own.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		all, err := own.List(ctx, metav1.ListOptions{})
		allowed(t, "list all", err)
		if len(all.Items) != 2 {
			t.Errorf("%d Leases, want 2", len(all.Items))
		}
	})

	t.Run("a node's reach", func(t *testing.T) {
		for _, namespace := range []string{"default", edge.NamespaceSystem, metav1.NamespaceAll} {
			_, err := n1.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
			forbidden(t, "list Secrets in "+namespace, err)
		}
		_, err := n1.CoreV1().Secrets("default").Get(ctx, "any", metav1.GetOptions{})
		forbidden(t, "get a Secret", err)
		_, err = n1.CoreV1().ConfigMaps("default").Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
		forbidden(t, "create a ConfigMap", err)
		_, err = n1.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		forbidden(t, "list everybody's Pods", err)
		_, err = n1.CoordinationV1().Leases(edge.NamespaceSystem).List(ctx, metav1.ListOptions{})
		forbidden(t, "list the Leases of kube-system", err)
		_, err = n1.CoordinationV1().Leases(edge.NamespaceSystem).Create(ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
		forbidden(t, "create a Lease in kube-system", err)
		_, err = n1.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
		forbidden(t, "list roles", err)
		_, err = n1.CoordinationV1().Leases(edge.NamespaceSystem).List(ctx,
			metav1.ListOptions{FieldSelector: "metadata.name=" + edge.LeaseElection})
		allowed(t, "list the election Lease", err)
		// etcd is filled by hubs alone, within their quotas.
		_, err = n1.CoreV1().Events("never-pushed").Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "e", Namespace: "never-pushed"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: "never-pushed"},
		}, metav1.CreateOptions{})
		forbidden(t, "create an Event", err)
		_, err = n1.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
		forbidden(t, "create its own Node", err)
	})

	t.Run("operators", func(t *testing.T) {
		_, err := alice.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		allowed(t, "list Pods", err)
		_, err = alice.CoordinationV1().Leases("").List(ctx, metav1.ListOptions{})
		allowed(t, "list Leases", err)
		_, err = alice.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
		forbidden(t, "list Secrets", err)
		_, err = alice.CoreV1().Secrets("default").Get(ctx, "any", metav1.GetOptions{})
		forbidden(t, "get a Secret", err)
		_, err = alice.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
		forbidden(t, "create a Namespace", err)
		forbidden(t, "delete a Pod", alice.CoreV1().Pods("default").Delete(ctx, "p", metav1.DeleteOptions{}))
		_, err = alice.CoordinationV1().Leases(edge.NamespaceSystem).Patch(ctx, edge.LeaseElection,
			types.MergePatchType, []byte(`{"spec":{"holderIdentity":"x"}}`), metav1.PatchOptions{})
		forbidden(t, "write the election Lease", err)
	})

	t.Run("the cloud's administrators are nobody here", func(t *testing.T) {
		admin := c.as(t, pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}})
		_, err := admin.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
		forbidden(t, "list Secrets", err)
		_, err = admin.Discovery().ServerVersion()
		allowed(t, "read the version", err)
	})

	scraper := c.as(t, pooltest.Scraper())
	t.Run("metrics", func(t *testing.T) {
		for client, want := range map[kubernetes.Interface]bool{alice: true, scraper: true, n1: false} {
			_, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
			if (err == nil) != want {
				t.Errorf("got %v, want allowed: %v", err, want)
			}
		}
	})

	t.Run("who reads metrics reads nothing else", func(t *testing.T) {
		_, err := scraper.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		forbidden(t, "list Pods", err)
		_, err = scraper.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		forbidden(t, "list Nodes", err)
		_, err = scraper.CoreV1().Pods("default").GetLogs("p", &corev1.PodLogOptions{}).DoRaw(ctx)
		forbidden(t, "read a log", err)
		_, err = scraper.CoordinationV1().Leases("").List(ctx, metav1.ListOptions{})
		forbidden(t, "list Leases", err)
		_, err = scraper.CoordinationV1().Leases(edge.NamespaceSystem).Get(ctx, edge.LeaseElection, metav1.GetOptions{})
		forbidden(t, "read the election Lease", err)
		rest := scraper.Discovery().RESTClient()
		for _, sub := range []string{"exec", "attach", "portforward"} {
			forbidden(t, sub, rest.Post().AbsPath("/api/v1/namespaces/default/pods/p/"+sub).Do(ctx).Error())
		}
		for _, path := range []string{
			"/metrics/slis", edge.PathPage, edge.PathPage + "/", edge.PathMirror, edge.PathState, "/debug/pprof/heap",
			"/apis/metrics.k8s.io/v1beta1/nodes",
		} {
			forbidden(t, "get "+path, rest.Get().AbsPath(path).Do(ctx).Error())
		}
		for _, path := range []string{"/metrics", edge.PathOwn} {
			forbidden(t, "post "+path, rest.Post().AbsPath(path).Do(ctx).Error())
		}
		forbidden(t, "delete metrics", rest.Delete().AbsPath("/metrics").Do(ctx).Error())
	})
}

func TestElectionLease(t *testing.T) {
	t.Parallel()
	c := startYoung(t, nil)
	ctx := t.Context()
	leases := func(name string) func(lease string, spec string) (*coordinationv1.Lease, error) {
		client := c.as(t, pooltest.Node(name)).CoordinationV1().Leases(edge.NamespaceSystem)
		return func(lease, spec string) (*coordinationv1.Lease, error) {
			return client.Patch(ctx, lease, types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
		}
	}
	a, b := leases("a"), leases("b")
	term := func(holder string, transitions int) string {
		return fmt.Sprintf(`{"holderIdentity":%q,"leaseDurationSeconds":4,"leaseTransitions":%d,"renewTime":%q}`,
			holder, transitions, time.Now().UTC().Format(metav1.RFC3339Micro))
	}

	_, err := a(edge.LeaseElection, term("a", 1))
	forbidden(t, "elect itself while a former leader may not know yet that it leads no more", err)
	c.clock.Step(edge.ElectionTerm)
	_, err = a(edge.LeaseInformerSync, term("a", 1))
	forbidden(t, "declare complete without leading", err)
	_, err = a(edge.LeaseElection, term("b", 1))
	forbidden(t, "elect another", err)
	_, err = a(edge.LeaseElection, term("a", 1))
	allowed(t, "elect itself", err)
	_, err = a(edge.LeaseElection, term("a", 1))
	allowed(t, "renew", err)
	_, err = b(edge.LeaseElection, term("b", 2))
	forbidden(t, "steal from a live leader", err)
	if err == nil || !strings.Contains(err.Error(), `node "a" holds the Lease`) {
		t.Errorf("the reason is not told: %v", err)
	}
	_, err = b(edge.LeaseElection, term("", 1))
	forbidden(t, "release another's", err)
	_, err = a(edge.LeaseInformerSync, term("a", 1))
	allowed(t, "declare complete", err)
	_, err = b(edge.LeaseInformerSync, term("b", 2))
	forbidden(t, "declare complete as a follower", err)

	// Not renewed for its term, whatever renewTime says.
	_, err = a(edge.LeaseElection, `{"renewTime":"2099-01-01T00:00:00.000000Z"}`)
	allowed(t, "a leader whose clock is far ahead", err)
	c.clock.Step(4 * time.Second)
	_, err = a(edge.LeaseInformerSync, term("a", 1))
	forbidden(t, "declare complete after lapsing, as a leader that was paused would", err)
	_, err = b(edge.LeaseElection, term("b", 3))
	forbidden(t, "count twice", err)
	_, err = b(edge.LeaseElection, term("b", 2))
	allowed(t, "take over from a lapsed leader at the first try", err)
	_, err = a(edge.LeaseElection, term("a", 1))
	forbidden(t, "come back as if nothing had happened", err)
	_, err = a(edge.LeaseInformerSync, term("a", 1))
	forbidden(t, "declare complete as a deposed leader", err)
	_, err = b(edge.LeaseElection, term("", 2))
	allowed(t, "release", err)
	_, err = a(edge.LeaseElection, term("a", 3))
	allowed(t, "take a released Lease at once", err)

	operator := c.as(t, pooltest.Operator()).CoordinationV1().Leases(edge.NamespaceSystem)
	lease, err := operator.Get(ctx, edge.LeaseElection, metav1.GetOptions{})
	if err != nil || ptr.Deref(lease.Spec.HolderIdentity, "") != "a" || ptr.Deref(lease.Spec.LeaseTransitions, 0) != 3 {
		t.Errorf("at the end: %+v, %v", lease, err)
	}
}

func TestRefusedAtTheDoorAndLogged(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	stranger := pooltest.NewAuthority(t, "another-ca").Issue(t, pooltest.Node("n1"), pooltest.Tomorrow()).TLS(t)
	expired := c.ca.Issue(t, pooltest.Node("n1"), time.Now().Add(-time.Minute)).TLS(t)
	good := c.ca.Issue(t, pooltest.Node("n1"), pooltest.Tomorrow()).TLS(t)
	guess := func(address string) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer guessed")
		response, err := c.http(t).Do(r)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	c.shutOut(t, "nobody", certificateRequired)
	c.shutOut(t, "unknown CA", badCertificate, stranger)
	if code, err := guess(c.address); err == nil {
		t.Errorf("with a guessed token: %d", code)
	}
	if code, err := guess(c.probes); err != nil || code != http.StatusUnauthorized {
		t.Errorf("with a guessed token, on this machine: %d, %v", code, err)
	}
	for _, who := range []struct {
		name   string
		client *http.Client
		local  bool
		probe  int // what /readyz and /livez answer
		api    int
	}{
		{"nobody, on this machine", c.http(t), true, 200, 401},
		{"unknown CA, on this machine", c.http(t, stranger), true, 401, 401},
		// The handshake lets it in, so that it is told what is wrong.
		{"expired", c.http(t, expired), false, 401, 401},
		{"a node", c.http(t, good), false, 200, 200},
	} {
		t.Run(who.name, func(t *testing.T) {
			address := c.address
			if who.local {
				address = c.probes
			}
			for path, want := range map[string]int{
				"/readyz": who.probe, "/livez": who.probe, "/api": who.api, "/version": who.api, "/healthz": who.api,
				"/readyz/ping": who.api,
			} {
				if code, body, err := getAt(t, who.client, address, path); code != want || err != nil {
					t.Errorf("%s: got %d %s, want %d", path, code, body, want)
				}
			}
		})
	}
	if code, _ := c.get(t, c.http(t, good), "/api/v1/secrets?x=y"); code != 403 {
		t.Errorf("a node lists Secrets: %d", code)
	}

	c.audited(t, "nobody", refused(401, "", "get", "/api", access.ErrNoCertificate.Error()))
	c.audited(t, "an unknown CA", refused(401, "", "get", "/api", "unknown authority"))
	expiry := c.audited(t, "an expired certificate", refused(401, "", "get", "/api", "expired"))
	if who := expiry.Annotations[edge.AnnotationRefused]; !strings.Contains(who, "system:node:n1") {
		t.Errorf("whose certificate has expired: %q", who)
	}
	denied := c.audited(t, "Secrets", refused(403, "system:node:n1", "list", "/api/v1/secrets?x=y", "forbidden"))
	if ids := denied.User.Extra[user.CredentialIDKey]; len(ids) != 1 || ids[0] != digest(good) {
		t.Errorf("whose certificate: %v, want %s", ids, digest(good))
	}
	for _, e := range c.auditLines(t) {
		if code := e.ResponseStatus.Code; code != 401 && code != 403 || e.Annotations[edge.AnnotationSuppressed] != "0" {
			t.Errorf("not a refusal: %+v", e)
		}
	}
}

// digest returns the id of a certificate, as it can be denied.
func digest(shown tls.Certificate) string {
	return fmt.Sprintf("X509SHA256=%x", sha256.Sum256(shown.Certificate[0]))
}

// kubelet answers as a node's would.
func kubelet(t *testing.T, ca *pooltest.Authority) (address string, port int32, seen *atomic.Pointer[string]) {
	t.Helper()
	seen = &atomic.Pointer[string]{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := ""
		if len(r.TLS.PeerCertificates) > 0 {
			caller = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		seen.Store(&caller)
		if !strings.HasPrefix(r.URL.Path, "/containerLogs/default/p-n1/c") {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		fmt.Fprint(w, "hello from the edge")
	}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t, pooltest.Node("n1"), pooltest.Tomorrow()).TLS(t)},
		ClientAuth:   tls.RequestClientCert,
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	listener := server.Listener.Addr().(*net.TCPAddr)
	return listener.IP.String(), int32(listener.Port), seen
}

func TestLogsThroughAKubelet(t *testing.T) {
	t.Parallel()
	c := start(t, func(config *Config) {
		dir := t.TempDir()
		ca, err := os.ReadFile(config.ClientCAFile)
		if err != nil {
			t.Fatal(err)
		}
		config.KubeletCertificateAuthority = pooltest.WriteFile(t, dir, "ca", ca)
		// The serving certificate's subject is alice; any will do.
		config.KubeletClientCertificate, config.KubeletClientKey = config.TLSCertFile, config.TLSPrivateKeyFile
		config.kubeletsAnywhere = true
	})
	ctx := t.Context()
	host, port, seen := kubelet(t, c.ca)
	n1, alice := c.as(t, pooltest.Node("n1")), c.as(t, pooltest.Operator())

	hub, privileged := c.hub(t, "n1"), true
	hub.Ask()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1", ResourceVersion: "1"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	hub.Must(pooltest.KindNode, pooltest.Put(pooltest.AsObject(t, node)))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p-n1", UID: "p-n1", ResourceVersion: "2"}}
	pod.Spec.NodeName = "n1"
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i",
		SecurityContext: &corev1.SecurityContext{Privileged: &privileged}}}
	hub.Must(pooltest.KindPod, pooltest.Put(pooltest.AsObject(t, pod)))

	text, err := alice.CoreV1().Pods("default").GetLogs("p-n1", &corev1.PodLogOptions{Container: "c"}).DoRaw(ctx)
	if err != nil || string(text) != "hello from the edge" {
		t.Errorf("logs: %q, %v", text, err)
	}
	if caller := seen.Load(); caller == nil || *caller != "alice" {
		t.Error("the kubelet was not shown the client certificate")
	}
	const exec = "/api/v1/namespaces/default/pods/p-n1/exec?command=sh&command=the-command&container=c&stdout=true"
	shown := c.certificate(t, pooltest.Debugger())
	if code := c.opens(t, shown, exec, nil); code != http.StatusSwitchingProtocols {
		t.Errorf("exec: %d", code)
	}
	// The Pod is privileged, and alice may enter workloads only.
	for _, into := range []string{"exec", "attach", "portforward"} {
		err = alice.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("p-n1").
			SubResource(into).Param("container", "c").Param("command", "hidden-command").Do(ctx).Error()
		forbidden(t, into+" into a privileged Pod", err)
		if !strings.Contains(err.Error(), "this Pod can act on its node (privileged)") ||
			!strings.Contains(err.Error(), edge.GroupDebuggers) {
			t.Errorf("%s: %v", into, err)
		}
	}
	err = n1.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("p-n1").
		SubResource("exec").Param("container", "c").Param("command", "hidden-command").Do(ctx).Error()
	forbidden(t, "exec by a node", err)

	streams := func(who, resource string) func(auditv1.Event) bool {
		return func(e auditv1.Event) bool {
			return e.Stage == auditv1.StageResponseStarted && e.ResponseStatus.Code < 400 && e.User.Username == who &&
				e.ObjectRef.Namespace == "default" && e.ObjectRef.Name == "p-n1" && e.ObjectRef.Subresource == resource
		}
	}
	c.audited(t, "the log that was read", streams("alice", "log"))
	entered := c.audited(t, "the exec", streams("bob", "exec"))
	if entered.RequestURI != exec || !slices.Contains(entered.User.Groups, edge.GroupDebuggers) ||
		!slices.Equal(entered.User.Extra[user.CredentialIDKey], []string{digest(shown)}) ||
		!slices.Equal(entered.SourceIPs, []string{"127.0.0.1"}) {
		t.Errorf("the exec: %+v", entered)
	}
	c.audited(t, "the refused exec",
		refused(403, "alice", "create", "/api/v1/namespaces/default/pods/p-n1/exec", "can act on its node"))
	c.audited(t, "a node's exec",
		refused(403, "system:node:n1", "create", "/api/v1/namespaces/default/pods/p-n1/exec", "what its hub does"))
	if content, err := os.ReadFile(c.audit); err != nil || strings.Contains(string(content), "hello from the edge") {
		t.Errorf("what a stream carries is in the log, or %v", err)
	}
}

// eventually calls f until it succeeds or ctx ends, without sleeping: f itself takes its time.
func eventually(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// TestReviews: the coordinator tells nodes neither who somebody is nor what he may do, and issues no tokens.
func TestReviews(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	n1 := c.as(t, pooltest.Node("n1"))
	_, err := n1.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: "guessed"},
	}, metav1.CreateOptions{})
	forbidden(t, "who somebody is", err)
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "openyurt:yurt-coordinator",
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Resource: "nodes", Subresource: "proxy", Name: "n1",
		},
	}}
	_, err = n1.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	forbidden(t, "who may use a kubelet", err)
	operator := c.as(t, pooltest.Operator())
	_, err = operator.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	forbidden(t, "an operator reviews others", err)
	_, err = n1.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err == nil {
		t.Error("a token was issued")
	}
}

// TestTheKeyToKubelets opens no door of the coordinator's own.
func TestTheKeyToKubelets(t *testing.T) {
	t.Parallel()
	holder := start(t, nil).as(t, pkix.Name{CommonName: "openyurt:yurt-coordinator"})
	_, err := holder.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	forbidden(t, "whoever has that key reads a Node here", err)
	err = holder.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/n1/proxy/pods").Do(t.Context()).Error()
	forbidden(t, "whoever has that key uses a kubelet by way of the coordinator", err)
}

// TestACallerThatStalls has its places taken by bodies that do not come. Others' heartbeats, and its own, go on.
func TestACallerThatStalls(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	ctx := t.Context()
	thief := c.certificate(t, pooltest.Node("n1"))
	for i := range 220 { // more than kube-apiserver has places for writes, each over a connection of its own
		dialer := tls.Dialer{Config: &tls.Config{
			RootCAs: c.roots(), Certificates: []tls.Certificate{thief}, MinVersion: tls.VersionTLS12,
		}}
		conn, err := dialer.DialContext(ctx, "tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		write := "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/" + edge.LeaseElection // it may
		if i%2 == 0 {
			write = "POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
		}
		_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: c\r\nContent-Type: application/json\r\n"+
			"Content-Length: 1000\r\n\r\n{", write)
		if err != nil {
			t.Fatal(err)
		}
	}
	n2 := c.as(t, pooltest.Node("n2"))
	lease, err := n2.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, heartbeat("n2"), metav1.CreateOptions{})
	allowed(t, "another's heartbeat", err)
	_, err = n2.CoordinationV1().Leases(corev1.NamespaceNodeLease).Update(ctx, lease, metav1.UpdateOptions{})
	allowed(t, "another's renewal", err)
	c.lead(t, "n2", 1)
	own := c.as(t, pooltest.Node("n1")).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	start := time.Now()
	allowed(t, "its own, once its bodies are cut", eventually(ctx, func() error {
		_, err := own.Create(ctx, heartbeat("n1"), metav1.CreateOptions{})
		return err
	}))
	t.Logf("its own heartbeat waited for %v", time.Since(start))
}
