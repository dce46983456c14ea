package cache

import (
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

const fieldName, fieldNode = "metadata.name", "spec.nodeName"

// single returns the selection by which kubelet follows one object.
func single(r schema.GroupVersionResource, namespace, name string) Selection {
	return Selection{Resource: r, Namespace: namespace, Fields: fields.OneTermEqualSelector(fieldName, name).String()}
}

// podsOf returns the selection by which kubelet follows the node's Pods.
func podsOf(node edge.NodeName) Selection {
	return Selection{Resource: pods, Fields: fields.OneTermEqualSelector(fieldNode, string(node)).String()}
}

// ownOf returns which of the node's own objects a selection asks for: the Node, one ConfigMap or Secret, or all of the node's
// Pods. For the Pods the name is empty. ownOf returns false for any other selection.
func (s Selection) ownOf(node edge.NodeName) (stream.ID, bool) {
	name := strings.TrimPrefix(s.Fields, fieldName+"=")
	own := stream.ID{Resource: s.Resource.Resource, Key: stream.Key{Namespace: s.Namespace, Name: name}}
	switch {
	case s == podsOf(node):
		return stream.ID{Resource: pods.Resource}, true
	case name == "" || s != single(s.Resource, s.Namespace, name):
		return stream.ID{}, false
	case s.Resource == nodes:
		return own, s.Namespace == "" && name == string(node)
	default:
		return own, s.Namespace != "" && (s.Resource == configMaps || s.Resource == secrets)
	}
}

// Own is one of the node's own selections that its programs follow. The ID is what Selection.ownOf returns.
type Own struct {
	stream.ID
	Replica *replica.Replica
}

// Own returns the selections of the node's own objects that the node's programs follow. A replica may be incomplete, and may be
// closed at any time.
func (s *Set) Own() (all []Own) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.ofLocked("") {
		if id, ok := m.ownOf(s.needs.node); ok {
			all = append(all, Own{id, m.Replica})
		}
	}
	return all
}

// ofPrograms returns the member by which the node's programs follow a selection; nil if they do not follow it.
func (s *Set) ofPrograms(what Selection) *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findLocked("", what)
}

// OwnObject returns the Node or a Pod of this node as the cloud has it, in protobuf. It returns false if no selection of the
// node's programs has the object in that form.
func (s *Set) OwnObject(i stream.ID) (stream.Object, bool) {
	what := podsOf(s.needs.node)
	if i.Resource == nodes.Resource {
		what = single(nodes, "", string(s.needs.node))
	}
	m := s.ofPrograms(what)
	if m == nil || i.Resource != m.Resource.Resource || m.Replica.Type().Encoding != stream.Protobuf {
		return stream.Object{}, false
	}
	return m.Replica.Get(i.Key)
}
