package coordinator

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/approve"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

// start is later than now: the API dates what is deleted by its own clock, and here that is long ago.
var start = time.Date(2126, 11, 21, 0, 0, 0, 0, time.UTC)

const (
	serviceIP = "10.96.0.77"
	image     = "registry.example/yurt-coordinator"
)

type said []string

func (s *said) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	*s = append(*s, kind+" "+reason+" "+fmt.Sprintf(note, args...))
}

// world is a cluster without its controllers, whose parts the test plays, and a Reconciler that may be killed at any write:
// a kill at a read leaves the same as one at the write that follows.
type world struct {
	t      *testing.T
	api    client.WithWatch // as the test sees it
	clock  *clocktesting.FakePassiveClock
	events said
	lives  certs.Lives
	// settings are the chart's; release is the controller's own.
	settings v1alpha1.CoordinatorSettings
	release  string

	calls, writes int // of the Reconciler
	fatal         int // the write that is its last, carried out but with its answer lost; 0: none
	r             *Reconciler

	approves, signs, schedules bool // the approver, the signer and the scheduler do their work
	signer                     *ecdsa.PrivateKey
	signerCert                 *x509.Certificate
	uids                       int
	refuses                    string   // the kind of which nothing may be applied
	keeps                      string   // the name of what can't be deleted
	holds                      bool     // the YurtAppSets' brake holds everything back
	applies                    []string // the resourceVersions with which the YurtAppSet was applied
	webhook                    func(*v1beta1.YurtAppSet)
}

var errKilled = errors.New("killed")

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), rbacv1.AddToScheme(scheme),
		coordinationv1.AddToScheme(scheme), certificatesv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		v1beta1.AddToScheme(scheme), v1beta2.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, clock: clocktesting.NewFakePassiveClock(start), approves: true, signs: true, schedules: true, release: "v0.2.0",
	}
	w.api = fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.YurtCoordinator{}, &v1beta1.YurtAppSet{}, &corev1.Pod{}).
		WithIndex(&v1alpha1.YurtCoordinator{}, indexPool, coordinatorIndex).
		WithIndex(&corev1.Node{}, control.IndexPool, control.PoolOf).
		WithObjectTracker(clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())).
		Build()
	w.makeSigner()
	w.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: authenticationConfig},
		Data:       map[string]string{clientCAKey: string(encode(w.signerCert.Raw))},
	})
	w.restart()
	return w
}

func (w *world) makeSigner() { w.makeSignerAt(start) }

