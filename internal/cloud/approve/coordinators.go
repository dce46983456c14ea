package approve

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

// controllerUser makes the requests for coordinators' client certificates.
const controllerUser = "system:serviceaccount:" + edge.NamespaceSystem + ":coordinator-controller"

// longestClient is the longest life of a coordinator's client certificate, in seconds.
const longestClient = int32(30 * 24 * time.Hour / time.Second)

// isCoordinators reports whether a request for a client certificate is for a pool's coordinator, or pretends to be.
func isCoordinators(r *certificatesv1.CertificateSigningRequest) bool {
	return r.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName && r.Spec.Username == controllerUser
}

// JudgeCoordinators returns nil if a request of coordinator-controller is for the client certificate of a pool's coordinator.
// Otherwise the error says why it is not. Such a certificate is for a user without groups and without any right in the cloud. The
// same signer also signs for the cluster's administrators. So an attacker who has taken over coordinator-controller can request
// an administrator's certificate, but JudgeCoordinators refuses it.
func JudgeCoordinators(r *certificatesv1.CertificateSigningRequest) error {
	if !isCoordinators(r) {
		return fmt.Errorf("%q made it, not %s", r.Spec.Username, controllerUser)
	}
	asked, err := certs.ParseRequest(r.Spec.Request)
	if err != nil {
		return err
	}
	name, _ := strings.CutPrefix(asked.Subject.CommonName, edge.PoolName("").CoordinatorUser())
	pool := edge.PoolName(name)
	public, err := x509.MarshalPKIXPublicKey(asked.PublicKey)
	life := r.Spec.ExpirationSeconds
	switch {
	case err != nil:
		return errors.New("its key can't be read")
	case asked.Subject.String() != pkix.Name{CommonName: pool.CoordinatorUser()}.String(),
		len(validation.IsDNS1123Subdomain(name)) > 0:
		return fmt.Errorf("it is for %.300q, not for a pool's coordinator, %sPOOL, alone", asked.Subject,
			edge.PoolName("").CoordinatorUser())
	case len(asked.Extensions)+len(asked.DNSNames)+len(asked.EmailAddresses)+len(asked.IPAddresses)+len(asked.URIs) > 0:
		return errors.New("it asks for more than its subject")
	case !slices.Equal(r.Spec.Usages, []certificatesv1.KeyUsage{
		certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth,
	}):
		return fmt.Errorf("it is for the uses %q", r.Spec.Usages)
	case life == nil || *life > longestClient:
		return fmt.Errorf("it is for more than %d s", longestClient)
	case r.Name != pool.KubeletClientRequest(public):
		return fmt.Errorf("it is not called %s, as one for that key is", pool.KubeletClientRequest(public))
	}
	return nil
}
