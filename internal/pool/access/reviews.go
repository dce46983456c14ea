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

// kubeletReviews answers reviews of access. Hubs answer their kubelets by themselves. Those of before ask here, while the
// cloud can't be reached, whether somebody may use a kubelet. The coordinator speaks only for itself, the user of the
// certificate that it shows to kubelets: it may use exec, attach, port-forward, logs and metrics of the kubelet that asks.
// The cloud decides what anybody else may do with a kubelet, even an administrator of the cloud.
//
// This is not a role in RBAC, which would also let whoever has that certificate's key use kubelets through this API.
type kubeletReviews struct {
	inner       authorizer.Authorizer // answers callers that are not nodes
	nodes       nodeidentifier.NodeIdentifier
	certificate string // the client certificate for kubelets, a PEM file; may be empty
}

// NewReviews returns the authorizer for reviews. It gives inner's answer, except to kubelets: they get an answer only
// about the user of certificate, the PEM file that the coordinator shows to kubelets; empty means that it shows none.
func NewReviews(inner authorizer.Authorizer, certificate string) authorizer.Authorizer {
	return kubeletReviews{inner, nodeidentifier.NewDefaultNodeIdentifier(), certificate}
}

// ofKubelet are the subresources of nodes that a kubelet asks about, with their verbs.
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
		return authorizer.DecisionNoOpinion, "the coordinator only says who may use the asking kubelet", nil
	}
	self, err := v.self()
	if err != nil {
		klog.FromContext(ctx).Error(err, "A kubelet asks who may use it, but the coordinator can't read its own certificate")
		return authorizer.DecisionNoOpinion, "the coordinator can't read its own certificate", nil
	}
	if a.GetUser().GetName() != self {
		return authorizer.DecisionNoOpinion, "the coordinator speaks only for itself", nil
	}
	return authorizer.DecisionAllow, "it is the coordinator of the pool", nil
}

// self returns the coordinator's user name at kubelets. It reads the file each time, because the certificate is
// renewed; kubelets cache the answer.
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
		return "", errors.New(v.certificate + " is not a PEM file")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", err
	}
	if certificate.Subject.CommonName == "" {
		return "", errors.New("the certificate in " + v.certificate + " names no user")
	}
	return certificate.Subject.CommonName, nil
}
