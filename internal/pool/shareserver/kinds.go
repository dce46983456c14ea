package shareserver

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Resources that hubs push about their own nodes. All have version v1.
const (
	resourceNodes           = "nodes"
	resourcePods            = "pods"
	resourceConfigMaps      = "configmaps"
	resourceSecrets         = "secrets"
	resourceEvents          = "events"
	resourceServiceAccounts = "serviceaccounts"
)

// Kind is a resource whose objects hubs may push.
type Kind struct {
	BuiltIn
	resource string
	// shared means that an object belongs to all nodes whose Pods use it. Any other belongs to one node.
	shared bool
}

func (k Kind) namespaced() bool { return k.resource != resourceNodes }

// allKinds returns the resources that hubs may push about their nodes, with Secrets only if they are allowed.
func allKinds(secrets bool) map[schema.GroupVersionResource]Kind {
	all := []Kind{
		coreKind("Node", resourceNodes, false, func() Message { return &corev1.Node{} }),
		coreKind("Pod", resourcePods, false, func() Message { return &corev1.Pod{} }),
		coreKind("Event", resourceEvents, false, func() Message { return &corev1.Event{} }),
		coreKind("ConfigMap", resourceConfigMaps, true, func() Message { return &corev1.ConfigMap{} }),
		coreKind("ServiceAccount", resourceServiceAccounts, true, func() Message { return &corev1.ServiceAccount{} }),
	}
	if secrets {
		all = append(all, coreKind("Secret", resourceSecrets, true, func() Message { return &corev1.Secret{} }))
	}
	kinds := map[schema.GroupVersionResource]Kind{}
	for _, k := range all {
		kinds[corev1.SchemeGroupVersion.WithResource(k.resource)] = k
	}
	return kinds
}

func coreKind(kind, resource string, shared bool, object func() Message) Kind {
	return Kind{BuiltIn{Kind: corev1.SchemeGroupVersion.WithKind(kind), New: object}, resource, shared}
}

// StoredOfNodes finds where kube-apiserver keeps each of the resources in allKinds.
func StoredOfNodes(getter generic.RESTOptionsGetter, secrets bool) (map[schema.GroupVersionResource]Kind, error) {
	all := allKinds(secrets)
	for resource, k := range all {
		if err := k.Find(getter, resource.GroupResource()); err != nil {
			return nil, err
		}
		all[resource] = k
	}
	return all, nil
}

// nodeOf returns the node that an object belongs to; empty for one that is shared.
func nodeOf(m Message) edge.NodeName {
	switch o := m.(type) {
	case *corev1.Node:
		return edge.NodeName(o.Name)
	case *corev1.Pod:
		return edge.NodeName(o.Spec.NodeName)
	case *corev1.Event:
		return edge.NodeName(cmp.Or(o.Source.Host, o.ReportingInstance))
	default:
		return ""
	}
}

// usesOf returns the ConfigMaps, Secrets and ServiceAccount that a Pod refers to by the Node authorizer's rules, each once.
func usesOf(pod *corev1.Pod) []stream.ID {
	var all []stream.ID
	note := func(resource string) podutil.Visitor {
		return func(name string) bool {
			id := stream.ID{Resource: resource, Key: stream.Key{Namespace: pod.Namespace, Name: name}}
			if !slices.Contains(all, id) {
				all = append(all, id)
			}
			return len(all) < maxUses
		}
	}
	if pod.Spec.ServiceAccountName != "" {
		note(resourceServiceAccounts)(pod.Spec.ServiceAccountName)
	}
	podutil.VisitPodConfigmapNames(pod, note(resourceConfigMaps))
	podutil.VisitPodSecretNames(pod, note(resourceSecrets))
	return all
}

// aboutOf returns the Node or Pod that an Event is about. For anything else it returns an ID that no object has.
func aboutOf(event *corev1.Event) stream.ID {
	about := event.InvolvedObject
	switch about.Kind {
	case "Node":
		return stream.ID{Resource: resourceNodes, Key: stream.Key{Name: about.Name}}
	case "Pod":
		return stream.ID{Resource: resourcePods, Key: stream.Key{Namespace: about.Namespace, Name: about.Name}}
	default:
		return stream.ID{}
	}
}
