package access

import (
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
)

// openPaths answer without a certificate, so that a kubelet can probe them.
var openPaths = []string{"/livez", "/readyz"}

// AtTheDoor recognizes callers by their client certificate, verified against the CAs as they are now. An expired or
// unknown certificate is an error, not an anonymous caller, on the open paths too.
func AtTheDoor(verify requestx509.VerifyOptionFunc) authenticator.Request {
	byCertificate := group.NewAuthenticatedGroupAdder(withoutMasters(
		requestx509.NewDynamic(verify, requestx509.CommonNameUserConversion)))
	conditions := make([]apiserverapi.AnonymousAuthCondition, len(openPaths))
	for i, open := range openPaths {
		conditions[i].Path = open
	}
	return requestunion.NewFailOnError(byCertificate, anonymous.NewAuthenticator(conditions))
}

// withoutMasters takes Kubernetes' all-powerful group from whoever comes with a certificate. The CA of the nodes is the
// cluster's own as a rule, and an administrator's certificate for the cloud is no reason to write into the pool; the
// group is for this process's own client.
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

// NewAuthorizer returns what decides over each request: the paths that are open to all, then who is of the pool, then what
// nodes never read here, then kubernetes, which is the Node authorizer and RBAC.
func NewAuthorizer(m *Members, kubernetes authorizer.Authorizer) (authorizer.Authorizer, error) {
	openToAll, err := path.NewAuthorizer(openPaths)
	if err != nil {
		return nil, err
	}
	return authorizerunion.New(openToAll, m, newNotForNodes(), kubernetes, hints{}), nil
}
