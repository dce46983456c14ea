package share

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// nodeTimeout bounds a push, which as a rule has 64 KiB and goes over the LAN.
const nodeTimeout = 20 * time.Second

// nodeShare is what a coordinator has of this node.
type nodeShare struct{ client }

// get returns what the coordinator has, and the name of that state. A nil have means that known still names the state.
func (s nodeShare) get(ctx context.Context, known string) (have, string, error) {
	quoted := ""
	if known != "" {
		quoted = `"` + known + `"`
	}
	var is edge.NodeState
	tag, err := s.state(ctx, quoted, &is)
	switch why := (*refusal)(nil); {
	case known != "" && errors.As(err, &why) && why.code == http.StatusNotModified:
		return nil, known, nil
	case err != nil:
		return nil, "", fmt.Errorf("ask what the coordinator has of this node: %w", err)
	case tag == "":
		return nil, "", errors.New("ask what the coordinator has of this node: it does not name the state")
	}
	h := have{}
	for _, each := range is.Objects {
		local := fromCloud
		if each.Local {
			local = foreign
		}
		i := stream.ID{Resource: each.Resource, Key: stream.Key{Namespace: each.Namespace, Name: each.Name}}
		h[i] = mark{edge.Moment{History: each.History, Revision: each.Revision}, local}
	}
	return h, strings.Trim(tag, `"`), nil
}

// bring pushes a batch to a coordinator in the state that the parameter on names. It returns why objects were refused, and the
// name of the new state; if that name is empty, the caller must ask for it. If the coordinator is in another state, bring fails
// with a refusal of code 412.
func (s nodeShare) bring(ctx context.Context, on string, b batch) (refused map[stream.Key]string, state string, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	v1 := corev1.SchemeGroupVersion
	p := push{
		resource: v1.WithResource(b.of.resource), in: b.of.in, from: on, local: b.of.local,
		of:     stream.Type{GroupVersionKind: v1.WithKind(kinds[b.of.resource]), Encoding: stream.Protobuf},
		events: slices.Clone(b.events),
	}
	for i, e := range p.events {
		if e.Type == stream.Deleted {
			// A PartialObjectMetadata is enough to name the deleted object: the metadata has the same field in every type.
			gone := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: e.Object.Key.Namespace, Name: e.Object.Key.Name, ResourceVersion: e.Object.Revision.String(),
			}}
			if p.events[i].Object.Raw, err = gone.Marshal(); err != nil {
				return nil, "", err
			}
		}
	}
	taken, err := s.push(ctx, p)
	if err != nil {
		return nil, "", fmt.Errorf("push %s: %w", b.of.resource, err)
	}
	refused = map[stream.Key]string{}
	for _, r := range taken.Refused {
		refused[stream.Key{Namespace: r.Namespace, Name: r.Name}] = r.Message
	}
	return refused, taken.Applied, nil
}
