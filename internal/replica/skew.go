package replica

import (
	"net/http"
	"sync"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Poorer reports whether the cloud has a better answer to a request than this handler: to one that accepts nothing that can
// be given here, as JSON of a built-in kind that this program does not know; to one for JSON, while an object has fields that
// this program does not know; and to one for a table.
//
// Where the cloud can't be asked, it is answered here: the first with 406, the second without these fields, with revisions that
// no API server takes, the third with objects.
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

// skew remembers which objects have been found to have no field that this program does not know, so that each is decoded for it
// once.
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