func (w *world) makeSignerAt(now time.Time) {
	var err error
	if w.signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		w.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(20 * 365 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, w.signer.Public(), w.signer)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.signerCert, err = x509.ParseCertificate(der); err != nil {
		w.t.Fatal(err)
	}
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// restart begins a new process of the controller, which knows nothing.
func (w *world) restart() {
	w.calls, w.writes, w.fatal = 0, 0, 0
	c := interceptor.NewClient(w.api, w.hooks())
	w.r = New(Config{
		Client: c, Reader: c, Events: &w.events, Clock: w.clock, PoolSettings: true, Settings: w.settings,
		Program: Program{Image: image, Release: w.release, Kubernetes: "v1.0.0", Lives: w.lives},
	})
}

// write is one of the Reconciler's; after its last one none is carried out.
func (w *world) write(do func() error) error {
	w.calls++
	w.writes++
	switch {
	case w.fatal == 0 || w.writes < w.fatal:
		return do()
	case w.writes == w.fatal:
		_ = do() // nobody hears of it
	}
	return errKilled
}

// read is one of the Reconciler's.
func (w *world) read(do func() error) error {
	w.calls++
	if w.fatal != 0 && w.writes >= w.fatal {
		return errKilled
	}
	return do()
}

func (w *world) hooks() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			return w.read(func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return w.read(func() error { return c.List(ctx, l, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.stamp(o)
			if r, ok := o.(*certificatesv1.CertificateSigningRequest); ok {
				r.Spec.Username = "system:serviceaccount:kube-system:coordinator-controller"
			}
			return w.write(func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			// An API server writes no object that is already so.
			if have := (&corev1.Secret{}); w.get(o.GetNamespace(), o.GetName(), have) && holds(have, o.(*corev1.Secret)) {
				return w.read(func() error { return nil })
			}
			return w.write(func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.write(func() error {
				if w.keeps == o.GetName() {
					return apierrors.NewForbidden(schema.GroupResource{}, o.GetName(), errors.New("a policy says no"))
				}
				return c.Delete(ctx, o, opts...)
			})
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return w.write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			if w.isApplied(o) {
				return w.read(func() error { return w.applied(o) })
			}
			return w.write(func() error { return w.applied(o) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return w.write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(_ context.Context, _ client.Client, sub string, o client.Object,
			_ ...client.SubResourceUpdateOption) error {
			w.t.Errorf("wrote %s of %s", sub, o.GetName())
			return nil
		},
	}
}

// isApplied reports whether a YurtAppSet is already so: an API server writes no such object.
func (w *world) isApplied(configuration runtime.ApplyConfiguration) bool {
	var want, have v1beta1.YurtAppSet
	if err := json.Unmarshal([]byte(toJSON(configuration)), &want); err != nil {
		w.t.Fatal(err)
	}
	if want.Kind != "YurtAppSet" || !w.get(want.Namespace, want.Name, &have) {
		return false
	}
	if w.webhook != nil {
		w.webhook(&want)
	}
	return toJSON(want.Spec) == toJSON(have.Spec)
}

// applied stands in for server-side apply by the only one who writes these objects: all of it is replaced. The fake client's
// own is a hundred times slower; TestAgainstAnAPIServer has the real one.
func (w *world) applied(configuration runtime.ApplyConfiguration) error {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(toJSON(configuration)), &u.Object); err != nil {
		w.t.Fatal(err)
	}
	fresh := func() client.Object {
		made, err := w.api.Scheme().New(u.GroupVersionKind())
		if err != nil {
			w.t.Fatal(err)
		}
		return made.(client.Object)
	}
	if u.GetKind() == "YurtAppSet" {
		w.applies = append(w.applies, u.GetResourceVersion())
	}
	if w.refuses == u.GetKind() {
		return apierrors.NewForbidden(schema.GroupResource{Resource: u.GetKind()}, u.GetName(), errors.New("a policy says no"))
	}
	want, have := fresh(), fresh()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, want); err != nil {
		w.t.Fatal(err)
	}
	answer := func(err error) error {
		want.GetObjectKind().SetGroupVersionKind(u.GroupVersionKind())
		if err == nil && json.Unmarshal([]byte(toJSON(want)), configuration) != nil {
			w.t.Fatal("it takes no answer")
		}
		return err
	}
	app, _ := want.(*v1beta1.YurtAppSet)
	if app != nil && w.webhook != nil {
		w.webhook(app)
	}
	if !w.get(u.GetNamespace(), u.GetName(), have) {
		w.stamp(want)
		want.SetGeneration(1)
		return answer(w.api.Create(w.t.Context(), want))
	}
	if v := want.GetResourceVersion(); v != "" && v != have.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{Resource: u.GetKind()}, u.GetName(), errors.New("it has changed"))
	}
	want.SetUID(have.GetUID())
	want.SetResourceVersion(have.GetResourceVersion())
	want.SetCreationTimestamp(have.GetCreationTimestamp())
	if want.SetGeneration(have.GetGeneration()); app != nil && toJSON(app.Spec) != toJSON(have.(*v1beta1.YurtAppSet).Spec) {
		want.SetGeneration(have.GetGeneration() + 1)
	}
	if s, ok := want.(*corev1.Service); ok {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = have.(*corev1.Service).Spec.ClusterIP, have.(*corev1.Service).Spec.ClusterIPs
	}
	return answer(w.api.Update(w.t.Context(), want))
}

// round has the controllers look at everything once, or until they are killed, and reports what went wrong.
func (w *world) round() error {
	_, failed := w.r.reconcileFleet(w.t.Context(), appRequest)
	var all v1alpha1.YurtCoordinatorList
	w.list(&all)
	for i := range all.Items {
		if errors.Is(failed, errKilled) {
			break
		}
		req := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])}
		_, err := w.r.reconcileCoordinator(w.t.Context(), req)
		failed = errors.Join(failed, err)
	}
	return failed
}

