// Package operators signs three kinds of certificates: those of persons who use a pool's coordinator, those of programs that
// read its metrics, and those with which hubs serve Pods.
//
// A person creates a CertificateSigningRequest in the cloud for the signer coordinator.openyurt.io/POOL, and somebody with the
// right approves it. This controller signs the certificate with the authority of the pool's coordinator. A hub creates a
// request for hub.openyurt.io/serving, and package approve approves it. This controller signs the hub's certificate with
// another authority of the node's pool, which signs nothing else (docs/adr/0028).
//
// Invariants: a hub's certificate is for its own node, by name and addresses, and for servers alone. A person's certificate has
// the name of the person who requested it in the cloud, so that a pool's audit log says who it was. Its groups are those of
// operators, or the one that reads metrics. It lasts MaxLife at most, or MaxMetricsLife if it only reads metrics. This
// controller never approves. A request that breaks a rule gets the condition Failed, with the reason, and is never signed.
package operators

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

// SignerPrefix begins the names of the signers. The pool's name follows.
const SignerPrefix = edge.SignerPeople

const (
	// DefaultLife is the life of a certificate whose request names none: a working day.
	DefaultLife = 8 * time.Hour
	// MaxLife is the longest life of a certificate. A longer one that is asked for becomes this.
	MaxLife = 7 * 24 * time.Hour
	// MaxMetricsLife is the longest life of a certificate that only reads metrics. It is long because nobody wants to approve a
	// program's request each week, and the certificate gives access to nothing else.
	MaxMetricsLife = 90 * 24 * time.Hour
)

// reserved begin names that mean something to Kubernetes or to this project.
var reserved = []string{"system:", "openyurt:"}

// poolOf returns the pool whose signer a request is for.
func poolOf(r *certificatesv1.CertificateSigningRequest) (edge.PoolName, bool) {
	pool, ok := strings.CutPrefix(r.Spec.SignerName, SignerPrefix)
	return edge.PoolName(pool), ok
}

// ours reports whether a request is for a signer of this package.
func ours(r *certificatesv1.CertificateSigningRequest) bool {
	_, persons := poolOf(r)
	return persons || r.Spec.SignerName == edge.SignerHubs
}

// due reports whether a request is approved and not answered.
func due(r *certificatesv1.CertificateSigningRequest) bool {
	if !ours(r) || len(r.Status.Certificate) > 0 {
		return false
	}
	approved := false
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateApproved:
			approved = true
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return false
		}
	}
	return approved
}

// read returns the certificate to sign for a request, and its public key's request, or why there is none to sign.
func read(r *certificatesv1.CertificateSigningRequest) (certs.Request, *x509.CertificateRequest, error) {
	asked, err := certs.ParseRequest(r.Spec.Request)
	if err != nil {
		return certs.Request{}, nil, err
	}
	pool, _ := poolOf(r)
	bad := pool.CheckName()
	switch {
	case bad != nil:
		return certs.Request{}, nil, fmt.Errorf("%w: give the signer %sPOOL", bad, SignerPrefix)
	case asked.Subject.CommonName != r.Spec.Username:
		return certs.Request{}, nil, fmt.Errorf("its common name is %.100q, but %.100q asked for it: give one's own name",
			asked.Subject.CommonName, r.Spec.Username)
	case slices.ContainsFunc(reserved, func(p string) bool { return strings.HasPrefix(r.Spec.Username, p) }):
		return certs.Request{}, nil, fmt.Errorf("%.100q is not the name of a person", r.Spec.Username)
	case len(asked.Subject.Organization) == 0 || !only(asked.Subject.Organization, known...):
		return certs.Request{}, nil, fmt.Errorf("its organizations are %.300s: give %s, or %s for a person who may enter any "+
			"Pod, or %s for one who only looks, or %s for a program that reads metrics",
			strings.Join(asked.Subject.Organization, ", "), edge.GroupOperators, edge.GroupDebuggers, edge.GroupViewers,
			edge.GroupMetrics)
	case len(asked.DNSNames)+len(asked.EmailAddresses)+len(asked.IPAddresses)+len(asked.URIs) > 0:
		return certs.Request{}, nil, errors.New("it asks for names besides its subject")
	}
	if err := clientOnly(r.Spec.Usages); err != nil {
		return certs.Request{}, nil, err
	}
	longest := MaxLife
	if only(asked.Subject.Organization, edge.GroupMetrics) {
		longest = MaxMetricsLife
	}
	life := DefaultLife
	if s := r.Spec.ExpirationSeconds; s != nil {
		life = min(time.Duration(*s)*time.Second, longest)
	}
	return certs.Request{
		CommonName: r.Spec.Username, Organizations: asked.Subject.Organization, Client: true, Life: life,
	}, asked, nil
}

// known are the groups that a certificate may have.
var known = []string{edge.GroupOperators, edge.GroupDebuggers, edge.GroupViewers, edge.GroupMetrics}

// only reports whether there are no other groups than these.
func only(groups []string, these ...string) bool {
	return !slices.ContainsFunc(groups, func(g string) bool { return !slices.Contains(these, g) })
}

func clientOnly(usages []certificatesv1.KeyUsage) error {
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment:
		default:
			return fmt.Errorf("it is for the use %q: give %q", u, certificatesv1.UsageClientAuth)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("it is not for the use %q", certificatesv1.UsageClientAuth)
	}
	return nil
}
