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

// Refusal is an error that the caller is told, with its code.
type Refusal struct { //nolint:errname // it is an answer before it is an error
	Code       int
	Message    string
	RetryAfter time.Duration
	Applied    *edge.Revision // in a conflict, where the mirror stands; nil means unknown
}

func (r *Refusal) Error() string { return r.Message }

// Refused returns a Refusal with a code and a text.
func Refused(code int, format string, a ...any) error {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, a...)}
}

// failure is the JSON of a Refusal: a Status, with where the mirror stands in a conflict.
type failure struct {
	metav1.Status
	Applied string `json:"applied,omitempty"`
}

// Reply writes JSON lines: one, or one for each batch of a push of changes. A refusal is the last line; if it is also the first,
// the answer has its code.
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

// Refuse writes err as the last line; an error that is no Refusal is a 500.
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
	_ = a.Tell(why.Code, said) // the caller has gone, then
}

// Findings is what the inner layers of the handler chain learn about a request, for the outermost to write down. The
// chain runs them on another goroutine, which may outlive the request: hence the lock.
type Findings struct {
	mu     sync.Mutex
	user   string
	reason string
}

// WithFindings returns a context whose request the inner layers explain, and where they do.
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

// User is the caller, empty if it is not known.
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

// Reason is the reason of a refusal, empty if none was given.
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

// Decimal returns a revision as the wire has it.
func Decimal(r edge.Revision) string { return strconv.FormatUint(uint64(r), 10) }
