package pool

import (
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
	// stalledPush is how long a body may bring nothing, wholePush how long one of everything may take in all. Neither is
	// left to kube-apiserver's own limit, which answers while its handler still reads.
	stalledPush, wholePush = 10 * time.Second, time.Minute
	// lastWord is how long it may take to tell why a push of changes is ended.
	lastWord = time.Second
	// maxFrame bounds one object on the wire, in bytes. The cloud's etcd takes 1.5 MiB at most.
	maxFrame = 8 << 20
	// objectOverhead is what an object takes besides its bytes: keys, headers, its place in the tree.
	objectOverhead = 256
)

// errTooLong is why a push is cut that has not ended within wholePush.
var errTooLong = refused(http.StatusRequestTimeout, "the push has taken more than %v; nothing was changed", wholePush)

var apiVersion = regexp.MustCompile(`^v[1-9][0-9]{0,3}((alpha|beta)[1-9][0-9]{0,3})?$`)

// parseResource reads "/{group|core}/{version}/{resource}".
func parseResource(path string) (schema.GroupVersionResource, error) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) != 3 {
		return schema.GroupVersionResource{}, refused(http.StatusNotFound,
			"want {group}/{version}/{resource}, with core for the group that has no name")
	}
	r := schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
	if r.Group == edge.MirrorCoreGroup {
		r.Group = ""
	} else if len(validation.IsDNS1123Subdomain(r.Group)) > 0 {
		return r, refused(http.StatusNotFound, "%.100q is not a name that a group can have", r.Group)
	}
	if !apiVersion.MatchString(r.Version) || len(validation.IsDNS1123Label(r.Resource)) > 0 {
		return r, refused(http.StatusNotFound, "%.100q is not a version and a resource of an API", parts[1]+"/"+parts[2])
	}
	return r, nil
}

// patient reads a body, and cuts one that has stalled. Its deadlines are of the connection, so the real time.
type patient struct {
	body    io.Reader
	control *http.ResponseController
	limit   time.Duration

	mu   sync.Mutex
	set  time.Time // when the deadline was set
	over bool      // no deadline may be set any more
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	if err := p.extend(); err != nil {
		return 0, err
	}
	n, err := p.body.Read(b)
	if errors.Is(err, io.EOF) {
		p.rest() // after any other error the connection must not wait
	}
	return n, err
}

// newPatient reads body, the one of the request that w answers, and waits for at most limit for each piece of it.
func newPatient(w http.ResponseWriter, body io.Reader, limit time.Duration) *patient {
	return &patient{body: body, control: http.NewResponseController(w), limit: limit}
}

// extend sets the deadline, unless there is nearly all of it left: it is not free.
func (p *patient) extend() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.over:
		return os.ErrDeadlineExceeded
	case now.Sub(p.set) < p.limit/10:
		return nil
	}
	p.set = now
	// A connection that knows no deadline is bounded by the request's own.
	if err := p.control.SetReadDeadline(now.Add(p.limit)); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// rest takes the deadline away: the connection serves on.
func (p *patient) rest() {
	if p.leave() {
		_ = p.control.SetReadDeadline(time.Time{})
	}
}

// leave says that the request is over, and reports whether it was not yet.
func (p *patient) leave() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.over
	p.over = true
	return !was
}

// cut ends a Read that waits, and before long an answer that nobody takes. It does nothing once the request is over.
func (p *patient) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.over = true
		now := time.Now()
		_ = p.control.SetReadDeadline(now.Add(-time.Second))
		_ = p.control.SetWriteDeadline(now.Add(lastWord))
	}
}

// flush sends what has been told so far.
func (p *patient) flush() error { return p.control.Flush() }

func unreadable(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refused(http.StatusRequestEntityTooLarge, "the stream is larger than %d bytes; share fewer resources, or raise "+
			"--mirror-quota-bytes of the coordinator", tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refused(http.StatusRequestTimeout, "the stream stalled; nothing was changed")
	default:
		return refused(http.StatusUnprocessableEntity, "not a whole watch stream, nothing was changed: %v", err)
	}
}
