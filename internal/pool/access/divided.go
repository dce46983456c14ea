package access

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/cert"

	"yurtcoordinator/internal/edge"
)

// Prefixes of the names and groups that one authority alone may give.
const (
	clustersOwn = "system:"
	poolsOwn    = edge.GroupOperators // and its subgroups
)

// divided says whom a verified chain of certificates identifies, and which authority may sign for whom. Only the pool's authority
// may sign for operators, because many clusters let ordinary users have client certificates with any group but system:masters.
// Only the cluster's authority may sign for nodes; the pool's is one of many, because each pool has its own. A name that begins
// with "system:" is an error if the pool's authority has signed it.
type divided struct {
	// poolCA is the PEM file of the pool's authorities, read for each connection. While it is missing, there are none.
	poolCA string
}

// User implements requestx509.UserConversion.
func (d divided) User(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
	response, ok, err := requestx509.CommonNameUserConversion(chain)
	if err != nil || !ok {
		return response, ok, err
	}
	pools, err := d.isPools(chain[len(chain)-1])
	if err != nil {
		return nil, false, err
	}
	name := response.User.GetName()
	if pools && strings.HasPrefix(name, clustersOwn) {
		return nil, false, fmt.Errorf("the pool's authority has signed for %q, which only the cluster's may", name)
	}
	groups := slices.DeleteFunc(slices.Clone(response.User.GetGroups()), func(group string) bool {
		if pools {
			return strings.HasPrefix(group, clustersOwn)
		}
		return group == poolsOwn || strings.HasPrefix(group, poolsOwn+":")
	})
	return &authenticator.Response{Audiences: response.Audiences, User: &user.DefaultInfo{
		Name: name, UID: response.User.GetUID(), Extra: response.User.GetExtra(), Groups: groups,
	}}, true, nil
}

// isPools reports whether an authority is one of the pool's.
func (d divided) isPools(authority *x509.Certificate) (bool, error) {
	content, err := os.ReadFile(d.poolCA)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("--pool-ca-file: %w", err)
	}
	all, err := cert.ParseCertsPEM(content)
	if err != nil {
		return false, fmt.Errorf("--pool-ca-file %s: %w", d.poolCA, err)
	}
	return slices.ContainsFunc(all, authority.Equal), nil
}
