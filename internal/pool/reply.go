package pool

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

// refusal is an answer that is not what was asked for.
type refusal struct {
	code       int
	message    string
	retryAfter time.Duration
	applied    *edge.Revision // where the mirror stands, of a conflict
}

func (r *refusal) Error() string { return r.message }

func refused(code int, format string, a ...any) error {
	return &refusal{code: code, message: fmt.Sprintf(format, a...)}
}

// failure is a refusal as it is told: a Status, which of a conflict says where the mirror stands.
type failure struct {
	metav1.Status
	Applied string `json:"applied,omitempty"`
}

// reply is JSON in lines: one, or to a push of changes one for each batch. A refusal is the last; if it is the first too,
// the answer has its code.
type reply struct {
	http.ResponseWriter
	begun bool
}

func (a *reply) tell(code int, content any) error {
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

func (a *reply) refuse(ctx context.Context, err error) {
	var why *refusal
	if !errors.As(err, &why) {
		why = &refusal{code: http.StatusInternalServerError, message: err.Error()}
	}
	if why.code == http.StatusForbidden {
		explain(ctx, why)
	}
	said := failure{Status: metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(why.code),
		Message: why.message, Reason: metav1.StatusReason(strings.ReplaceAll(http.StatusText(why.code), " ", "")),
	}}
	if why.retryAfter > 0 {
		seconds := int(why.retryAfter.Seconds())
		said.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
		a.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	if why.applied != nil {
		said.Applied = decimal(*why.applied)
	}
	_ = a.tell(why.code, said) // the caller has gone, then
}

// findings is what the inner layers of the handler chain learn about a request, for the outermost to write down. The
// chain runs them on another goroutine, which may outlive the request: hence the lock.
type findings struct {
	mu     sync.Mutex
	user   string
	reason string
}

// withFindings returns a context whose request the inner layers explain, and where they do.
func withFindings(ctx context.Context) (context.Context, *findings) {
	f := &findings{}
	return context.WithValue(ctx, findingsKey{}, f), f
}

// noteUser notes who makes the request of ctx.
func noteUser(ctx context.Context, name string) {
	if f := findingsOf(ctx); f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.user = name
	}
}

// who is the caller, empty if it is not known.
func (f *findings) who() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.user
}

type findingsKey struct{}

func findingsOf(ctx context.Context) *findings {
	f, _ := ctx.Value(findingsKey{}).(*findings)
	return f
}

// why is the reason of a refusal, empty if none was given.
func (f *findings) why() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reason
}

// explain notes why the request of ctx is refused.
func explain(ctx context.Context, why error) {
	if f := findingsOf(ctx); f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.reason = why.Error()
	}
}

func decimal(r edge.Revision) string { return strconv.FormatUint(uint64(r), 10) }