// turns has controllers and world do their parts, n times, two seconds apart. A controller that is killed is started again.
func (w *world) turns(n int) {
	w.t.Helper()
	for range n {
		if err := w.round(); errors.Is(err, errKilled) {
			w.restart()
		} else if err != nil {
			w.t.Fatal(err)
		}
		w.passes()
	}
}

// passes has the world do its part, and two seconds pass.
func (w *world) passes() {
	w.play()
	w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
}

// play is the part of Kubernetes.
func (w *world) play() {
	w.playService()
	w.playAppSets()
	w.playPods()
	if w.approves {
		w.playApprover()
	}
	if w.signs {
		w.playSigner()
	}
}

func (w *world) playService() {
	var s corev1.Service
	if w.get(edge.NamespaceSystem, edge.ServiceCoordinator, &s) && s.Spec.ClusterIP == "" {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = serviceIP, []string{serviceIP}
		w.update(&s)
	}
}

// playAppSets keeps a Deployment and a Pod for each pool in each slot.
func (w *world) playAppSets() {
	for _, slot := range edge.Slots() {
		w.playAppSet(slot)
	}
}

// runsIn are what the YurtAppSet of a slot makes of its pools.
func (w *world) runsIn(slot edge.Slot) (all map[string]*appsv1.Deployment) {
	w.t.Helper()
	all = make(map[string]*appsv1.Deployment)
	var app v1beta1.YurtAppSet
	if !w.get(edge.NamespaceSystem, slot.App(), &app) {
		return all
	}
	var nodePools v1beta2.NodePoolList
	w.list(&nodePools)
	selected, err := appset.Select(&app.Spec, nodePools.Items)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, wanted := range appset.Render(&app, selected.Pools, nil) {
		d := &appsv1.Deployment{}
		if wanted.Err != nil {
			w.t.Fatal(wanted.Err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(wanted.Object.Object, d); err != nil {
			w.t.Fatal(err)
		}
		all[wanted.Pool] = d
	}
	return all
}

func (w *world) playAppSet(slot edge.Slot) {
	var app v1beta1.YurtAppSet
	if w.get(edge.NamespaceSystem, slot.App(), &app) && app.Status.ObservedGeneration != app.Generation {
		app.Status.ObservedGeneration = app.Generation
		w.updateStatus(&app)
	}
	deployments, pods, runs := w.deploymentsIn(slot), w.podsIn(slot), w.runsIn(slot)
	for _, pool := range slices.Sorted(maps.Keys(runs)) {
		template, name := runs[pool].Spec.Template, slot.App()+"-"+pool
		if !slices.ContainsFunc(deployments, func(d appsv1.Deployment) bool { return d.Name == name }) {
			w.create(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
				Namespace: edge.NamespaceSystem, Name: name, Labels: runs[pool].Labels,
				OwnerReferences: runs[pool].OwnerReferences,
			}})
		}
		mine := func(p corev1.Pod) bool { return p.Labels[edge.LabelNodePool] == pool && p.DeletionTimestamp.IsZero() }
		if !slices.ContainsFunc(pods, mine) {
			w.uids++
			w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: edge.NamespaceSystem, Name: fmt.Sprintf("%s-%d", name, w.uids), Labels: template.Labels,
				Annotations:       template.Annotations,
				CreationTimestamp: metav1.NewTime(w.clock.Now()), OwnerReferences: madeBy(w.replicaSet(name, template.Labels)),
			}, Spec: template.Spec})
		}
	}
	for i := range deployments {
		if w.holds {
			break
		}
		if runs[deployments[i].Labels[edge.LabelWorkloadPool]] == nil {
			w.delete(&deployments[i])
		}
	}
	for i := range pods {
		if made := w.get(edge.NamespaceSystem, slot.App()+"-"+pods[i].Labels[edge.LabelNodePool], &appsv1.Deployment{}); !made {
			w.delete(&pods[i])
		}
	}
}

// labelledFor reports whether labels are those of what is in a slot.
func labelledFor(its map[string]string, slot edge.Slot) bool {
	is := its[edge.LabelSlot]
	return slot == 0 && is == "" || slot > 0 && is == strconv.Itoa(int(slot))
}

