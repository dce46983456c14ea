package coordinator

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/approve"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

func TestMain(m *testing.M) { os.Exit(cloudtest.Main(m)) }

// cluster is a real API server, with our controllers of YurtAppSets and YurtCoordinators. The test is what else a cluster
// has: it borrows the signer of a world.
type cluster struct {
	*world
	c        client.Client
	cfg      *rest.Config
	as       *rest.Config // with the controller's rights
	requests *cloudtest.Requests
	stop     func()
}

func newCluster(t *testing.T, opts ...cloudtest.Option) *cluster {
	cfg := cloudtest.Start(t, opts...)
	k := &cluster{c: cloudtest.Client(t, cfg), cfg: cfg, world: &world{t: t}}
	k.makeSignerAt(time.Now())
	k.applyRights()
	cloudtest.Manager(t, cfg, manager.Options{Cache: cache.Options{ByObject: appset.Cached()}}, func(mgr manager.Manager) error {
		return appset.New(appset.Config{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("test"), Clock: clock.RealClock{},
		}).AddTo(mgr)
	})
	k.startController()
	return k
}

// startController starts a new process of it, with its own rights only.
func (k *cluster) startController() {
	as := cloudtest.As(k.cfg, "system:serviceaccount:kube-system:coordinator-controller",
		"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
	as, k.requests = cloudtest.Count(as)
	k.as = as
	options := manager.Options{Cache: cache.Options{ByObject: allCached()}}
	k.stop = cloudtest.Manager(k.t, as, options, func(m manager.Manager) error {
		return addTo(m, Config{
			Client: m.GetClient(), Reader: m.GetAPIReader(), Events: m.GetEventRecorder("coordinator-controller"),
			Program: Program{Image: image, Release: "v0.2.0", Kubernetes: "v1.36.3"}, PoolSettings: true,
		})
	})
}

// addTo registers a Reconciler and the index that it needs.
func addTo(m manager.Manager, c Config) error {
	return errors.Join(control.IndexNodes(m), New(c).AddTo(m))
}

// allCached has the Leases of nodes, too, as package heartbeat has it.
func allCached() map[client.Object]cache.ByObject {
	all := Cached()
	all[&coordinationv1.Lease{}] = cache.ByObject{Namespaces: map[string]cache.Config{corev1.NamespaceNodeLease: {}}}
	return all
}

func (k *cluster) applyRights() {
	k.t.Helper()
	content, err := os.ReadFile("testdata/rbac.yaml")
	if err != nil {
		k.t.Fatal(err)
	}
	for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		u := &unstructured.Unstructured{}
		if err := docs.Decode(&u.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			k.t.Fatal(err)
		}
		if err := k.c.Create(k.t.Context(), u); err != nil && !apierrors.IsAlreadyExists(err) {
			k.t.Fatal(err)
		}
	}
}

func (k *cluster) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *cluster) is(namespace, name string, o client.Object) bool {
	k.t.Helper()
	err := k.c.Get(k.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	k.must(client.IgnoreNotFound(err))
	return err == nil
}

// makePool makes a NodePool with nodes, their Leases, and a YurtCoordinator.
func (k *cluster) makePool(pool string, nodes int) {
	k.must(k.c.Create(k.t.Context(), &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: v1beta2.NodePoolSpec{
		Taints: []corev1.Taint{{Key: "edge", Value: "yes", Effect: corev1.TaintEffectNoSchedule}},
	}}))
	for i := 1; i <= nodes; i++ {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-n%d", pool, i), Labels: map[string]string{edge.LabelNodePool: pool},
		}}
		k.must(k.c.Create(k.t.Context(), n))
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i)}}
		k.must(k.c.Status().Update(k.t.Context(), n))
		k.must(k.c.Create(k.t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: n.Name},
		}))
	}
	k.must(k.c.Create(k.t.Context(), &v1alpha1.YurtCoordinator{
		ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: v1alpha1.YurtCoordinatorSpec{NodePool: pool},
	}))
}

