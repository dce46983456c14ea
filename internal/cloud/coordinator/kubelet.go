package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

const (
	// signedSoonest and signedLatest bound the time until a request's signature is checked again: when the request is
	// twice as old.
	signedSoonest, signedLatest = time.Second, time.Minute
	// refusedWait is the wait after a signer's refusal before the next request.
	refusedWait = 10 * time.Minute

	approveReason = "CoordinatorKubeletClient"
)

// reconcileKubelet keeps the client certificate that coordinators show to kubelets. It stores the key in the Secret,
// under another name, before it requests the certificate. So after a crash the next process continues with the same
// request.
func (r *Reconciler) reconcileKubelet(ctx context.Context) (reconcile.Result, error) {
	have, err := r.secret(ctx, kubeletSecret)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.cfg.Clock.Now()
	pair := pairIn(have, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	why, again := certs.PlanClient(pair, kubeletUser, now)
	if why == "" {
		if err := r.tidy(ctx, have, pair); err != nil {
			return reconcile.Result{}, err
		}
		r.haveKubelet(ctx, pair, "")
		return reconcile.Result{RequeueAfter: max(signedSoonest, min(again.Sub(now), wait.Jitter(r.cfg.Resync, 0.1)))}, nil
	}
	if pair.Usable(now) != nil {
		pair = certs.Pair{}
	}
	key := have.Data[keyRequest]
	if _, err := certs.SigningRequest(key, kubeletUser); err != nil {
		if key, err = certs.NewKey(); err != nil {
			return reconcile.Result{}, err
		}
		if err := r.keepKubelet(ctx, have, pair, key); err != nil {
			return reconcile.Result{}, err
		}
		if have, err = r.secret(ctx, kubeletSecret); err != nil {
			return reconcile.Result{}, err
		}
	}
	signed, waits, after, err := r.ask(ctx, key)
	if err != nil || waits != "" {
		r.haveKubelet(ctx, pair, waitMessage(pair, waits, err))
		return reconcile.Result{RequeueAfter: after}, err
	}
	fresh, err := certs.Adopt(signed, key, kubeletUser, now)
	if r.metrics.tried(kindKubelet, err) != nil {
		r.haveKubelet(ctx, pair, waitMessage(pair, err.Error(), nil))
		// A refused request can never be used.
		return reconcile.Result{RequeueAfter: wait.Jitter(refusedWait, 0.5)}, r.withdraw(ctx)
	}
	if err := r.keepKubelet(ctx, have, fresh, nil); err != nil {
		return reconcile.Result{}, err
	}
	r.metrics.made(kindKubelet)
	klog.FromContext(ctx).Info("Got a client certificate for kubelets", "why", why)
	if err := r.withdraw(ctx); err != nil {
		return reconcile.Result{}, err
	}
	r.haveKubelet(ctx, fresh, "")
	return reconcile.Result{RequeueAfter: signedSoonest}, nil
}

// waitMessage is for the conditions of those that wait for the certificate. Nobody waits while the old one is valid.
func waitMessage(pair certs.Pair, waits string, err error) string {
	if !pair.IsZero() {
		return ""
	}
	if err != nil {
		waits = err.Error()
	}
	return fmt.Sprintf("No client certificate for kubelets yet: %s. See kubectl describe csr %s.", waits, kubeletRequest)
}

// tidy removes what remains of a request that has been answered.
func (r *Reconciler) tidy(ctx context.Context, have *corev1.Secret, pair certs.Pair) error {
	if len(have.Data[keyRequest]) > 0 {
		if err := r.keepKubelet(ctx, have, pair, nil); err != nil {
			return err
		}
	}
	r.mu.Lock()
	known := r.kubelet.known && string(r.kubelet.pair.Cert) == string(pair.Cert)
	r.mu.Unlock()
	if known { // then the request was withdrawn before
		return nil
	}
	return r.withdraw(ctx)
}

func (r *Reconciler) keepKubelet(ctx context.Context, have *corev1.Secret, pair certs.Pair, request []byte) error {
	want := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: edge.NamespaceSystem, Name: kubeletSecret, Labels: map[string]string{labelManagedBy: FieldOwner},
		},
		Type: corev1.SecretTypeOpaque,
		Data: make(map[string][]byte),
	}
	if !pair.IsZero() {
		want.Data[corev1.TLSCertKey], want.Data[corev1.TLSPrivateKeyKey] = pair.Cert, pair.Key
	}
	if len(request) > 0 {
		want.Data[keyRequest] = request
	}
	return r.keep(ctx, have, want)
}

