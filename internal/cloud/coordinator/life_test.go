package coordinator

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

const allReady = "Pending=False/Deployed CertsReady=True/Issued Ready=True/Serving on "

// complete checks all that a pool with a coordinator on a node must have, as those see it who use it.
func (w *world) complete(cr string, pool edge.PoolName, node, ip string) {
	w.t.Helper()
	if got := w.status(cr); got != allReady+node {
		w.t.Fatalf("status: %s", got)
	}
	var mounted, operators, authority, kubelet corev1.Secret
	var hint corev1.ConfigMap
	for namespace, all := range map[string]map[string]client.Object{
		edge.NamespaceSystem: {
			pool.CoordinatorSecret(): &mounted, pool.KubeconfigSecret(): &operators, pool.DiscoveryConfigMap(): &hint,
		},
		edge.NamespaceKeys: {pool.AuthoritySecret(): &authority, pool.KubeletClientSecret(): &kubelet},
	} {
		for name, o := range all {
			if !w.get(namespace, name, o) {
				w.t.Fatalf("there is no %T %s/%s", o, namespace, name)
			}
		}
	}
	server := fmt.Sprintf("https://%s:10270", ip)
	if hint.Data["server"] != server || hint.Data["serverName"] != string(pool)+".yurt-coordinator-apiserver.kube-system.svc" {
		w.t.Errorf("the hubs are told %v", hint.Data)
	}
	cert := w.leaf(pairIn(&mounted, "tls.crt", "tls.key"))
	roots := poolOfCerts([]byte(hint.Data["ca.crt"]))
	for _, called := range []string{hint.Data["serverName"], ip, serviceIP, "yurt-coordinator-apiserver.kube-system.svc"} {
		if _, err := cert.Verify(x509.VerifyOptions{DNSName: called, Roots: roots, CurrentTime: w.clock.Now()}); err != nil {
			w.t.Errorf("as %s: %v", called, err)
		}
	}
	if g, err := edge.GenerationIn(cert); err != nil || g.Number == 0 || hint.Data["generation"] != g.String() {
		w.t.Errorf("the certificate is of generation %v (%v), and hubs are told %q", g, err, hint.Data["generation"])
	}
	if len(cert.IPAddresses) != 2 {
		w.t.Errorf("the certificate is for %v", cert.IPAddresses)
	}
	w.operatorsWork(pool, server, &operators, &mounted)
	if !bytes.Equal(mounted.Data[keyKubeletCert], kubelet.Data["tls.crt"]) || kubelet.Data[keyRequest] != nil {
		w.t.Error("what kubelets are shown is not what was signed, or the request is not over")
	}
	shown := pairIn(&mounted, keyKubeletCert, keyKubeletKey)
	if user := w.leaf(shown).Subject; user.CommonName != "openyurt:yurt-coordinator:"+string(pool) || len(user.Organization) > 0 {
		w.t.Errorf("kubelets are shown %v", user)
	}
	if !slices.Contains(strings.Fields(hint.Data["kubelet-clients"]), shown.CredentialID()) {
		w.t.Errorf("hubs know %q, not what kubelets are shown", hint.Data["kubelet-clients"])
	}
	w.nodesMay(pool)
	var pods corev1.PodList
	w.list(&pods)
	if pod := current(pods.Items); pod.Annotations[annotationCertsHash] != digest(mounted.Data) {
		w.t.Error("kubelet has not been told of the Secret")
	}
}

func (w *world) leaf(p certs.Pair) *x509.Certificate {
	w.t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		w.t.Fatal(err)
	}
	return pair.Leaf
}

func poolOfCerts(bundle []byte) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return roots
}

