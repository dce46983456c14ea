package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	Applied string `json:"applied,omitempty"`
}

// Reply writes JSON lines: one, or one for each batch of a push of changes. A refusal is the last line; if it is also
// the first, the answer has its code.
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
	if why.Code == http.StatusForbidden {
		Explain(ctx, why)
	}
	said := failure{Status: metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(why.Code),
		Message: why.Message, Reason: metav1.StatusReason(strings.ReplaceAll(http.StatusText(why.Code), " ", "")),
	}}
	if why.RetryAfter > 0 {
		seconds := int(why.RetryAfter.Seconds())
		said.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
		a.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	if why.Applied != nil {
		said.Applied = Decimal(*why.Applied)
	}
	_ = a.Tell(why.Code, said) // on failure the caller is gone
}

// Findings is what the inner layers of the handler chain learn about a request, for the outermost to log. The chain
// runs them on another goroutine, which may outlive the request: hence the lock.
type Findings struct {
	mu     sync.Mutex
	user   string
	reason string
}

// WithFindings returns a context in which the inner layers explain the request, and the Findings that they fill.
func WithFindings(ctx context.Context) (context.Context, *Findings) {
	f := &Findings{}
	return context.WithValue(ctx, findingsKey{}, f), f
}

// NoteUser notes, for the audit log, who makes the request of ctx.
func NoteUser(ctx context.Context, name string) {
	if f := findingsOf(ctx); f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.user = name
	}
}

// User returns the caller; empty means unknown.
func (f *Findings) User() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.user
}

type findingsKey struct{}

func findingsOf(ctx context.Context) *Findings {
	f, _ := ctx.Value(findingsKey{}).(*Findings)
	return f
}

// Reason returns the reason of a refusal; empty means that none was given.
func (f *Findings) Reason() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reason
}

// Explain notes, for the audit log, why the request of ctx is refused.
func Explain(ctx context.Context, why error) {
	if f := findingsOf(ctx); f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.reason = why.Error()
	}
}

// Decimal returns a revision in its wire format.
func Decimal(r edge.Revision) string { return strconv.FormatUint(uint64(r), 10) }
