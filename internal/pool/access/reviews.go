package access

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
)

// kubeletReviews answers the reviews of access. Kubelets ask here, while the cloud cannot be reached, whether somebody may use
// them. The one whom the coordinator can speak for is itself, by the certificate that it shows to kubelets: for exec, attach,
// port-forward, logs and metrics of the kubelet that asks. What anybody else may do with a kubelet is the cloud's to say, also
// an administrator of the cloud.
//
// It is no role in RBAC, which would let whoever holds the key of that certificate use kubelets by way of this API, too.
type kubeletReviews struct {
	inner       authorizer.Authorizer // answers whoever is not a node
	nodes       nodeidentifier.NodeIdentifier
	certificate string // the client certificate towards kubelets, a PEM file; may be empty
}

// NewReviews returns what answers reviews: inner's answer, and to kubelets only about whom certificate is of, which is
// the PEM file that the coordinator shows to kubelets; empty means that it shows none.
func NewReviews(inner authorizer.Authorizer, certificate string) authorizer.Authorizer {
	return kubeletReviews{inner, nodeidentifier.NewDefaultNodeIdentifier(), certificate}
}

// ofKubelet are the subresources of nodes that a kubelet asks for, with the verbs. The chart gives the same in the cloud
// (coordinator-rbac.yaml).
var ofKubelet = map[string][]string{
	"proxy":   {"create", "get"}, // exec, attach, port-forward, logs
	"metrics": {"get"},
}

// Authorize implements authorizer.Authorizer.
func (v kubeletReviews) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return authorizer.DecisionNoOpinion, "nobody has asked", nil
	}
	node, isNode := v.nodes.NodeIdentity(caller)
	if !isNode {
		return v.inner.Authorize(ctx, a)
	}
	if !a.IsResourceRequest() || a.GetAPIGroup() != "" || a.GetResource() != "nodes" || a.GetNamespace() != "" ||
		a.GetName() != node || node == "" || !slices.Contains(ofKubelet[a.GetSubresource()], a.GetVerb()) {
		return authorizer.DecisionNoOpinion, "the coordinator says only who may use the kubelet that asks", nil
	}
	self, err := v.self()
	if err != nil {
		klog.FromContext(ctx).Error(err, "A kubelet asks who may use it, and the coordinator does not know who it is itself")
		return authorizer.DecisionNoOpinion, "the coordinator does not know who it is", nil
	}
	if a.GetUser().GetName() != self {
		return authorizer.DecisionNoOpinion, "the coordinator speaks for nobody but itself", nil
	}
	return authorizer.DecisionAllow, "it is the coordinator of the pool", nil
}

// self is who the coordinator is to kubelets. The file is read each time: kubelets remember the answer, and the certificate
// is renewed.
func (v kubeletReviews) self() (string, error) {
	if v.certificate == "" {
		return "", errors.New("--kubelet-client-certificate is not set")
	}
	text, err := os.ReadFile(v.certificate)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return "", errors.New(v.certificate + " is no PEM file")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", err
	}
	if certificate.Subject.CommonName == "" {
		return "", errors.New("the certificate in " + v.certificate + " names nobody")
	}
	return certificate.Subject.CommonName, nil
}