func (w *world) operatorsWork(pool edge.PoolName, server string, operators, mounted *corev1.Secret) {
	w.t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(operators.Data["kubeconfig"])
	if err != nil {
		w.t.Fatal(err)
	}
	user := w.leaf(certs.Pair{Cert: config.CertData, Key: config.KeyData})
	_, err = user.Verify(x509.VerifyOptions{
		Roots: poolOfCerts(mounted.Data[keyClientCA]), CurrentTime: w.clock.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil || config.Host != server || user.Subject.CommonName != "openyurt:operator:"+string(pool) ||
		!slices.Equal(user.Subject.Organization, []string{"openyurt:coordinators"}) {
		w.t.Errorf("operators are %v at %s: %v", user.Subject, config.Host, err)
	}
	if _, err := w.leaf(pairIn(mounted, "tls.crt", "tls.key")).Verify(x509.VerifyOptions{
		Roots: poolOfCerts(config.CAData), CurrentTime: w.clock.Now(),
	}); err != nil {
		w.t.Errorf("operators do not know the coordinator: %v", err)
	}
	if !bytes.Contains(mounted.Data[keyClientCA], encode(w.signerCert.Raw)) {
		w.t.Error("the coordinator does not know the nodes")
	}
}

// nodesMay: the nodes of the pool, and only they, may read where the coordinator is, and forward heartbeats.
func (w *world) nodesMay(pool edge.PoolName) {
	w.t.Helper()
	var nodes corev1.NodeList
	w.list(&nodes)
	var want []string
	for _, n := range nodes.Items {
		if poolOf(&n) == pool {
			want = append(want, "system:node:"+n.Name)
		}
	}
	var read rbacv1.RoleBinding
	w.get(edge.NamespaceSystem, pool.DiscoveryConfigMap(), &read)
	var forward rbacv1.RoleBinding
	w.get(corev1.NamespaceNodeLease, "impersonator-"+pool.Forwarder(), &forward)
	for what, subjects := range map[string][]rbacv1.Subject{"read": read.Subjects, "forward": forward.Subjects} {
		var got []string
		for _, s := range subjects {
			got = append(got, s.Name)
		}
		if !slices.Equal(got, want) {
			w.t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	var leases rbacv1.Role
	if !w.get(corev1.NamespaceNodeLease, pool.Forwarder(), &leases) || len(leases.Rules) != 1 ||
		len(leases.Rules[0].ResourceNames) != len(want)+edge.MaxSlots { // and the leaders' reports
		w.t.Errorf("the forwarder may %v", leases.Rules)
	}
}

// nothing checks that a pool has nothing any more.
func (w *world) nothing(pool edge.PoolName) {
	w.t.Helper()
	for _, o := range belongings(pool) {
		if w.get(o.GetNamespace(), o.GetName(), o) {
			w.t.Errorf("%T %s is left", o, o.GetName())
		}
	}
	var deployments appsv1.DeploymentList
	var pods corev1.PodList
	w.list(&deployments)
	w.list(&pods)
	if len(deployments.Items) > 0 || current(pods.Items) != nil {
		w.t.Errorf("left: %d Deployments, %d Pods", len(deployments.Items), len(pods.Items))
	}
}

func TestLife(t *testing.T) {
	w := newWorld(t)
	w.turns(1)
	var app v1beta1.YurtAppSet
	if !w.get(edge.NamespaceSystem, edge.AppCoordinator, &app) || len(w.runsIn(0)) != 0 {
		t.Fatalf("at the start: %v", w.runsIn(0))
	}
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.schedules = false
	w.turns(5)
	if got, want := w.status("c1"), "Pending=False/Deployed CertsReady=False/NotScheduled Ready=False/NoNode"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if w.get(edge.NamespaceSystem, edge.PoolName("p1").CoordinatorSecret(), &corev1.Secret{}) {
		t.Error("a certificate for no address")
	}
	w.schedules = true
	w.turns(5)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")

	for _, slot := range edge.Slots() { // by their leaders
		w.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: edge.PoolName("p1").ReportLease(slot),
		}})
	}
	var c v1alpha1.YurtCoordinator
	w.get("", "c1", &c)
	w.delete(&c)
	w.turns(5)
	if got := w.status("c1"); got != "gone" {
		t.Error(got)
	}
	w.nothing("p1")
	for _, event := range []string{
		"Normal AuthorityMade ", "Normal ServingCertificateIssued For the coordinator of pool p1 on node p1-n1: there is none",
		"Normal Issued CertsReady is true", "Normal Serving Ready is true", "Normal Removing Ready is false",
	} {
		n := 0
		for _, s := range w.events {
			if strings.HasPrefix(s, event) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d Events %q in %q", n, event, w.events)
		}
	}
}

// TestKilledAnywhere kills the controller at each of its writes, which is carried out but whose answer is lost, through a
// whole life: it comes to the same end. To be killed before a write leaves the same as to be killed after the one before it.
func TestKilledAnywhere(t *testing.T) {
	kills := 0
	for lifeKilledAt(t, kills+1) {
		kills++
	}
	if kills < 40 {
		t.Errorf("only %d writes in a life", kills)
	}
	t.Logf("%d kills", kills)
}

// lifeKilledAt reports whether there was an nth write.
func lifeKilledAt(t *testing.T, n int) (killed bool) {
	w := newWorld(t)
	w.fatal = n
	w.pool("p1", 4)
	w.coordinator("c1", "p1")
	until := func(status string) {
		for i := 0; i < 10 && w.status("c1") != status; i++ {
			w.turns(1)
		}
		w.turns(1)
	}
	until(allReady + "p1-n1")
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	w.move()
	until(allReady + "p1-n2")
	w.complete("c1", "p1", "p1-n2", "192.0.2.2")
	w.joins("p1-n2", "p2")
	for i := 0; i < 10 && w.status("c1") != allReady+"p1-n3"; i++ {
		w.ready("p1-n3", true)
		w.turns(1)
	}
	w.turns(1)
	w.complete("c1", "p1", "p1-n3", "192.0.2.3")
	var c v1alpha1.YurtCoordinator
	w.get("", "c1", &c)
	w.delete(&c)
	until("gone")
	if got := w.status("c1"); got != "gone" {
		t.Error(got)
	}
	w.nothing("p1")
	if t.Failed() {
		t.Fatalf("killed at write %d", n)
	}
	return w.fatal == 0
}

// move has the Pod's node die.
func (w *world) move() {
	var n corev1.Node
	w.get("", "p1-n1", &n)
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
	w.update(&n)
	var pods corev1.PodList
	w.list(&pods)
	for i := range pods.Items {
		// Of a dead node a Pod stays on.
		pods.Items[i].Finalizers = []string{"example.com/dead"}
		w.update(&pods.Items[i])
		w.delete(&pods.Items[i])
	}
}

func TestPendingReasons(t *testing.T) {
	const none = " CertsReady=False/Pending Ready=False/Pending"
	w := newWorld(t)
	w.coordinator("c1", "p1")
	w.turns(3)
	if got := w.status("c1"); got != "Pending=True/PoolNotFound"+none {
		t.Error(got)
	}
	w.pool("p1", 2)
	w.turns(3)
	if got := w.status("c1"); got != "Pending=True/TooFewNodes"+none {
		t.Error(got)
	}
	w.node("p1", 3)
	var n corev1.Node
	w.get("", "p1-n2", &n)
	n.Annotations = map[string]string{edge.AnnotationAutonomyDuration: "1h"}
	w.update(&n)
	w.turns(3)
	if got := w.status("c1"); got != "Pending=True/NodeAutonomy"+none {
		t.Error(got)
	}
	if !strings.Contains(w.message("c1", v1alpha1.YurtCoordinatorPending), "p1-n2") {
		t.Error("the node is not named")
	}
	w.nothing("p1")
	w.get("", "p1-n2", &n)
	n.Annotations = nil
	w.update(&n)
	w.coordinator("c2", "p1")
	w.turns(7)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	if got := w.status("c2"); got != "Pending=True/SecondCoordinator"+none ||
		!strings.Contains(w.message("c2", v1alpha1.YurtCoordinatorPending), "c1") {
		t.Error(got)
	}
	var c v1alpha1.YurtCoordinator
	w.get("", "c1", &c)
	w.delete(&c)
	w.turns(10)
	w.complete("c2", "p1", "p1-n1", "192.0.2.1")
	w.get("", "c2", &c)
	w.delete(&c)
	w.turns(7)
	w.nothing("p1")
}

func TestASecondOneGoesWithoutATrace(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("a", "p1")
	w.clock.SetTime(start.Add(time.Minute))
	w.coordinator("b", "p1")
	w.turns(7)
	var c v1alpha1.YurtCoordinator
	w.get("", "b", &c)
	w.delete(&c)
	w.turns(3)
	if got := w.status("b"); got != "gone" {
		t.Error(got)
	}
	w.complete("a", "p1", "p1-n1", "192.0.2.1")
}

func TestAPoolThatShrinksKeepsItsCoordinator(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(7)
	w.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "p1-n3"}})
	w.turns(3)
	if got := w.status("c1"); got != strings.Replace(allReady, "Deployed", "TooFewNodes", 1)+"p1-n1" {
		t.Error(got)
	}
	w.nodesMay("p1") // the one that has left may not
	var pool v1beta2.NodePool
	w.get("", "p1", &pool)
	w.delete(&pool)
	w.turns(7)
	if got := w.status("c1"); got != "Pending=True/PoolNotFound CertsReady=False/Pending Ready=False/Pending" {
		t.Error(got)
	}
	w.nothing("p1")
}