func (w *world) deploymentsIn(slot edge.Slot) []appsv1.Deployment {
	w.t.Helper()
	var all appsv1.DeploymentList
	w.list(&all)
	return slices.DeleteFunc(all.Items, func(d appsv1.Deployment) bool { return !labelledFor(d.Labels, slot) })
}

func (w *world) podsIn(slot edge.Slot) []corev1.Pod {
	w.t.Helper()
	var all corev1.PodList
	w.list(&all)
	return slices.DeleteFunc(all.Items, func(p corev1.Pod) bool {
		return p.Labels[edge.LabelApp] != edge.AppCoordinator || !labelledFor(p.Labels, slot)
	})
}

// replicaSet returns the ReplicaSet of a Deployment, made where it is missing.
func (w *world) replicaSet(deployment string, its map[string]string) *appsv1.ReplicaSet {
	var d appsv1.Deployment
	w.get(edge.NamespaceSystem, deployment, &d)
	set := &appsv1.ReplicaSet{}
	if !w.get(edge.NamespaceSystem, deployment+"-5d4f", set) {
		set = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: edge.NamespaceSystem, Name: deployment + "-5d4f", Labels: its, OwnerReferences: madeBy(&d),
		}}
		w.create(set)
	}
	return set
}

// madeBy returns the reference to what controls an object.
func madeBy(o client.Object) []metav1.OwnerReference {
	kind := "Deployment"
	if _, ok := o.(*appsv1.ReplicaSet); ok {
		kind = "ReplicaSet"
	}
	return []metav1.OwnerReference{*metav1.NewControllerRef(o, appsv1.SchemeGroupVersion.WithKind(kind))}
}

// playPods gives Pods a node, the first of their pool that can take one, and has them ready once their Secret is there.
func (w *world) playPods() {
	if !w.schedules {
		return
	}
	var pods corev1.PodList
	w.list(&pods)
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Labels[edge.LabelApp] != edge.AppCoordinator {
			continue
		}
		if p.Spec.NodeName == "" {
			var nodes corev1.NodeList
			w.list(&nodes)
			for _, n := range nodes.Items {
				if poolOf(&n) == poolOf(p) && len(n.Spec.Taints) == 0 && fits(p, n.Name, pods.Items) {
					p.Spec.NodeName = n.Name
					w.update(p)
					break
				}
			}
		}
		var s corev1.Secret
		if p.Spec.NodeName != "" && podCondition(p, corev1.PodReady) == nil &&
			w.get(edge.NamespaceSystem, p.Spec.Volumes[0].Secret.SecretName, &s) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			w.updateStatus(p)
		}
	}
}

// fits reports whether a node has no other Pod that a Pod must keep off, or that keeps it off, as the scheduler finds it out.
func fits(pod *corev1.Pod, node string, pods []corev1.Pod) bool {
	keepsOff := func(a, b *corev1.Pod) bool {
		if a.Spec.Affinity == nil || a.Spec.Affinity.PodAntiAffinity == nil {
			return false
		}
		for _, term := range a.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
			if err == nil && term.TopologyKey == corev1.LabelHostname && selector.Matches(labels.Set(b.Labels)) {
				return true
			}
		}
		return false
	}
	for i := range pods {
		other := &pods[i]
		if other.Spec.NodeName == node && other.Name != pod.Name && (keepsOff(pod, other) || keepsOff(other, pod)) {
			return false
		}
	}
	return true
}

// requests are the requests for certificates for kubelets.
func (w *world) requests() []certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	var all certificatesv1.CertificateSigningRequestList
	w.list(&all)
	return all.Items
}

// playApprover approves what nobody has answered, as package approve judges.
func (w *world) playApprover() {
	for _, csr := range w.requests() {
		if len(csr.Status.Conditions) == 0 && approve.JudgeCoordinators(&csr) == nil {
			csr.Status.Conditions = approval()
			w.updateStatus(&csr)
		}
	}
}

// playSigner signs what is approved, and removes what was signed an hour ago.
func (w *world) playSigner() {
	for _, csr := range w.requests() {
		if len(csr.Status.Certificate) > 0 && w.clock.Since(csr.CreationTimestamp.Time) > time.Hour {
			w.delete(&csr)
		}
		if len(csr.Status.Certificate) == 0 && len(csr.Status.Conditions) > 0 && !denied(csr) {
			w.sign(csr)
		}
	}
}

