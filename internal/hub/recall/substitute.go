package recall

import (
	"maps"
	"net/http"
)

// substitute answers from what is known where the cloud does not: it is not judged down yet, or does not know the node,
// whose certificate has expired.
type substitute struct {
	http.ResponseWriter
	// node: the request is made as the node, and a 401 says that its certificate is not valid, of which its programs know
	// nothing. Others are to hear of theirs.
	node bool
	// known answers, or returns false and has written nothing.
	known func(http.ResponseWriter) bool
	// answered: the cloud's answer has begun; replaced: it is not wanted.
	answered, replaced bool
}

func (s *substitute) WriteHeader(status int) {
	if s.answered {
		return
	}
	if status < http.StatusOK {
		s.ResponseWriter.WriteHeader(status)
		return
	}
	s.answered = true
	if s.unanswered(status) {
		h := s.Header()
		theirs := maps.Clone(h)
		clear(h)
		if s.replaced = s.known(s.ResponseWriter); s.replaced {
			return
		}
		clear(h)
		maps.Copy(h, theirs)
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *substitute) unanswered(status int) bool {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return status == http.StatusUnauthorized && s.node
	}
}

func (s *substitute) Write(p []byte) (int, error) {
	if !s.answered {
		s.WriteHeader(http.StatusOK)
	}
	if s.replaced {
		return len(p), nil
	}
	return s.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach Flush and the deadlines.
func (s *substitute) Unwrap() http.ResponseWriter { return s.ResponseWriter }
