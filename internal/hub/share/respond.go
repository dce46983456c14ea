package share

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/stream"
)

// answer is what a hub answers itself.
type answer struct {
	code        int
	contentType string
	body        []byte
}

// answerOf returns an answer with an object, in protobuf if the client accepts that, otherwise in JSON. The parameter raw is the
// object in protobuf. For JSON, answerOf decodes raw into o.
func answerOf(
	r *http.Request, code int, kind schema.GroupVersionKind, raw []byte, o interface{ Unmarshal(data []byte) error },
) (answer, error) {
	if strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		t := stream.Type{GroupVersionKind: kind, Encoding: stream.Protobuf}
		return answer{code, runtime.ContentTypeProtobuf, stream.Envelope(t, raw)}, nil
	}
	if err := o.Unmarshal(raw); err != nil {
		return answer{}, err
	}
	text, err := json.Marshal(o)
	t := stream.Type{GroupVersionKind: kind, Encoding: stream.JSON}
	return answer{code, runtime.ContentTypeJSON, stream.Envelope(t, text)}, err
}

// write writes the answer. caching is its Cache-Control.
func (a answer) write(w http.ResponseWriter, caching string) {
	w.Header().Set("Content-Type", a.contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.Header().Set("Cache-Control", caching)
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body) // fails only if the client goes away
}
