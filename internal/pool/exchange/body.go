package exchange

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"yurtcoordinator/internal/edge"
)

const (
	// StallTimeout is how long a body may stay silent. PushTimeout is how long the body of a push of one batch may take.
	// kube-apiserver's own time limit does not suit, because it answers a request while the request's handler still reads.
	StallTimeout, PushTimeout = 10 * time.Second, time.Minute
	// lastWord bounds how long a caller may take to read why its push was cut.
	lastWord = time.Second
	// MaxFrame bounds one object on the wire, in bytes. The cloud's etcd accepts 1.5 MiB at most.
	MaxFrame = 2 << 20
	// MaxLease bounds a Lease, in bytes. A hub writes 1 KB.
	MaxLease = 16 << 10
	// ObjectOverhead is what an object takes besides its bytes: keys, headers, its place in the tree.
	ObjectOverhead = 256
)

// ErrTooLong is the cause that cuts a push of one batch after PushTimeout.
var ErrTooLong = Refused(http.StatusRequestTimeout, "the push has taken more than %v; nothing was changed", PushTimeout)

var apiVersion = regexp.MustCompile(`^v[1-9][0-9]{0,3}((alpha|beta)[1-9][0-9]{0,3})?$`)

// ParseResource reads "/{group|core}/{version}/{resource}".
func ParseResource(path string) (schema.GroupVersionResource, error) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) != 3 {
		return schema.GroupVersionResource{}, Refused(http.StatusNotFound,
			"the path must be {group}/{version}/{resource}, with core for the group that has no name")
	}
	r := schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
	if r.Group == edge.CoreGroup {
		r.Group = ""
	} else if len(validation.IsDNS1123Subdomain(r.Group)) > 0 {
		return r, Refused(http.StatusNotFound, "%.100q is not a valid name of a group", r.Group)
	}
	if !apiVersion.MatchString(r.Version) || len(validation.IsDNS1123Label(r.Resource)) > 0 {
		return r, Refused(http.StatusNotFound, "%.100q is not a version and a resource of an API", parts[1]+"/"+parts[2])
	}
	return r, nil
}

// Body reads the body of a request and cuts it when it stalls. Its deadlines are the connection's, so they use real time.
type Body struct {
	body    io.Reader
	control *http.ResponseController
	limit   time.Duration

	mu   sync.Mutex
	set  time.Time // when the deadline was set
	over bool      // no deadline may be set any more
}

// Read implements io.Reader.
func (p *Body) Read(b []byte) (int, error) {
	if err := p.extend(); err != nil {
		return 0, err
	}
	n, err := p.body.Read(b)
	if errors.Is(err, io.EOF) {
		p.rest() // no deadline may remain on the connection after any other error
	}
	return n, err
}

// NewBody returns a Body that reads body and waits at most limit for each piece. w answers the same request, and ctx is the
// request's context. Wrap the handler in Bound if it may still read after the request was answered.
func NewBody(ctx context.Context, w http.ResponseWriter, body io.Reader, limit time.Duration) *Body {
	p := &Body{body: body, control: http.NewResponseController(w), limit: limit}
	if all, _ := ctx.Value(boundKey{}).(*bodies); all != nil {
		all.add(p)
	}
	return p
}

// Bound wraps next so that no Body of its requests touches the connection once next has returned. kube-apiserver answers a
// request that takes too long while the request's handler still reads. After that answer the connection belongs to other
// requests.
func Bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all := &bodies{}
		defer all.leave()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), boundKey{}, all)))
	})
}

type boundKey struct{}

// bodies are those of one request.
type bodies struct {
	mu   sync.Mutex
	all  []*Body
	over bool
}

func (b *bodies) add(p *Body) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		p.Leave()
	}
	b.all = append(b.all, p)
}

func (b *bodies) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	for _, p := range b.all {
		p.Leave()
	}
}

// extend moves the deadline, unless nearly all of it is left: setting one has a cost.
func (p *Body) extend() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now() //nolint:forbidigo // a deadline of a connection is real time
	switch {
	case p.over:
		return os.ErrDeadlineExceeded
	case now.Sub(p.set) < p.limit/10:
		return nil
	}
	p.set = now
	// For a connection without deadlines the request's own deadline is the bound.
	if err := p.control.SetReadDeadline(now.Add(p.limit)); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// rest removes the deadline, because the connection serves other requests.
func (p *Body) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.over = true
		_ = p.control.SetReadDeadline(time.Time{})
	}
}

// Leave ends the request, so that no deadline is set any more.
func (p *Body) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// Cut ends a waiting Read at once, and after lastWord an answer that nobody reads. After the end of the request it does nothing.
func (p *Body) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.over = true
		now := time.Now() //nolint:forbidigo // a deadline of a connection is real time
		_ = p.control.SetReadDeadline(now.Add(-time.Second))
		_ = p.control.SetWriteDeadline(now.Add(lastWord))
	}
}

// Flush sends what the answer holds so far.
func (p *Body) Flush() error { return p.control.Flush() }

// Unreadable returns the refusal of a push whose body could not be read because of err.
func Unreadable(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return Refused(http.StatusRequestEntityTooLarge, "the stream is larger than %d bytes; share fewer resources, or raise "+
			"--mirror-quota-bytes of the coordinator", tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Refused(http.StatusRequestTimeout, "the stream stalled; nothing was changed")
	default:
		return Refused(http.StatusUnprocessableEntity, "not a whole watch stream; nothing was changed: %v", err)
	}
}