func approval() []certificatesv1.CertificateSigningRequestCondition {
	return []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	}}
}

func denied(csr certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateDenied
	})
}

func (w *world) sign(csr certificatesv1.CertificateSigningRequest) {
	block, _ := pem.Decode(csr.Spec.Request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		w.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: asked.Subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: w.clock.Now().Add(-5 * time.Minute),
		NotAfter:  w.clock.Now().Add(time.Duration(*csr.Spec.ExpirationSeconds) * time.Second),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, w.signerCert, asked.PublicKey, w.signer)
	if err != nil {
		w.t.Fatal(err)
	}
	csr.Status.Certificate = encode(der)
	w.updateStatus(&csr)
}

// pool makes a NodePool with n nodes.
func (w *world) pool(name string, n int) {
	w.create(&v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}})
	for i := 1; i <= n; i++ {
		w.node(name, i)
	}
}

func (w *world) node(pool string, i int) {
	name := fmt.Sprintf("%s-n%d", pool, i)
	w.create(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{edge.LabelNodePool: pool}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i)},
		}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
	w.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}})
}

func (w *world) coordinator(name, pool string) {
	w.create(&v1alpha1.YurtCoordinator{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(w.clock.Now())},
		Spec:       v1alpha1.YurtCoordinatorSpec{NodePool: pool},
	})
}

func (w *world) stamp(o client.Object) {
	if o.GetUID() == "" {
		w.uids++
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.uids)))
	}
	if o.GetCreationTimestamp().Time.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
	}
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	w.stamp(o)
	if err := w.api.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) update(o client.Object) {
	w.t.Helper()
	if err := w.api.Update(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) updateStatus(o client.Object) {
	w.t.Helper()
	if err := w.api.Status().Update(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(o client.Object) {
	w.t.Helper()
	if err := w.api.Delete(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// get reports whether there is one.
func (w *world) get(namespace, name string, o client.Object) bool {
	w.t.Helper()
	err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return !apierrors.IsNotFound(err)
}

func (w *world) list(l client.ObjectList) {
	w.t.Helper()
	if err := w.api.List(w.t.Context(), l); err != nil {
		w.t.Fatal(err)
	}
}

// status says a YurtCoordinator's conditions in short: "Pending=False/Deployed ...", without Reconciling and Stalled.
func (w *world) status(name string) string {
	w.t.Helper()
	var c v1alpha1.YurtCoordinator
	if !w.get("", name, &c) {
		return "gone"
	}
	return shortly(&c)
}

func shortly(c *v1alpha1.YurtCoordinator) string {
	var out []string
	for _, condition := range c.Status.Conditions {
		if condition.Type == v1alpha1.YurtCoordinatorReconciling || condition.Type == v1alpha1.YurtCoordinatorStalled {
			continue
		}
		out = append(out, fmt.Sprintf("%s=%s/%s", condition.Type, condition.Status, condition.Reason))
	}
	if c.Status.NodeName != "" {
		out = append(out, "on "+c.Status.NodeName)
	}
	return strings.Join(out, " ")
}

func (w *world) message(name string, kind v1alpha1.YurtCoordinatorConditionType) string {
	var c v1alpha1.YurtCoordinator
	w.get("", name, &c)
	for _, condition := range c.Status.Conditions {
		if condition.Type == kind {
			return condition.Message
		}
	}
	return ""
}

// says writes a PoolSettings about all pools, or changes it.
func (w *world) says(name string, change func(*v1alpha1.PoolSettingsSpec)) {
	w.t.Helper()
	s := &v1alpha1.PoolSettings{}
	found := w.get("", name, s)
	s.Name, s.Generation = name, s.Generation+1
	s.Spec.NodePoolSelector = &metav1.LabelSelector{}
	change(&s.Spec)
	if found {
		w.update(s)
	} else {
		w.create(s)
	}
}

// condition says one in short, and its message.
func (w *world) condition(name string, kind v1alpha1.YurtCoordinatorConditionType) string {
	w.t.Helper()
	var c v1alpha1.YurtCoordinator
	w.get("", name, &c)
	for _, condition := range c.Status.Conditions {
		if condition.Type == kind {
			return string(condition.Status) + "/" + condition.Reason
		}
	}
	return ""
}
