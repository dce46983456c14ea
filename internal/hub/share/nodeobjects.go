package share

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// nodeTimeout bounds a question and a push, on the LAN; a push has 64 KiB as a rule.
const nodeTimeout = 20 * time.Second

// nodeObjects reads what a coordinator has of this node, and pushes to it.
type nodeObjects struct{ client }

// get returns what the coordinator has, and the name of that state. A nil have means that the state is still the known one.
func (o nodeObjects) get(ctx context.Context, known string) (have, string, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	var told struct {
		Objects []struct {
			Resource, Namespace, Name string

			Revision edge.Revision `json:",string"`
			History  edge.History  `json:",string"` // left out by a coordinator that knows of none
			Local    bool
		}
	}
	r, err := o.request(ctx, http.MethodGet, nil, http.NoBody, edge.PathOwn)
	if err != nil {
		return nil, "", fmt.Errorf("ask what the coordinator has of this node: %w", err)
	}
	if known != "" {
		r.Header.Set("If-None-Match", known)
	}
	tag, err := o.do(r, &told)
	switch why := (*refusal)(nil); {
	case known != "" && errors.As(err, &why) && why.code == http.StatusNotModified:
		return nil, known, nil
	case err != nil:
		return nil, "", fmt.Errorf("ask what the coordinator has of this node: %w", err)
	case tag == "":
		return nil, "", errors.New("ask what the coordinator has of this node: it does not name the state")
	}
	h := have{}
	for _, each := range told.Objects {
		local := fromCloud
		if each.Local {
			local = foreign
		}
		i := stream.ID{Resource: each.Resource, Key: stream.Key{Namespace: each.Namespace, Name: each.Name}}
		h[i] = mark{edge.Moment{History: each.History, Revision: each.Revision}, local}
	}
	return h, tag, nil
}

// push pushes a batch on top of the state named on. It returns the reasons for refused objects, and the name of the new state; an
// empty name means that the caller must ask for it. It fails with a refusal of 412 if the coordinator's state is no longer on.
func (o nodeObjects) push(ctx context.Context, on string, b batch) (refused map[stream.Key]string, tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	var told struct {
		Refused []struct{ Namespace, Name, Message string }
	}
	r, err := o.pushOf(ctx, on, b)
	if err == nil {
		tag, err = o.do(r, &told)
	}
	if err != nil {
		return nil, "", fmt.Errorf("push %s: %w", b.of.resource, err)
	}
	refused = map[stream.Key]string{}
	for _, r := range told.Refused {
		refused[stream.Key{Namespace: r.Namespace, Name: r.Name}] = r.Message
	}
	return refused, tag, nil
}

func (o nodeObjects) pushOf(ctx context.Context, on string, b batch) (*http.Request, error) {
	body, err := encode(b)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if b.of.local {
		query.Set(edge.QueryLocal, "true")
	}
	path := []string{edge.PathOwn, edge.MirrorCoreGroup, "v1", b.of.resource}
	r, err := o.request(ctx, http.MethodPost, query, bytes.NewReader(body), path...)
	if err != nil {
		return nil, err
	}
	r.Header.Set("If-Match", on)
	r.Header.Set("Content-Type", stream.Protobuf.ContentType(true))
	r.Header.Set(edge.HeaderHistory, b.of.in.String())
	return r, nil
}

// encode writes a batch as watch events.
func encode(b batch) ([]byte, error) {
	var body bytes.Buffer
	frames := stream.NewFrameWriter(&body, stream.Type{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind(kinds[b.of.resource]), Encoding: stream.Protobuf,
	})
	for _, e := range b.events {
		if e.Type == stream.Deleted {
			// A PartialObjectMetadata is enough to name the deleted object: the metadata has the same field in every type.
			gone := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: e.Object.Key.Namespace, Name: e.Object.Key.Name, ResourceVersion: e.Object.Revision.String(),
			}}
			var err error
			if e.Object.Raw, err = gone.Marshal(); err != nil {
				return nil, err
			}
		}
		if err := frames.Write(e); err != nil {
			return nil, err
		}
	}
	return body.Bytes(), nil
}
