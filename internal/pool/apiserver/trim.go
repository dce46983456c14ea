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

// reviewedVersion is the version of k8s.io/kubernetes that this package was written for. Two things depend on it: what is left
// out of kube-apiserver's assembly, and which fields of Pods and Nodes the Node authorizer and NodeRestriction read (slimPod,
// slimNode). A test fails when the module's version changes, so that somebody checks both again.
const reviewedVersion = "v1.36.3"

// slimInformers shrinks the informers' copies of Pods and Nodes to what the Node authorizer and NodeRestriction use. Otherwise
// 500 Nodes of 8 KB would take 4 MB, mostly lists of images, and as much again in garbage.
func slimInformers(factory informers.SharedInformerFactory) error {
	if err := factory.Core().V1().Pods().Informer().SetTransform(slimPod); err != nil {
		return fmt.Errorf("slim the copy of Pods: %w", err)
	}
	if err := factory.Core().V1().Nodes().Informer().SetTransform(slimNode); err != nil {
		return fmt.Errorf("slim the copy of Nodes: %w", err)
	}
	return nil
}

// slimPod keeps what can name another object: the whole spec, and the claims in the status.
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

// tokenObjects finds, in the informers' copies, the objects that a ServiceAccount token is bound to. It finds no Secret, because
// that would need a copy of every Secret.
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

// untyped replaces Kubernetes' OpenAPI definitions, which every API group requires at start. It describes each type as an object
// of unknown fields, so managed fields and server-side apply treat a list as one value. The real definitions take 5 MB of the
// program and, when served, 47 MB of memory (measured idle).
func untyped(schemes ...*runtime.Scheme) openapicommon.GetOpenAPIDefinitions {
	return func(openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
		definitions := map[string]openapicommon.OpenAPIDefinition{}
		for _, scheme := range schemes {
			for kind := range scheme.AllKnownTypes() {
				name, err := scheme.ToOpenAPIDefinitionName(kind)
				if err != nil {
					continue // an internal type, which nobody asks for
				}
				object := spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
				object.AddExtension("x-kubernetes-preserve-unknown-fields", true)
				definitions[name] = openapicommon.OpenAPIDefinition{Schema: object}
			}
		}
		return definitions
	}
}