// runPod is the Deployment's controller, the scheduler and kubelet: a Pod of the pool's Deployment, on a node.
func (k *cluster) runPod(pool, name string, node int) *corev1.Pod {
	k.t.Helper()
	return k.runPodIn(0, pool, name, node)
}

func (k *cluster) runPodIn(slot edge.Slot, pool, name string, node int) *corev1.Pod {
	k.t.Helper()
	var d appsv1.Deployment
	cloudtest.Eventually(k.t, "Deployment", func() error {
		return k.c.Get(k.t.Context(), client.ObjectKey{Namespace: edge.NamespaceSystem, Name: slot.App() + "-" + pool}, &d)
	})
	pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	set := &appsv1.ReplicaSet{ObjectMeta: pod.ObjectMeta, Spec: appsv1.ReplicaSetSpec{
		Replicas: ptr.To[int32](0), Selector: d.Spec.Selector, Template: d.Spec.Template,
	}}
	set.Namespace, set.Name, set.OwnerReferences = edge.NamespaceSystem, name, madeBy(&d)
	k.must(k.c.Create(k.t.Context(), set))
	pod.Namespace, pod.Name, pod.OwnerReferences = edge.NamespaceSystem, name, madeBy(set)
	k.must(k.c.Create(k.t.Context(), pod))
	k.must(k.c.SubResource("binding").Create(k.t.Context(), pod, &corev1.Binding{
		Target: corev1.ObjectReference{Kind: "Node", Name: fmt.Sprintf("%s-n%d", pool, node)},
	}))
	var mounted corev1.Secret
	cloudtest.Eventually(k.t, "Secret to mount", func() error {
		key := client.ObjectKey{Namespace: edge.NamespaceSystem, Name: pod.Spec.Volumes[0].Secret.SecretName}
		err := k.c.Get(k.t.Context(), key, &mounted)
		if err == nil && mounted.Annotations[annotationPod] != string(pod.UID) {
			err = fmt.Errorf("it is for Pod %s", mounted.Annotations[annotationPod])
		}
		return err
	})
	cloudtest.Eventually(k.t, "ready Pod", func() error {
		k.is(edge.NamespaceSystem, name, pod)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return k.c.Status().Update(k.t.Context(), pod)
	})
	return pod
}

// sign is the cluster's signer, of what is asked for a pool's coordinators.
func (k *cluster) sign(pool string) {
	k.t.Helper()
	var csr certificatesv1.CertificateSigningRequest
	cloudtest.Eventually(k.t, "request", func() error {
		var all certificatesv1.CertificateSigningRequestList
		k.must(k.c.List(k.t.Context(), &all, client.MatchingLabels{edge.LabelNodePool: pool}))
		if len(all.Items) != 1 {
			return fmt.Errorf("%d requests", len(all.Items))
		}
		csr = all.Items[0]
		return nil
	})
	k.must(approve.JudgeCoordinators(&csr))
	csr.Status.Conditions = approval()
	k.must(k.c.SubResource("approval").Update(k.t.Context(), &csr))
	block, _ := pem.Decode(csr.Spec.Request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	k.must(err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: asked.Subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}, k.signerCert, asked.PublicKey, k.signer)
	k.must(err)
	csr.Status.Certificate = encode(der)
	k.must(k.c.Status().Update(k.t.Context(), &csr))
}

func (k *cluster) eventually(pool, want string) {
	k.t.Helper()
	cloudtest.Eventually(k.t, want, func() error {
		var c v1alpha1.YurtCoordinator
		k.is("", pool, &c)
		if got := shortly(&c); got != want {
			return errors.New(got + "; " + toJSON(c.Status))
		}
		return nil
	})
}