func TestASignerThatNeverSigns(t *testing.T) {
	w := newWorld(t)
	w.signs = false
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(9)
	want := "Pending=False/Deployed CertsReady=False/KubeletClientNotSigned Ready=True/Serving on p1-n1"
	if got := w.status("c1"); got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	if m := w.message("c1", v1alpha1.YurtCoordinatorCertsReady); !strings.Contains(m, "has not signed yet") {
		t.Error(m)
	}
	var s corev1.Secret
	w.get(edge.NamespaceSystem, edge.PoolName("p1").CoordinatorSecret(), &s)
	if p := w.leaf(pairIn(&s, keyKubeletCert, keyKubeletKey)); p.Subject.CommonName != noUser {
		t.Errorf("kubelets are shown %v", p.Subject)
	}
	before := digest(s.Data)
	w.turns(3)
	if w.get(edge.NamespaceSystem, edge.PoolName("p1").CoordinatorSecret(), &s); digest(s.Data) != before {
		t.Error("written anew without need")
	}
	w.restart() // knows nothing of the request but what is in the Secret
	w.signs = true
	w.turns(30) // the longer it has waited, the less often it asks
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
}

// TestAForeignRequestIsNotTaken: whoever may make requests could have made one of that name.
func TestAForeignRequestIsNotTaken(t *testing.T) {
	key, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := certs.SigningRequest(key, "openyurt:yurt-coordinator:p1")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.approves = false
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(1)
	csr := w.requests()[0] // it has been made, and not been looked at
	w.delete(&csr)
	csr.ResourceVersion, csr.UID, csr.Spec.Request, csr.Status.Conditions = "", "", foreign, nil
	w.create(&csr)
	w.approves = true
	w.turns(7)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	for _, r := range w.requests() {
		if r.Name == csr.Name && (len(r.Status.Conditions) > 0 || len(r.Status.Certificate) > 0) {
			t.Errorf("it was approved: %v", r.Status)
		}
	}
}

