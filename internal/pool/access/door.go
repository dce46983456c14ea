package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"

	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	requestunion "k8s.io/apiserver/pkg/authentication/request/union"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/path"
	authorizerunion "k8s.io/apiserver/pkg/authorization/union"

	"yurtcoordinator/internal/ends"
)

// openPaths answer without a certificate, so that a kubelet can probe them. Connections without a certificate can come only
// from this machine.
var openPaths = []string{"/livez", "/readyz"}

// AtTheDoor authenticates callers by their client certificates. It verifies a certificate by the CAs that verify returns at that
// moment, and by the clock c (see recognized). The caller of an expired or unknown certificate gets an error, even on the open
// paths, and does not become anonymous. The file poolCA has the pool's own authorities; the type divided says what only they may
// sign. An empty poolCA means that all CAs may sign the same.
func AtTheDoor(verify requestx509.VerifyOptionFunc, poolCA string, c ends.Clock) authenticator.Request {
	as := requestx509.UserConversion(requestx509.CommonNameUserConversion)
	if poolCA != "" {
		as = divided{poolCA}
	}
	byCertificate := group.NewAuthenticatedGroupAdder(withoutMasters(newRecognized(verify, as, c)))
	conditions := make([]apiserverapi.AnonymousAuthCondition, len(openPaths))
	for i, open := range openPaths {
		conditions[i].Path = open
	}
	return requestunion.NewFailOnError(byCertificate, anonymous.NewAuthenticator(conditions))
}

var errNoAuthority = errors.New("no client CA is known")

// Known returns the check of a client's certificate in the handshake: one of the present CAs must have signed it. Known accepts a
// certificate that has expired, because AtTheDoor can refuse it later with an answer that says what to do.
func Known(verify requestx509.VerifyOptionFunc, c ends.Clock) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		shown := s.PeerCertificates
		options, ok := verify()
		if !ok || len(shown) == 0 {
			return &tls.CertificateVerificationError{UnverifiedCertificates: shown, Err: errNoAuthority}
		}
		options.Intermediates = x509.NewCertPool()
		for _, each := range shown[1:] {
			options.Intermediates.AddCert(each)
		}
		options.CurrentTime = c.Wall()
		if options.CurrentTime.After(shown[0].NotAfter) {
			options.CurrentTime = shown[0].NotAfter
		}
		if options.CurrentTime.Before(shown[0].NotBefore) {
			options.CurrentTime = shown[0].NotBefore
		}
		if _, err := shown[0].Verify(options); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: shown, Err: err}
		}
		return nil
	}
}

// withoutMasters removes Kubernetes' all-powerful group, system:masters, from callers with a certificate. The nodes' CA is
// usually the cluster's own, and an administrator's certificate for the cloud must not allow writes into the pool. Only this
// process's own client keeps the group.
func withoutMasters(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := inner.AuthenticateRequest(r)
		if err != nil || !ok {
			return response, ok, err
		}
		stripped := *response
		stripped.User = &user.DefaultInfo{
			Name:   response.User.GetName(),
			UID:    response.User.GetUID(),
			Extra:  response.User.GetExtra(),
			Groups: slices.DeleteFunc(slices.Clone(response.User.GetGroups()), isMasters),
		}
		return &stripped, true, nil
	})
}

func isMasters(group string) bool { return group == user.SystemPrivilegedGroup }

// NewAuthorizer returns the authorizer of each request. It allows the open paths. It then refuses withdrawn certificates, nodes
// of other pools, nodes' requests that no hub makes, and operators' streams into Pods that they must not enter. Last it asks the
// authorizer kubernetes, which knows nodes and this process itself, and then rights (see NewRights).
func NewAuthorizer(d *Denied, m *Members, pods Pods, kubernetes, rights authorizer.Authorizer) (authorizer.Authorizer, error) {
	openToAll, err := path.NewAuthorizer(openPaths)
	if err != nil {
		return nil, err
	}
	return authorizerunion.New(openToAll, d, m, newAsHubs(), newStreams(pods), kubernetes, rights, hints{}), nil
}
