package replica

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/endpoints/deprecation"
	"k8s.io/client-go/kubernetes/scheme"
)

// warning is what an API server says of a type in the header Warning of every answer: that it is deprecated.
type warning struct {
	kind schema.GroupVersionKind
	text string // of the header; empty: nothing
}

// warning returns the text of the header Warning for the replica's type.
func (h *Handler) warning() string {
	kind := h.replica.Type().GroupVersionKind
	if known := h.warned.Load(); known != nil && known.kind == kind {
		return known.text
	}
	found := warningOf(kind)
	h.warned.Store(&found)
	return found.text
}

func warningOf(kind schema.GroupVersionKind) warning {
	found := warning{kind: kind}
	o, err := scheme.Scheme.New(kind)
	if err != nil {
		return found // of what is not Kubernetes' own, nothing is known
	}
	o.GetObjectKind().SetGroupVersionKind(kind)
	if message := deprecation.WarningMessage(o); message != "" {
		// Words in quotes, of Kubernetes' own: they can be in a header.
		found.text, _ = utilnet.NewWarningHeader(299, "-", message)
	}
	return found
}
