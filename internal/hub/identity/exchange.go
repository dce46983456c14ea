package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
)

const (
	// attemptFor bounds one attempt to get a certificate. approvalFor is how long the attempt that makes a request waits for its
	// approval; automatic approval takes about a second. Other requests wait for a person, so a later attempt checks the request
	// once, and does not wait.
	attemptFor  = 2 * time.Minute
	approvalFor = 30 * time.Second

	// lookFirst is the pause before the first look at a request; each later pause is twice the one before.
	lookFirst = 250 * time.Millisecond
)

// errWaiting means that a request waits for approval. errDenied means that it was denied or has failed. errUseless means that the
// node can't use the issued certificate: its content is wrong, or the cloud does not accept it.
var (
	errWaiting = errors.New("the request waits for approval")
	errDenied  = errors.New("the request was denied")
	errUseless = errors.New("what was issued is useless")
)

// attempt makes one bounded try to get what a rotation lacks, with every credential that the node has.
func (m *Manager) attempt(ctx context.Context, k *rotation) error {
	ctx, cancel := context.WithTimeout(ctx, attemptFor)
	defer cancel()
	// client-go logs bodies at high verbosity, and what a server sends back may have the token in it.
	ctx = klog.NewContext(ctx, logr.Discard())
	unlock, err := m.disk.Lock(k.kind + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	var roots *x509.CertPool
	if k == m.client {
		roots, err = m.authority(ctx)
	} else {
		roots, err = m.knownAuthority()
	}
	if err != nil {
		return err
	}
	wanted := m.wanted(k)
	present, _ := m.load(k)
	k.adopt(present)
	if m.lacking(k, present, m.cfg.Ends.Wall()) == "" {
		return nil // another process was faster
	}
	credentials, without := m.credentials(k)
	if len(credentials) == 0 {
		return without
	}
	key, fresh, err := m.requestKey(k, present)
	if err != nil {
		return err
	}
	var refusals []string
	for _, c := range credentials {
		err = m.each(func(server *url.URL) error {
			return m.exchange(ctx, k, try{server, roots, c, wanted, key, fresh})
		})
		if !errors.Is(err, errRefused) {
			break
		}
		refusals = append(refusals, err.Error())
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errRefused):
		if without != nil {
			refusals = append(refusals, without.Error())
		}
		return &classified{errRefused, strings.Join(refusals, "; ")}
	case errors.Is(err, errDenied), errors.Is(err, errUseless):
		// The next request must be a new one.
		if err := m.disk.Remove(k.fileKey()); err != nil {
			return fmt.Errorf("forget a request: %w", err)
		}
	}
	return err
}

// each goes through the servers until one is reached.
func (m *Manager) each(do func(*url.URL) error) error {
	var reasons []string
	for _, server := range m.cfg.Servers {
		err := do(server)
		if !errors.Is(err, errUnreachable) {
			return err
		}
		reasons = append(reasons, err.Error())
	}
	return &classified{errUnreachable, strings.Join(reasons, "; ")}
}

// credentials returns what the node can ask with, the best first, and an error that says what is missing.
func (m *Manager) credentials(k *rotation) (found []credential, without error) {
	if pair := m.client.pair.Get(); pair != nil {
		found = append(found, credential{what: "the node's present certificate", pair: pair})
	}
	if k != m.client {
		if len(found) == 0 {
			return nil, errors.New("the node has no client certificate yet to ask with")
		}
		return found, nil
	}
	if m.cfg.KubeletKubeconfig != "" {
		kubelet, err := m.kubelet()
		if err == nil {
			found = append(found, kubelet.credential)
		}
		without = err
	}
	bootstrap, err := m.bootstrap()
	switch {
	case err == nil:
		found = append(found, bootstrap.credential)
	case without == nil:
		without = err
	default:
		without = fmt.Errorf("%w; %w", without, err)
	}
	return found, without
}

