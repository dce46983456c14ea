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

// single is what kubelet follows of one object.
func single(r schema.GroupVersionResource, namespace, name string) Selection {
	return Selection{Resource: r, Namespace: namespace, Fields: fields.OneTermEqualSelector(fieldName, name).String()}
}

// podsOf is what kubelet follows of Pods.
func podsOf(node edge.NodeName) Selection {
	return Selection{Resource: pods, Fields: fields.OneTermEqualSelector(fieldNode, string(node)).String()}
}

// ownOf says what of a node's own a selection is, and false if it is nothing of it: the Node, one ConfigMap or Secret, or,
// without a name, all of its Pods.
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

// Own is something of the node's own that its programs follow. The ID is as Selection.ownOf has it.
type Own struct {
	stream.ID
	Replica *replica.Replica
}

// Own returns what the node's programs follow of its own; each once. A replica may be incomplete, or be closed at any time.
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

// Held returns an object of one of the hub's own selections, as the cloud has it, if it is known.
func (s *Set) Held(what Selection, key stream.Key) (stream.Type, stream.Object, bool) {
	m := s.find(what)
	if m == nil {
		return stream.Type{}, stream.Object{}, false
	}
	o, ok := m.Replica.Get(key)
	return m.Replica.Type(), o, ok
}

// ofPrograms returns what the node's programs follow; nil if they do not follow that.
func (s *Set) ofPrograms(what Selection) *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findLocked("", what)
}

// OwnObject returns the Node, or a Pod of this node, as the cloud has it by what the node's programs follow, in protobuf.
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