// deny says no to the request for a client certificate.
func (w *world) deny() {
	w.t.Helper()
	csr := w.requests()[0]
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "No", Message: "not today",
	}}
	w.updateStatus(&csr)
}

func TestADeniedRequestIsMadeAgainLater(t *testing.T) {
	w := newWorld(t)
	w.approves = false
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(1)
	w.deny()
	w.turns(7)
	if m := w.message("c1", v1alpha1.YurtCoordinatorCertsReady); !strings.Contains(m, "Denied: No not today") {
		t.Error(m)
	}
	w.approves = true
	w.clock.SetTime(w.clock.Now().Add(refusedWait))
	w.turns(6)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
}

// TestRotations lives through two authorities, with lives of minutes. What is mounted, what hubs know and what operators have
// always fit together.
func TestRotations(t *testing.T) {
	w := newWorld(t)
	w.lives = certs.Lives{
		Authority: 30 * time.Minute, Settle: 2 * time.Minute, Serving: 3 * time.Minute, Operator: 4 * time.Minute,
		Kubelet: 30 * time.Minute,
	}
	w.restart()
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(9)
	served, signed, shown := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for range 60 * 60 / 12 {
		w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
		w.turns(1)
		var s corev1.Secret
		if w.get(edge.NamespaceKeys, edge.PoolName("p1").KubeletClientSecret(), &s); s.Data[keyRequest] != nil {
			continue // a renewal is under way
		}
		w.complete("c1", "p1", "p1-n1", "192.0.2.1")
		w.get(edge.NamespaceSystem, edge.PoolName("p1").CoordinatorSecret(), &s)
		served[string(s.Data["tls.crt"])], shown[string(s.Data[keyKubeletCert])] = true, true
		w.get(edge.NamespaceKeys, edge.PoolName("p1").AuthoritySecret(), &s)
		signed[string(s.Data["tls.crt"])] = true
		if n := len(certs.Certificates(s.Data["ca.crt"])); n > 2 {
			t.Fatalf("%d authorities are trusted", n)
		}
	}
	if len(served) < 25 || len(signed) < 3 || len(shown) < 5 {
		t.Errorf("%d certificates of %d authorities, and %d for kubelets, in an hour", len(served), len(signed), len(shown))
	}
}