// requestKey returns the key of the request under way, or a new key if no request is under way. It writes a new key to disk
// before the cloud is asked, so that a restart continues with the same request. The result fresh says that the key is new.
func (m *Manager) requestKey(k *rotation, present *tls.Certificate) (key *ecdsa.PrivateKey, fresh bool, err error) {
	encoded, err := ReadKeyFile(m.disk.File(k.fileKey()))
	if err == nil {
		// If the present certificate has this key, a crash left it behind after the certificate was written.
		if key, err := decodeKey(encoded); err == nil && !sameKey(present, key) {
			return key, false, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, false, fmt.Errorf("key of the request: %w", err)
	}
	key, encoded, err = newKey()
	if err != nil {
		return nil, false, err
	}
	if err := m.disk.Write(k.fileKey(), encoded); err != nil {
		return nil, false, err
	}
	return key, true, nil
}

// try is one credential at one server.
type try struct {
	server *url.URL
	roots  *x509.CertPool
	as     credential
	wanted request
	key    *ecdsa.PrivateKey
	// fresh: there can be no request with this key yet.
	fresh bool
}

// exchange asks for a certificate, waits for it, checks it and keeps it.
func (m *Manager) exchange(ctx context.Context, k *rotation, t try) error {
	s, err := m.open(t.server, t.roots, t.as)
	if err != nil {
		return err
	}
	defer s.close()
	issued, err := m.obtain(ctx, s, k, t)
	if err != nil {
		return err
	}
	content, pair, err := t.wanted.accept(issued, t.key, m.cfg.Ends.Wall())
	if err != nil {
		return &classified{errUseless, err.Error()}
	}
	if k == m.client {
		if err := m.prove(ctx, t, pair); err != nil {
			return err
		}
	}
	if err := m.disk.Write(k.filePair(), content); err != nil {
		return err
	}
	k.adopt(pair)
	if err := m.disk.Remove(k.fileKey()); err != nil {
		return fmt.Errorf("forget a request that is done: %w", err)
	}
	return nil
}

// obtain finds or makes the request and returns what is issued for it.
func (m *Manager) obtain(ctx context.Context, s *session, k *rotation, t try) ([]byte, error) {
	const doing = "asking for a certificate"
	requests := s.CertificatesV1().CertificateSigningRequests()
	name, err := t.wanted.name(k.kind, t.key)
	if err != nil {
		return nil, err
	}
	var found *certificatesv1.CertificateSigningRequest
	made := t.fresh
	if !t.fresh {
		found, err = requests.Get(ctx, name, metav1.GetOptions{})
		if made = apierrors.IsNotFound(err); !made && err != nil {
			return nil, s.failed(ctx, doing, err)
		}
	}
	if made {
		encoded, err := t.wanted.encode(t.key)
		if err != nil {
			return nil, err
		}
		found, err = requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: encoded, SignerName: t.wanted.signer, Usages: t.wanted.usages,
			},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // the answer to an earlier try was lost
			found, err = requests.Get(ctx, name, metav1.GetOptions{})
		}
		if err != nil {
			return nil, s.failed(ctx, doing, err)
		}
	}
	for pause, waited := lookFirst, time.Duration(0); ; pause *= 2 {
		issued, err := outcome(found)
		if issued != nil || !errors.Is(err, errWaiting) {
			return issued, err
		}
		k.waits(name)
		if !made || waited >= approvalFor {
			return nil, err
		}
		if run.Pause(ctx, pause) != nil {
			return nil, err
		}
		waited += pause
		next, err := requests.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, s.failed(ctx, doing, err)
		}
		found = next
	}
}

// outcome returns the certificate that was issued for a request, or why there is none.
func outcome(r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	approved := false
	for _, c := range r.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			continue
		}
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return nil, &classified{errDenied, fmt.Sprintf("the CertificateSigningRequest %s is %s: %.100s: %.200q", r.Name,
				strings.ToLower(string(c.Type)), c.Reason, c.Message)}
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	switch {
	case approved && len(r.Status.Certificate) > 0:
		return r.Status.Certificate, nil
	case approved:
		return nil, &classified{errWaiting, fmt.Sprintf("the CertificateSigningRequest %s is approved, but nobody signs it: is "+
			"there a signer %s in the cloud?", r.Name, r.Spec.SignerName)}
	}
	if r.Spec.SignerName == edge.SignerHubs {
		return nil, &classified{errWaiting, fmt.Sprintf("the CertificateSigningRequest %s waits for coordinator-approver: is "+
			"our chart in the cloud, and as new as this hub? If it is, an Event says why: "+
			"kubectl describe csr %s", r.Name, r.Name)}
	}
	return nil, &classified{errWaiting, fmt.Sprintf("the CertificateSigningRequest %s waits for approval: "+
		"kubectl certificate approve %s", r.Name, r.Name)}
}

// prove tries a new certificate against the cloud, before the hub drops a certificate that may be good. It fails if the cloud
// refuses the new one or takes the node for somebody else. A server whose clock is behind refuses a new certificate at first,
// so prove tries again for a while.
func (m *Manager) prove(ctx context.Context, t try, pair *tls.Certificate) error {
	as := credential{what: "the new certificate", pair: pair}
	s, err := m.open(t.server, t.roots, as)
	if err != nil {
		return err
	}
	defer s.close()
	user, reviews := t.wanted.node.User(), s.AuthenticationV1().SelfSubjectReviews()
	for pause, waited := lookFirst, time.Duration(0); ; pause *= 2 {
		who, err := reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		switch {
		case err == nil && who.Status.UserInfo.Username == user:
			return nil
		case err == nil:
			return &classified{errUseless, fmt.Sprintf("with the new certificate this node is %.100q to the cloud, not %q",
				who.Status.UserInfo.Username, user)}
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && strings.Contains(err.Error(), strconv.Quote(user)):
			return nil // the cloud cannot tell, but it did not refuse
		case apierrors.IsForbidden(err):
			return &classified{errUseless, "with the new certificate this node is nobody to the cloud: is the signer's " +
				"authority the one that the API servers know clients by?"}
		case !apierrors.IsUnauthorized(err):
			return s.failed(ctx, "trying the new certificate", err)
		}
		if waited >= approvalFor || run.Pause(ctx, pause) != nil {
			return &classified{errUseless, "the cloud does not accept the certificate that it issued: is the signer's " +
				"authority the one that the API servers know clients by, and are the cloud's clocks right?"}
		}
		waited += pause
	}
}
