package own

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

const (
	// requestTimeout bounds a question and a push, which is of 64 KiB as a rule, on the LAN.
	requestTimeout = 20 * time.Second
	// maxAnswer bounds an answer, in bytes: a coordinator keeps 2000 objects of a node.
	maxAnswer = 2 << 20
	// maxRetryAfter bounds what a Retry-After is believed.
	maxRetryAfter = time.Minute
)

// errElse says that the coordinator has something else than was known.
var errElse = errors.New("the coordinator has something else than it was known to have")

// answered is an answer other than the wanted one.
type answered struct {
	code       int
	message    string
	retryAfter time.Duration
}

func (a *answered) Error() string {
	return fmt.Sprintf("the coordinator answers %d: %s", a.code, a.message)
}

// coordinator is what a coordinator has of this node, as its client.
type coordinator struct {
	transport http.RoundTripper
	base      *url.URL
}

// ask returns what the coordinator has, and the name of that state; nil if it still is the state that is known.
func (c *coordinator) ask(ctx context.Context, known string) (have, string, error) {
	header := http.Header{}
	if known != "" {
		header.Set("If-None-Match", known)
	}
	var told struct {
		Objects []struct {
			Resource, Namespace, Name, Revision string

			History edge.History `json:",string"` // left out by a coordinator that knows of none
			Local   bool
		}
	}
	tag, err := c.do(ctx, http.MethodGet, batch{}, header, nil, &told)
	if err != nil {
		return nil, "", fmt.Errorf("ask what the coordinator has of this node: %w", err)
	}
	switch tag {
	case "":
		return nil, "", errors.New("ask what the coordinator has of this node: it does not name the state")
	case known:
		return nil, tag, nil
	}
	h := have{}
	for _, o := range told.Objects {
		revision, err := strconv.ParseUint(o.Revision, 10, 64)
		if err != nil {
			return nil, "", fmt.Errorf("ask what the coordinator has of this node: revision %.40q: %w", o.Revision, err)
		}
		local := fromCloud
		if o.Local {
			local = foreign
		}
		key := stream.Key{Namespace: o.Namespace, Name: o.Name}
		h[stream.ID{Resource: o.Resource, Key: key}] = mark{
			edge.Moment{History: o.History, Revision: edge.Revision(revision)}, local,
		}
	}
	return h, tag, nil
}

// push pushes a batch on top of a state. It returns why objects of it were refused, and the state that came about: none if
// it must be asked for. It fails with errElse if that was not the state any more.
func (c *coordinator) push(ctx context.Context, on string, b batch) (refused map[stream.Key]string, tag string, err error) {
	body, err := encode(b)
	if err != nil {
		return nil, "", fmt.Errorf("push %s: %w", b.of.resource, err)
	}
	var told struct {
		Refused []struct{ Namespace, Name, Message string }
	}
	tag, err = c.do(ctx, http.MethodPost, b, http.Header{
		"If-Match": {on}, "Content-Type": {stream.Protobuf.ContentType(true)}, edge.HeaderHistory: {b.of.in.String()},
	}, body, &told)
	if err != nil {
		return nil, "", fmt.Errorf("push %s: %w", b.of.resource, err)
	}
	refused = map[stream.Key]string{}
	for _, r := range told.Refused {
		refused[stream.Key{Namespace: r.Namespace, Name: r.Name}] = r.Message
	}
	return refused, tag, nil
}

// encode writes a batch as watch events.
func encode(b batch) ([]byte, error) {
	var body bytes.Buffer
	frames := stream.NewFrameWriter(&body, stream.Type{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind(kinds[b.of.resource]), Encoding: stream.Protobuf,
	})
	for _, e := range b.events {
		if e.Type == stream.Deleted {
			// As much of an object as says which is gone: its metadata is in the same place in every type.
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

// do makes a request, about a batch, and reads the answer, which is JSON, and its ETag.
func (c *coordinator) do(
	ctx context.Context, method string, b batch, header http.Header, body []byte, into any,
) (tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	u := c.base.JoinPath(edge.PathOwn)
	if b.of.resource != "" {
		u = u.JoinPath(edge.MirrorCoreGroup, "v1", b.of.resource)
	}
	if b.of.local {
		u.RawQuery = edge.QueryLocal + "=true"
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header = header
	r.Header.Set("Accept", "application/json")
	response, err := c.transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the answer: %w", err)
	case len(text) > maxAnswer:
		return "", fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	case response.StatusCode == http.StatusNotModified:
		return response.Header.Get("ETag"), nil
	case response.StatusCode == http.StatusPreconditionFailed:
		return "", errElse
	case response.StatusCode != http.StatusOK:
		return "", answeredBy(response, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return "", fmt.Errorf("the answer is not what a coordinator says: %w", err)
	}
	return response.Header.Get("ETag"), nil
}

func answeredBy(response *http.Response, text []byte) error {
	a := &answered{code: response.StatusCode, message: http.StatusText(response.StatusCode)}
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		a.message = status.Message
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.retryAfter = min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	return a
}
