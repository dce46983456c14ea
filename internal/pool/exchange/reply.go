package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"

	"yurtcoordinator/internal/edge"
)

// Refusal is an error for the caller, with its HTTP code.
type Refusal struct { //nolint:errname // it is an answer before it is an error
	Code       int
	Message    string
	RetryAfter time.Duration
	Applied    *edge.Revision // in a conflict, the mirror's revision; nil means unknown
}

func (r *Refusal) Error() string { return r.Message }

// Refused returns a Refusal with a code and a text.
func Refused(code int, format string, a ...any) error {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, a...)}
}

// failure is the JSON of a Refusal: a Status and, in a conflict, the mirror's revision.
type failure struct {
	metav1.Status
	Applied *edge.Revision `json:"applied,omitempty,string"`
}

// Reply writes JSON lines: one, or one for each batch if a push has several. A refusal is the last line. If the refusal is also
// the first line, the answer has its HTTP code.
type Reply struct {
	http.ResponseWriter
	begun bool
}

// Tell writes content as a line. The first line sends the code.
func (a *Reply) Tell(code int, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if !a.begun {
		a.begun = true
		a.Header().Set("Content-Type", "application/json")
		a.WriteHeader(code)
	}
	_, err = a.Write(append(text, '\n'))
	return err
}

// Refuse writes err as the last line. An error that is not a Refusal becomes a 500.
func (a *Reply) Refuse(ctx context.Context, err error) {
	var why *Refusal
	if !errors.As(err, &why) {
		why = &Refusal{Code: http.StatusInternalServerError, Message: err.Error()}
	}
	said := failure{Applied: why.Applied, Status: metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(why.Code),
		Message: why.Message, Reason: metav1.StatusReason(strings.ReplaceAll(http.StatusText(why.Code), " ", "")),
	}}
	if log := audit.AuditContextFrom(ctx); log.Enabled() {
		log.LogResponseObject(&said.Status, nil) // as kube-apiserver does for its own answers
	}
	if why.RetryAfter > 0 {
		seconds := int(why.RetryAfter.Seconds())
		said.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
		a.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	_ = a.Tell(why.Code, said) // on failure the caller is gone
}
