package replica

import (
	"net/http"
	"sync"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Poorer reports whether the cloud has a better answer to a request than this handler. There are three cases. In the first, the
// request accepts no form that this handler has, such as JSON of a built-in kind that this program does not know. In the
// second, it wants JSON, and an object has fields that this program does not know. In the third, it wants a table.
//
// While the cloud can't be asked, this handler answers nevertheless. In the first case it answers 406. In the second it leaves
// those fields out, and gives such objects revisions that no API server takes. In the third it returns objects.
func (h *Handler) Poorer(r *http.Request, verb string) bool {
	content, err := h.replica.freeze()
	if err != nil {
		return false
	}
	f, err := negotiate(r, verb, content.typ)
	return err != nil || edge.AsksForTable(r) || f.shape == whole && !f.verbatim() && !h.skew.whole(content)
}

// Acceptable reports whether a request accepts a form in which this handler can answer.
func (h *Handler) Acceptable(r *http.Request, verb string) bool {
	_, err := negotiate(r, verb, h.replica.Type())
	return err == nil
}

// skew remembers the revision up to which all objects were found to have only fields that this program knows. So each object is
// decoded only once for that check.
type skew struct {
	mu         sync.Mutex
	generation uint64
	upTo       edge.Revision
}

// whole reports whether there is no such field in any object of a content.
func (s *skew) whole(content *frozen) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != content.generation {
		s.generation, s.upTo = content.generation, 0
	}
	whole := true
	content.objects.Ascend(func(o stream.Object) bool {
		if o.Revision > s.upTo {
			decoded, err := decode(content.typ, o.Raw)
			whole = err == nil && holds(decoded, o.Raw)
		}
		return whole
	})
	if whole {
		s.upTo = max(s.upTo, content.revision)
	}
	return whole
}
