package replica

import (
	"net/http"
	"sync"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Poorer reports whether the cloud has a better answer to a request than this handler. There are three cases. While the cloud
// can't be asked, this handler answers nevertheless, as the list says:
//   - The request accepts no form that this handler has, such as JSON of a built-in kind that this program does not know. The
//     answer is 406.
//   - The request wants JSON, and an object has fields that this program does not know. The answer lacks those fields, and such
//     objects get revisions that no API server takes.
//   - The request wants a table. The answer has objects.
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

// skew remembers up to which revision all objects were found to have only fields that this program knows. Those objects are not
// decoded again to check that.
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
