package shareserver

import (
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
	resource   string
	namespaced bool
	// node returns the node that owns this object; nil means that it belongs to all nodes whose Pods use it.
	node func(Message) edge.NodeName
	// contestable means that two nodes may both say that they have an object of one name.
	contestable bool
	// uses returns the objects that this one needs here; nil means that it needs none.
	uses func(Message) []stream.ID
	// about returns the object that this one is about, which its node must have here; nil means that it needs none.
	about func(Message) stream.ID
	// presence returns what other nodes' hubs may know of this object; nil means nothing.
	presence func(Message) *edge.PodPresence
}

// allKinds returns the resources that hubs may push about their nodes, with Secrets only if they are allowed.
func allKinds(secrets bool) map[schema.GroupVersionResource]Kind {
	all := []Kind{
		{
			BuiltIn: coreKind("Node", func() Message { return &corev1.Node{} }), resource: resourceNodes,
			node: func(m Message) edge.NodeName { return edge.NodeName(m.GetName()) },
		},
		{
			BuiltIn: coreKind("Pod", func() Message { return &corev1.Pod{} }), resource: resourcePods, namespaced: true,
			node: nodeOfPod, contestable: true, uses: usesOfPod, presence: presenceOfPod,
		},
		{
			BuiltIn: coreKind("Event", func() Message { return &corev1.Event{} }), resource: resourceEvents,
			namespaced: true,
			node:       nodeOfEvent, about: objectOfEvent,
		},
		{
			BuiltIn:  coreKind("ConfigMap", func() Message { return &corev1.ConfigMap{} }),
			resource: resourceConfigMaps, namespaced: true,
		},
		{
			BuiltIn:  coreKind("ServiceAccount", func() Message { return &corev1.ServiceAccount{} }),
			resource: resourceServiceAccounts, namespaced: true,
		},
	}
	if secrets {
		all = append(all, Kind{
			BuiltIn: coreKind("Secret", func() Message { return &corev1.Secret{} }), resource: resourceSecrets,
			namespaced: true,
		})
	}
	kinds := map[schema.GroupVersionResource]Kind{}
	for _, k := range all {
		kinds[corev1.SchemeGroupVersion.WithResource(k.resource)] = k
	}
	return kinds
}

func coreKind(kind string, object func() Message) BuiltIn {
	return BuiltIn{Kind: corev1.SchemeGroupVersion.WithKind(kind), New: object}
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

func nodeOfPod(m Message) edge.NodeName {
	if pod, ok := m.(*corev1.Pod); ok {
		return edge.NodeName(pod.Spec.NodeName)
	}
	return ""
}

func presenceOfPod(m Message) *edge.PodPresence {
	pod, ok := m.(*corev1.Pod)
	if !ok {
		return nil
	}
	is := edge.PresenceOf(pod)
	return &is
}

// usesOfPod returns the ConfigMaps, Secrets and ServiceAccount that a Pod refers to by the Node authorizer's rules, each once.
func usesOfPod(m Message) []stream.ID {
	pod, ok := m.(*corev1.Pod)
	if !ok {
		return nil
	}
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

func nodeOfEvent(m Message) edge.NodeName {
	event, ok := m.(*corev1.Event)
	switch {
	case !ok:
		return ""
	case event.Source.Host != "":
		return edge.NodeName(event.Source.Host)
	default:
		return edge.NodeName(event.ReportingInstance)
	}
}

// objectOfEvent returns the Node or Pod that an Event is about. For anything else it returns an ID that no object has.
func objectOfEvent(m Message) stream.ID {
	event, ok := m.(*corev1.Event)
	if !ok {
		return stream.ID{}
	}
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