// TestOutside: who does not reach the coordinator is known for as long as the pool's leader says so.
func TestOutside(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(7)
	outside := func(want ...string) {
		t.Helper()
		w.turns(1)
		var c v1alpha1.YurtCoordinator
		if w.get("", "c1", &c); !slices.Equal(c.Status.OutsidePoolNodes, want) {
			t.Errorf("outside are %v, want %v", c.Status.OutsidePoolNodes, want)
		}
	}
	outside() // nobody has reported
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: corev1.NamespaceNodeLease, Name: "yurt-coordinator-p1",
		Annotations: map[string]string{edge.AnnotationReachedNodes: "p1-n1,p1-n3"},
	}}
	w.create(lease)
	outside("p1-n2")
	w.clock.SetTime(w.clock.Now().Add(edge.ReportLasts(nil) / 4))
	outside("p1-n2")
	w.clock.SetTime(w.clock.Now().Add(edge.ReportLasts(nil)))
	outside() // the leader is gone: nobody knows
	w.get(corev1.NamespaceNodeLease, "yurt-coordinator-p1", lease)
	lease.Spec.LeaseDurationSeconds = ptr.To[int32](600) // one on a metered link speaks more seldom
	w.update(lease)
	outside("p1-n2")
	w.clock.SetTime(w.clock.Now().Add(10 * time.Minute))
	outside("p1-n2")
	w.clock.SetTime(w.clock.Now().Add(5 * time.Minute))
	outside()
	w.get(corev1.NamespaceNodeLease, "yurt-coordinator-p1", lease)
	lease.Annotations[edge.AnnotationReachedNodes] = ""
	w.update(lease)
	outside("p1-n1", "p1-n2", "p1-n3")
	lease.Annotations[edge.AnnotationReachedNodes] = "p1-n1,p1-n2,p1-n3,p1-n4"
	w.update(lease)
	outside()
	if got := w.status("c1"); strings.Contains(got, "KubeletsVerifiable") {
		t.Errorf("a leader that says nothing of kubelets has said %s", got)
	}
	lease.Annotations[edge.AnnotationKubelet] = "p1-n1=pinned,p1-n2=unapproved,p1-n3=signed,p1-n4=missing"
	w.update(lease)
	outside()
	if got := w.status("c1"); !strings.Contains(got, " KubeletsVerifiable=False/KubeletsUnapproved") {
		t.Errorf("of kubelets it says %s", got)
	}
	if m := w.message("c1", v1alpha1.YurtCoordinatorKubeletsVerifiable); !strings.Contains(m, "p1-n2: kubelet has") ||
		strings.Contains(m, "p1-n4") {
		t.Errorf("it says %s", m)
	}
	lease.Annotations[edge.AnnotationKubelet] = "p1-n1=pinned,p1-n2=pinned,p1-n3=signed"
	w.update(lease)
	outside()
	if got := w.status("c1"); !strings.Contains(got, " KubeletsVerifiable=True/KubeletsKnown") {
		t.Errorf("of kubelets it says %s", got)
	}
	if pool := reports(lease); pool != "p1" {
		t.Errorf("a report of %q", pool)
	}
	if pool := reports(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "yurt-coordinator-p1"}}); pool != "" {
		t.Errorf("a node's Lease is a report of %q", pool)
	}
}