func TestAgainstAnAPIServer(t *testing.T) {
	k := newCluster(t)
	var app v1beta1.YurtAppSet
	cloudtest.Eventually(t, "YurtAppSet at the start", func() error {
		return k.c.Get(t.Context(), client.ObjectKey{Namespace: edge.NamespaceSystem, Name: edge.AppCoordinator}, &app)
	})
	k.makePool("real", 3)
	pod := k.runPod("real", "one", 1)
	k.eventually("real", "Pending=False/Deployed CertsReady=False/KubeletClientNotSigned Ready=True/Serving on real-n1")
	k.sign("real")
	k.eventually("real", allReady+"real-n1")
	k.checkPod(pod)

	k.stop() // and its successor, which knows nothing, goes on
	k.startController()
	k.must(k.c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	k.eventually("real", "Pending=False/Deployed CertsReady=False/NotScheduled Ready=False/NoPod")
	k.runPod("real", "two", 2)
	k.eventually("real", allReady+"real-n2")
	var hint corev1.ConfigMap
	k.is(edge.NamespaceSystem, "yurt-coordinator-real", &hint)
	if hint.Data["server"] != "https://192.0.2.2:10270" {
		t.Error(hint.Data)
	}
	k.hubMayRead("real")
	k.mayBeDenied("real")
	k.nothingAtRest("real")
	k.removed("real")
}

// mayBeDenied: users, and certificates in one form. Another form would deny nobody, and nobody would notice.
func (k *cluster) mayBeDenied(name string) {
	k.t.Helper()
	digest := strings.Repeat("0a", 32)
	for who, may := range map[string]bool{
		"ana": true, "system:node:n1": true, "shawn:x": true, "X509SHA256=" + digest: true, digest: false,
		"X509SHA256=" + digest[1:]: false, "x509sha256=" + digest: false, "SHA256:" + digest: false, "X509SHA1=0a": false,
		"sha256 Fingerprint=0A:0B": false, "0A:0B:0C": false, "serial=0A": false,
	} {
		var c v1alpha1.YurtCoordinator
		k.is("", name, &c)
		was := c.DeepCopy()
		c.Spec.DeniedUsers = []string{who}
		err := k.c.Patch(k.t.Context(), &c, client.MergeFrom(was), client.DryRunAll)
		if may != (err == nil) || !may && !strings.Contains(err.Error(), "give X509SHA256= and 64 lower-case") {
			k.t.Errorf("%q may be denied: %v", who, err)
		}
	}
}

// checkPod: what the template, the tweaks and the API server make together.
func (k *cluster) checkPod(pod *corev1.Pod) {
	k.t.Helper()
	k.is(edge.NamespaceSystem, pod.Name, pod)
	c := pod.Spec.Containers[0]
	if c.Image != image+":v0.2.0-k1.36.3" || pod.Spec.Volumes[0].Secret.SecretName != "yurt-coordinator-real-certs" ||
		!slices.Contains(c.Args, "--node-name=$(NODE_NAME)") || !pod.Spec.HostNetwork ||
		pod.Annotations[annotationCertsHash] == "" ||
		pod.Labels[edge.LabelNodePool] != "real" || pod.Spec.NodeSelector[edge.LabelNodePool] != "real" {
		k.t.Errorf("%s", toJSON(pod))
	}
	tolerates := func(taint corev1.Taint) bool {
		return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.Key == taint.Key && t.Effect == taint.Effect
		})
	}
	for key, want := range map[string]bool{"edge": true, edge.TaintUnschedulable: false} {
		if tolerates(corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}) != want {
			k.t.Errorf("tolerates %s: %v", key, pod.Spec.Tolerations)
		}
	}
	for _, key := range leaves {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.Key == key && t.TolerationSeconds == nil
		}) {
			k.t.Errorf("leaves a dead node by itself: %v", pod.Spec.Tolerations)
		}
	}
	k.must(New(Config{Client: cloudtest.Client(k.t, k.as)}).leave(k.t.Context(), pod))
}

