package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// reviewedVersion is the version of k8s.io/kubernetes whose sources this package was written against: what it leaves
// out of kube-apiserver's assembly, and which fields of Pods and Nodes the Node authorizer and NodeRestriction read
// (slimPod, slimNode). A test fails when the module's version moves, so that both are looked at again.
const reviewedVersion = "v1.36.3"

// slimInformers makes the second in-process copies of Pods and Nodes, which the Node authorizer and NodeRestriction
// work from, as small as their use: 500 Nodes of 8 KB are 4 MB of image lists otherwise, and again in garbage.
func slimInformers(factory informers.SharedInformerFactory) error {
	if err := factory.Core().V1().Pods().Informer().SetTransform(slimPod); err != nil {
		return fmt.Errorf("slim the copy of Pods: %w", err)
	}
	if err := factory.Core().V1().Nodes().Informer().SetTransform(slimNode); err != nil {
		return fmt.Errorf("slim the copy of Nodes: %w", err)
	}
	return nil
}

// slimPod keeps what can name another object: all of the spec, and of the status the claims.
func slimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	pod.Labels = nil
	if mirror, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirror}
	} else {
		pod.Annotations = nil
	}
	pod.Status = corev1.PodStatus{
		ResourceClaimStatuses:       pod.Status.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus,
	}
	return pod, nil
}

// slimNode keeps name and UID.
func slimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	node.ManagedFields, node.Labels, node.Annotations = nil, nil, nil
	node.Spec, node.Status = corev1.NodeSpec{}, corev1.NodeStatus{}
	return node, nil
}

// tokenObjects finds what a bound ServiceAccount token refers to, in the copies that are there anyway. Tokens bound to
// Secrets, which Kubernetes no longer makes, are not recognized: they would need a copy of every Secret.
type tokenObjects struct {
	accounts corelisters.ServiceAccountLister
	pods     corelisters.PodLister
	nodes    corelisters.NodeLister
}

func newTokenObjects(factory informers.SharedInformerFactory) serviceaccount.ServiceAccountTokenGetter {
	core := factory.Core().V1()
	return tokenObjects{core.ServiceAccounts().Lister(), core.Pods().Lister(), core.Nodes().Lister()}
}

func (t tokenObjects) GetServiceAccount(_ context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return t.accounts.ServiceAccounts(namespace).Get(name)
}

func (t tokenObjects) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return t.pods.Pods(namespace).Get(name)
}

func (t tokenObjects) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return t.nodes.Get(name)
}

func (t tokenObjects) GetSecret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

// untyped stands in for Kubernetes' OpenAPI definitions, which every API group insists on at start: each type is an
// object of unknown fields. Managed fields and server-side apply then treat a list as one value. The definitions
// themselves are 5 MB of program and, served, 47 MB of memory (measured idle); package openapi serves their documents.
func untyped(schemes ...*runtime.Scheme) openapicommon.GetOpenAPIDefinitions {
	return func(openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
		definitions := map[string]openapicommon.OpenAPIDefinition{}
		for _, scheme := range schemes {
			for kind := range scheme.AllKnownTypes() {
				name, err := scheme.ToOpenAPIDefinitionName(kind)
				if err != nil {
					continue // an internal type; none is ever asked for
				}
				object := spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
				object.AddExtension("x-kubernetes-preserve-unknown-fields", true)
				definitions[name] = openapicommon.OpenAPIDefinition{Schema: object}
			}
		}
		return definitions
	}
}
