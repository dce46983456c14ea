package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/approve"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/keys"
	"yurtcoordinator/internal/edge"
)

const (
	// signedSoonest and signedLatest bound the wait until this program looks again whether a request was signed. Between them,
	// the wait equals the request's age. Up to a tenth is added at random.
	signedSoonest, signedLatest = time.Second, 10 * time.Minute
	// refusedWait is the wait after a signer's refusal before the next request.
	refusedWait = 10 * time.Minute
	// failedWait is the wait after a failure to ask.
	failedWait = 10 * time.Second
)

// toKubelets is a pool's state towards kubelets.
type toKubelets struct {
	keyring
	// whyNot says why there is no certificate to show; empty means that there is one.
	whyNot string
	// again is when to look again.
	again time.Time
}

// kubeletClient keeps and returns a pool's certificates for kubelets. It stores a key in a Secret of the pool before it requests
// the certificate. So after a crash the next process continues with the same request.
//
// A request's name contains a digest of its key. So nobody else can take the name first, and a refused request blocks no later
// one. This program deletes no request. Kubernetes deletes old requests, and all requests of a YurtCoordinator with it.
func (r *Reconciler) kubeletClient(ctx context.Context, f facts) (toKubelets, error) {
	have, err := keys.Get(ctx, r.cfg.Reader, f.Pool.KubeletClientSecret())
	if err != nil {
		return toKubelets{}, err
	}
	user, now := f.Pool.CoordinatorUser(), r.cfg.Clock.Now()
	k, why, again := keyringIn(have).turn(user, f.Rekey, now)
	_, noKey := certs.SigningRequest(k.Request, user)
	switch {
	case why == "":
		k.Request = nil
	case noKey != nil:
		if k.Request, err = certs.NewKey(); err != nil {
			return toKubelets{}, err
		}
	}
	if have, err = r.keepKeyring(ctx, f, have, k); err != nil {
		return toKubelets{}, err
	}
	if why == "" {
		return r.haveKeyring(f, k, "", again), nil
	}
	got, err := r.issuedFor(ctx, f.Pool, f.Owner, k.Request)
	if apierrors.IsConflict(err) {
		return toKubelets{}, err
	}
	if err != nil {
		got = answer{waits: err.Error(), after: wait.Jitter(failedWait, 0.5)}
	}
	switch {
	case got.refused:
		k.Request = nil // it can never be used
	case got.waits == "":
		k = k.with(got.signed)
		r.metrics.made(kindKubelet)
		klog.FromContext(ctx).Info("Got a client certificate for kubelets", "pool", f.Pool, "why", why)
		got.after = signedSoonest
	}
	if err != nil || got.refused {
		_ = r.metrics.tried(kindKubelet, errors.New(got.waits))
		klog.FromContext(ctx).Info("No new client certificate for kubelets", "pool", f.Pool, "why", got.waits)
	}
	if _, err := r.keepKeyring(ctx, f, have, k); err != nil {
		return toKubelets{}, err
	}
	return r.haveKeyring(f, k, got.waits, now.Add(got.after)), nil
}

// haveKeyring returns the state of a pool with a keyring. Nobody waits while there is a certificate to show.
func (r *Reconciler) haveKeyring(f facts, k keyring, waits string, again time.Time) toKubelets {
	r.metrics.holds(certOf{name: f.Owner.Name, kind: kindKubelet}, k.Shown)
	out := toKubelets{keyring: k, again: again}
	if k.Shown.IsZero() {
		out.whyNot = fmt.Sprintf("No client certificate for kubelets yet: %s. See kubectl get csr.", waits)
	}
	return out
}

// keepKeyring writes the keyring if it has changed, and returns the Secret as it is now.
func (r *Reconciler) keepKeyring(ctx context.Context, f facts, have *corev1.Secret, k keyring) (*corev1.Secret, error) {
	want := k.secret(f.Pool, f.Owner)
	if have.UID != "" && holds(have, want) {
		return have, nil
	}
	if err := r.keep(ctx, have, want); err != nil {
		return nil, err
	}
	return keys.Get(ctx, r.cfg.Reader, want.Name)
}