// hubMayRead: a node of the pool may read and watch where its coordinator is, and nothing else; another may not.
func (k *cluster) hubMayRead(pool string) {
	k.t.Helper()
	reads := func(node, name string) error {
		hub := cloudtest.Client(k.t, cloudtest.As(k.cfg, "system:node:"+node, "system:nodes", "system:authenticated"))
		var list corev1.ConfigMapList
		return hub.List(k.t.Context(), &list, client.InNamespace(edge.NamespaceSystem),
			client.MatchingFields{"metadata.name": name})
	}
	cloudtest.Eventually(k.t, "right of the node", func() error { return reads(pool+"-n1", "yurt-coordinator-"+pool) })
	for _, r := range [][2]string{{"stranger", "yurt-coordinator-" + pool}, {pool + "-n1", "yurt-coordinator-other"}} {
		if err := reads(r[0], r[1]); !apierrors.IsForbidden(err) {
			k.t.Errorf("%v: %v", r, err)
		}
	}
}

// nothingAtRest: heartbeats cost nothing, and a node whose link goes costs one write.
func (k *cluster) nothingAtRest(pool string) {
	k.t.Helper()
	// What led to the last status may come again while the cache has not seen that status, and be refused as a conflict.
	cloudtest.Quiet(k.t, k.requests.Writes, 500*time.Millisecond)
	before := len(k.requests.Writes())
	var n corev1.Node
	var lease coordinationv1.Lease
	for i := 1; i <= 3; i++ {
		k.is("", fmt.Sprintf("%s-n%d", pool, i), &n)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		k.must(k.c.Status().Update(k.t.Context(), &n))
		k.is(corev1.NamespaceNodeLease, n.Name, &lease)
		lease.Spec.HolderIdentity = &n.Name
		k.must(k.c.Update(k.t.Context(), &lease))
	}
	down := corev1.NodeCondition{Type: edge.ConditionCloudLinkDown, Status: corev1.ConditionTrue}
	n.Status.Conditions = append(n.Status.Conditions, down)
	k.must(k.c.Status().Update(k.t.Context(), &n))
	cloudtest.Eventually(k.t, "delegated node", func() error {
		var c v1alpha1.YurtCoordinator
		if k.is("", pool, &c); !slices.Equal(c.Status.DelegatedNodes, []string{n.Name}) {
			return fmt.Errorf("%v", c.Status.DelegatedNodes)
		}
		return nil
	})
	if wrote := k.requests.Writes()[before:]; len(wrote) != 1 {
		k.t.Errorf("wrote %q", wrote)
	}
}

func (k *cluster) removed(pool string) {
	k.t.Helper()
	k.must(k.c.Delete(k.t.Context(), &v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{Name: pool}}))
	cloudtest.Eventually(k.t, "Deployment gone", func() error {
		if k.is(edge.NamespaceSystem, "yurt-coordinator-"+pool, &appsv1.Deployment{}) {
			return errors.New("it is there")
		}
		return nil
	})
	if !k.is("", pool, &v1alpha1.YurtCoordinator{}) ||
		!k.is(edge.NamespaceKeys, edge.PoolName(pool).AuthoritySecret(), &corev1.Secret{}) {
		k.t.Error("gone before its Pod")
	}
	// The collector of garbage is not there.
	k.must(k.c.DeleteAllOf(k.t.Context(), &corev1.Pod{}, client.InNamespace(edge.NamespaceSystem),
		ofPool(edge.PoolName(pool)), client.GracePeriodSeconds(0)))
	cloudtest.Eventually(k.t, "YurtCoordinator gone", func() error {
		if k.is("", pool, &v1alpha1.YurtCoordinator{}) {
			return errors.New("it is there")
		}
		return nil
	})
	for _, o := range belongings(edge.PoolName(pool)) {
		if k.is(o.GetNamespace(), o.GetName(), o) {
			k.t.Errorf("%s is left", objects.Describe(o))
		}
	}
	cloudtest.Eventually(k.t, "an Event that tells that it serves", func() error { // Events go out in their own time
		var events eventsv1.EventList
		k.must(k.c.List(k.t.Context(), &events, client.InNamespace(metav1.NamespaceDefault)))
		if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Kind == "YurtCoordinator" && e.Reason == ReasonServing && strings.Contains(e.Note, "real-n2")
		}) {
			return fmt.Errorf("none of %d does", len(events.Items))
		}
		return nil
	})
}