func TestWhatChangesIsTakenUp(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(7)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	var n corev1.Node
	w.get("", "p1-n1", &n)
	n.Status.Addresses[1].Address = "192.0.2.99"
	w.updateStatus(&n)
	w.turns(2)
	w.complete("c1", "p1", "p1-n1", "192.0.2.99")

	// A node that dies while it is delegated keeps the mark on its Lease, and is delegated no more.
	var lease coordinationv1.Lease
	w.get(corev1.NamespaceNodeLease, "p1-n2", &lease)
	lease.Annotations = map[string]string{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn}
	w.update(&lease)
	var c v1alpha1.YurtCoordinator
	for _, cut := range []struct {
		down      corev1.ConditionStatus
		delegated []string
	}{{corev1.ConditionTrue, []string{"p1-n2"}}, {corev1.ConditionUnknown, nil}, {corev1.ConditionFalse, nil}} {
		w.get("", "p1-n2", &n)
		n.Status.Conditions = []corev1.NodeCondition{{Type: edge.ConditionCloudLinkDown, Status: cut.down}}
		w.updateStatus(&n)
		w.turns(1)
		if w.get("", "c1", &c); !slices.Equal(c.Status.DelegatedNodes, cut.delegated) {
			t.Errorf("CloudLinkDown is %s: %v are delegated", cut.down, c.Status.DelegatedNodes)
		}
	}

	c.Spec.Version = "v1.2.3"
	w.update(&c)
	w.turns(2)
	if got := w.condition("c1", v1alpha1.YurtCoordinatorReconciling); got != "True/"+ReasonRollingOut {
		t.Error(got)
	}
	var pods corev1.PodList
	w.list(&pods)
	w.delete(&pods.Items[0]) // as its Deployment does
	w.turns(5)
	w.complete("c1", "p1", "p1-n1", "192.0.2.99")
	w.list(&pods)
	if got := imageOf(&pods.Items[0]); got != image+":v0.2.0-k1.2.3" {
		t.Error(got)
	}
}

// TestWhatIsRemovedByHandComesBack within the time of a resync.
func TestWhatIsRemovedByHandComesBack(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(7)
	for _, o := range belongings("p1") {
		if w.get(o.GetNamespace(), o.GetName(), o) { // the leader's report is not ours to make
			w.delete(o)
		}
	}
	w.clock.SetTime(w.clock.Now().Add(2 * DefaultResync))
	w.turns(3)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
}

// TestAStartWritesNothing where all is as it should be, and gives the rights once more after a while, whatever was done to
// them.
func TestAStartWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(9)
	w.restart()
	w.turns(3)
	if w.writes != 0 {
		t.Errorf("%d writes", w.writes)
	}
	for _, o := range grants("p1", nil, owner{}, false) {
		w.delete(o)
	}
	w.node("p1", 4)
	w.turns(3)
	w.nodesMay("p1") // another node is another right
	w.restart()
	for _, o := range grants("p1", nil, owner{}, false) {
		w.delete(o)
	}
	w.turns(2)
	if w.get(corev1.NamespaceNodeLease, edge.PoolName("p1").Forwarder(), &rbacv1.Role{}) {
		t.Error("the rights are given again without need: this test tests nothing")
	}
	w.clock.SetTime(w.clock.Now().Add(DefaultResync * 3 / 2))
	w.turns(3)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
}

// TestAtRestNothingIsWritten, nor is a Secret read.
func TestAtRestNothingIsWritten(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(9)
	before := w.calls
	if _, err := w.r.reconcileCoordinator(t.Context(), requestFor("c1")); err != nil {
		t.Fatal(err)
	}
	// All of the cache: the YurtCoordinator, NodePool, its siblings, Nodes, Pods, Service, ConfigMap, the reports'
	// three Leases, PoolSettings.
	if n := w.calls - before; n != 11 {
		t.Errorf("%d calls", n)
	}
	writes := w.writes
	if w.turns(3); w.writes != writes {
		t.Errorf("%d writes", w.writes-writes)
	}
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
}