// answer is what has come of a request.
type answer struct {
	signed certs.Pair
	// waits says why there is no certificate; empty means that there is one.
	waits string
	// after is when to ask again.
	after time.Duration
	// refused: there never will be one for this key.
	refused bool
}

// issuedFor returns the certificate that the cluster's signer made for this key, or says why there is none yet. It creates the
// request if it is missing. Package approve decides about the request.
func (r *Reconciler) issuedFor(ctx context.Context, pool edge.PoolName, o owner, key []byte) (answer, error) {
	name, err := requestName(pool, key)
	if err != nil {
		return answer{}, err
	}
	var csr certificatesv1.CertificateSigningRequest
	err = r.cfg.Reader.Get(ctx, client.ObjectKey{Name: name}, &csr)
	if apierrors.IsNotFound(err) {
		return answer{waits: "the request has just been made", after: signedSoonest}, r.request(ctx, name, pool, o, key)
	}
	if err != nil {
		return answer{}, fmt.Errorf("read CertificateSigningRequest %s: %w", name, err)
	}
	if wrong := approve.JudgeCoordinators(&csr); wrong != nil {
		return answer{waits: fmt.Sprintf("request %s is not ours: %v", name, wrong), after: signedSoonest, refused: true}, nil
	}
	age := r.cfg.Clock.Since(csr.CreationTimestamp.Time)
	after := wait.Jitter(min(max(age, signedSoonest), signedLatest), 0.1)
	approved := false
	for _, c := range csr.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			waits := fmt.Sprintf("request %s is %s: %s %s", name, c.Type, c.Reason, c.Message)
			if age < refusedWait {
				return answer{waits: waits, after: refusedWait - age}, nil
			}
			return answer{waits: waits, after: signedSoonest, refused: true}, nil
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if !approved {
		return answer{waits: "the Deployment coordinator-approver has not approved request " + name, after: after}, nil
	}
	if len(csr.Status.Certificate) == 0 {
		return answer{waits: "the signer kubernetes.io/kube-apiserver-client has not signed yet (request " + name + "); " +
			"it runs in kube-controller-manager with --cluster-signing-cert-file", after: after}, nil
	}
	return r.adopt(csr.Status.Certificate, key, pool.CoordinatorUser()), nil
}

// adopt returns what a signer has made of a request, unless that is something else.
func (r *Reconciler) adopt(signed, key []byte, user string) answer {
	fresh, err := certs.Adopt(signed, key, user, r.cfg.Clock.Now())
	if err != nil {
		return answer{waits: err.Error(), after: wait.Jitter(refusedWait, 0.5), refused: true}
	}
	return answer{signed: fresh}
}

// requestName returns the name of the request for a key.
func requestName(pool edge.PoolName, key []byte) (string, error) {
	public, err := certs.PublicKey(key)
	if err != nil {
		return "", err
	}
	return pool.KubeletClientRequest(public), nil
}

func (r *Reconciler) request(ctx context.Context, name string, pool edge.PoolName, o owner, key []byte) error {
	request, err := certs.SigningRequest(key, pool.CoordinatorUser())
	if err != nil {
		return err
	}
	const shortest = 600 // the API's minimum
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: ownedMeta("", name, pool, o),
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientSignerName,
			ExpirationSeconds: ptr.To(int32(max(shortest, r.cfg.Lives.Kubelet/time.Second))),
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	err = r.cfg.Client.Create(ctx, csr, client.FieldOwner(FieldOwner))
	if err != nil && !apierrors.IsAlreadyExists(err) { // one that exists is checked in the next round
		return fmt.Errorf("create CertificateSigningRequest %s: %w", name, err)
	}
	return nil
}
