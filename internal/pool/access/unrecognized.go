package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
)

// ErrNoCertificate is why a caller without a client certificate is refused.
var ErrNoCertificate = errors.New("the caller showed no client certificate, and tokens are not accepted")

// Unrecognized wraps an authenticator. It notes why a caller is refused, for TellWhy and for the audit log. It does not pass the
// error on, because the handler chain would log that at each attempt of the caller.
func Unrecognized(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := inner.AuthenticateRequest(r)
		if ok && err == nil {
			return response, true, nil
		}
		if err == nil {
			err = ErrNoCertificate
		}
		why := err.Error()
		if a, ok := r.Context().Value(answerKey{}).(*answer); ok {
			a.why = why
		}
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			why += fmt.Sprintf(" (the certificate says %q)", r.TLS.PeerCertificates[0].Subject)
		}
		audit.AddAuditAnnotation(r.Context(), edge.AnnotationRefused, why)
		return nil, false, nil
	})
}

// TellWhy is the outermost handler. It puts the reason that Unrecognized has found, and what to do, into a 401.
func TellWhy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(a), r.WithContext(context.WithValue(r.Context(), answerKey{}, a)))
	})
}

type answerKey struct{}

// answer replaces the body of a 401. It needs no lock, because the goroutine that authenticates the caller also writes the 401.
// The chain's time limit answers from another goroutine, but never at the same time, and never with a 401.
type answer struct {
	http.ResponseWriter
	why     string // not empty once the caller is refused
	instead bool   // the body is written
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if code != http.StatusUnauthorized || a.why == "" || a.instead {
		a.ResponseWriter.WriteHeader(code)
		return
	}
	a.instead = true
	a.Header().Del("Content-Length")
	a.Header().Del("Content-Encoding")
	reply := &exchange.Reply{ResponseWriter: a.ResponseWriter}
	reply.Refuse(context.Background(), exchange.Refused(code, "%s; %s", a.why, HintKubeconfig))
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	if a.instead {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}