// ask returns the certificate that the cluster's signer made for this key, or why there is none yet and when to ask
// again. It approves the request only if that is exactly the one that this program makes.
func (r *Reconciler) ask(ctx context.Context, key []byte) (signed []byte, waits string, after time.Duration, err error) {
	var csr certificatesv1.CertificateSigningRequest
	err = r.cfg.Reader.Get(ctx, client.ObjectKey{Name: kubeletRequest}, &csr)
	if apierrors.IsNotFound(err) {
		return nil, "the request has just been made", signedSoonest, r.request(ctx, key)
	}
	if err != nil {
		return nil, "", 0, fmt.Errorf("read CertificateSigningRequest %s: %w", kubeletRequest, err)
	}
	if wrong := differs(&csr, key, r.cfg.Lives.Kubelet); wrong != nil {
		klog.FromContext(ctx).Info("Deleting a request that is not ours", "request", kubeletRequest, "why", wrong.Error())
		return nil, "somebody else's request of that name was deleted: " + wrong.Error(), signedSoonest, r.withdraw(ctx)
	}
	age := r.cfg.Clock.Since(csr.CreationTimestamp.Time)
	after = wait.Jitter(min(max(age, signedSoonest), signedLatest), 0.1)
	approved := false
	for _, c := range csr.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			waits = fmt.Sprintf("the request is %s: %s %s", c.Type, c.Reason, c.Message)
			_ = r.metrics.tried(kindKubelet, errors.New(waits))
			if age < refusedWait {
				return nil, waits, refusedWait - age, nil
			}
			return nil, waits, signedSoonest, r.withdraw(ctx)
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if !approved {
		return nil, "the request has just been approved", signedSoonest, r.approve(ctx, &csr)
	}
	if len(csr.Status.Certificate) == 0 {
		return nil, "the signer kubernetes.io/kube-apiserver-client has not signed yet; " +
			"it runs in kube-controller-manager with --cluster-signing-cert-file", after, nil
	}
	return csr.Status.Certificate, "", 0, nil
}

func (r *Reconciler) request(ctx context.Context, key []byte) error {
	request, err := certs.SigningRequest(key, kubeletUser)
	if err != nil {
		return err
	}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: kubeletRequest, Labels: map[string]string{labelManagedBy: FieldOwner}},
		Spec:       requestSpec(request, r.cfg.Lives.Kubelet),
	}
	err = r.cfg.Client.Create(ctx, csr, client.FieldOwner(FieldOwner))
	if err != nil && !apierrors.IsAlreadyExists(err) { // one that exists is checked in the next round
		return fmt.Errorf("create CertificateSigningRequest %s: %w", kubeletRequest, err)
	}
	return nil
}

func requestSpec(request []byte, life time.Duration) certificatesv1.CertificateSigningRequestSpec {
	const shortest = 600 // the API's minimum
	return certificatesv1.CertificateSigningRequestSpec{
		Request:           request,
		SignerName:        certificatesv1.KubeAPIServerClientSignerName,
		ExpirationSeconds: ptr.To(int32(max(shortest, life/time.Second))),
		Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}
}

// differs returns how a request differs from the one that this program makes with this key, or nil.
func differs(csr *certificatesv1.CertificateSigningRequest, key []byte, life time.Duration) error {
	if err := certs.IsSigningRequest(csr.Spec.Request, key, kubeletUser); err != nil {
		return err
	}
	want := requestSpec(csr.Spec.Request, life)
	switch {
	case csr.Spec.SignerName != want.SignerName:
		return fmt.Errorf("it is for the signer %s", csr.Spec.SignerName)
	case !slices.Equal(csr.Spec.Usages, want.Usages):
		return fmt.Errorf("it is for %v", csr.Spec.Usages)
	case ptr.Deref(csr.Spec.ExpirationSeconds, 0) != *want.ExpirationSeconds:
		return fmt.Errorf("its lifetime is not %d s", *want.ExpirationSeconds)
	}
	return nil
}

func (r *Reconciler) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: approveReason,
		Message: "coordinator-controller asked for it, for the coordinators' calls of kubelets.",
	})
	if err := r.cfg.Client.SubResource("approval").Update(ctx, csr); err != nil {
		return fmt.Errorf("approve CertificateSigningRequest %s: %w", csr.Name, err)
	}
	return nil
}

// withdraw deletes the request.
func (r *Reconciler) withdraw(ctx context.Context) error {
	return r.remove(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: kubeletRequest}})
}

// haveKubelet stores the state of the certificate. If it changed, all YurtCoordinators are reconciled.
func (r *Reconciler) haveKubelet(ctx context.Context, pair certs.Pair, whyNot string) {
	r.metrics.holds("", kindKubelet, pair)
	r.mu.Lock()
	was := r.kubelet
	r.kubelet = kubeletClient{known: true, pair: pair, whyNot: whyNot}
	r.mu.Unlock()
	if was.known && string(was.pair.Cert) == string(pair.Cert) && was.whyNot == whyNot {
		return
	}
	klog.FromContext(ctx).V(2).Info("Client certificate for kubelets", "whyNot", whyNot)
	select {
	case r.changed <- event.GenericEvent{Object: &v1alpha1.YurtCoordinator{}}:
	default: // the signal is already pending
	}
}
