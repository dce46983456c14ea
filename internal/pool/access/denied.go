package access

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"yurtcoordinator/internal/edge"
)

const (
	// fingerprintPrefix begins an item that denies one certificate. The audit log shows the same text as the credential's id.
	fingerprintPrefix = edge.CertificateIDPrefix
	// maxDeniedItem bounds an item, in bytes. A certificate's common name has at most 64 characters.
	maxDeniedItem = 256
)

var fingerprint = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Denied knows whose certificates are no longer valid here. A client certificate can't be revoked, so without this list a lost
// kubeconfig would work until its certificate expires.
type Denied struct{ list list }

// NewDenied returns a Denied that reads a file. Each line is a user's name, or X509SHA256= and the digest of a certificate. An
// empty file name denies nobody.
func NewDenied(file string) *Denied {
	return &Denied{list{flag: "denied-users-file", file: file, bad: BadDenied}}
}

// BadDenied returns why an item can't deny anybody, or nil. The text of its error follows the item.
func BadDenied(item string) error {
	digest, isDigest := strings.CutPrefix(item, fingerprintPrefix)
	switch {
	case len(item) > maxDeniedItem:
		return errors.New("is longer than 256 bytes")
	case isDigest && !fingerprint.MatchString(digest):
		return errors.New("is not " + fingerprintPrefix +
			" and a certificate's SHA-256 digest in 64 lower-case hexadecimal digits")
	}
	return nil
}

// Authorize implements authorizer.Authorizer. It refuses everything to callers on the list. Before the list is first read, it
// refuses every caller with a certificate that is not a node's. Nodes must not wait for a list that is mostly about people.
func (d *Denied) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	caller := a.GetUser()
	if caller == nil || isOwn(caller) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	ids := caller.GetExtra()[user.CredentialIDKey]
	switch {
	case !d.list.known() && len(ids) > 0 && !isNodes(caller):
		return refuse("this coordinator does not know yet whose certificates were withdrawn")
	case d.list.has(caller.GetName()):
		return refuse("the certificates of this user were withdrawn: see spec.deniedUsers of the YurtCoordinator")
	case d.Withdrawn(caller):
		return refuse("this certificate was withdrawn: see spec.deniedUsers of the YurtCoordinator")
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// Withdrawn reports whether a caller, or the certificate that it has shown, is on the list.
func (d *Denied) Withdrawn(caller user.Info) bool {
	return d.list.has(caller.GetName()) || slices.ContainsFunc(caller.GetExtra()[user.CredentialIDKey], d.list.has)
}

// Run follows the file until ctx ends.
func (d *Denied) Run(ctx context.Context) error { return d.list.run(ctx, func(context.Context) {}) }

// Read reads the file and reports whether the list has changed.
func (d *Denied) Read() (news bool, err error) { return d.list.read() }
