package pool

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"

	"yurtcoordinator/internal/edge"
)

const (
	// refusalsPerSecond bounds the lines about refusals, because a caller can loop on them.
	refusalsPerSecond = 10
	// maxAuditText bounds each text of a line that the caller makes up, in bytes.
	maxAuditText = 1024
)

// auditPolicy makes kube-apiserver's audit record the metadata of each request, but no body. It leaves out the requests of this
// process itself. A policy does not know how a request ends, so auditFilter selects by outcome.
func auditPolicy() audit.PolicyRuleEvaluator {
	return policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
		Rules: []auditinternal.PolicyRule{
			{Level: auditinternal.LevelNone, UserGroups: []string{user.SystemPrivilegedGroup}},
			{Level: auditinternal.LevelMetadata},
		},
	})
}

// auditFilter passes to kube-apiserver's log backend the events that deserve a line: streams that begin, links to the page that
// are made or withdrawn, and refusals. Refusals have a limit per second. The next line about a refusal counts those that got no
// line.
type auditFilter struct {
	audit.Backend
	refusals   *rate.Limiter
	suppressed atomic.Int64
}

func newAuditFilter(out io.Writer, perSecond int) *auditFilter {
	return &auditFilter{
		Backend:  auditlog.NewBackend(out, auditlog.FormatJson, auditv1.SchemeGroupVersion),
		refusals: rate.NewLimiter(rate.Limit(perSecond), perSecond),
	}
}

// ProcessEvents implements audit.Sink. The backend counts and logs what it can't write.
func (f *auditFilter) ProcessEvents(events ...*auditinternal.Event) (written bool) {
	written = true
	for _, e := range events {
		refused, opened := outcome(e)
		if refused && !f.refusals.Allow() {
			f.suppressed.Add(1)
		} else if refused || opened {
			line := bounded(e)
			if refused {
				line.Annotations[edge.AnnotationSuppressed] = strconv.FormatInt(f.suppressed.Swap(0), 10)
			}
			written = f.Backend.ProcessEvents(line) && written
		}
	}
	return written
}

// outcome reports whether an audit event says that a request was refused, and whether it says that a request opened a stream or
// changed the links to the page. A request may have several events, of which outcome selects one: for a 401 the only one, for a
// stream the first, for a 403 and a change of links the last.
func outcome(e *auditinternal.Event) (refused, opened bool) {
	if e.ResponseStatus == nil {
		return false, false
	}
	code, first, to := e.ResponseStatus.Code, e.Stage == auditinternal.StageResponseStarted, e.ObjectRef
	refused = code == http.StatusUnauthorized && first || code == http.StatusForbidden && !first
	if code >= http.StatusBadRequest {
		return refused, false
	}
	streams := first && to != nil && to.APIGroup == "" && to.Resource == "pods" &&
		slices.Contains([]string{"exec", "attach", "portforward", "log"}, to.Subresource)
	path, _, _ := strings.Cut(e.RequestURI, "?")
	links := !first && path == edge.PathLinks && (e.Verb == "post" || e.Verb == "delete")
	return refused, streams || links
}

// bounded returns a copy without long texts, and of the addresses only the connection's: the others are the caller's own words.
func bounded(e *auditinternal.Event) *auditinternal.Event {
	e = e.DeepCopy()
	e.SourceIPs, e.ResponseStatus.Details = e.SourceIPs[max(0, len(e.SourceIPs)-1):], nil
	texts := []*string{(*string)(&e.AuditID), &e.RequestURI, &e.Verb, &e.ResponseStatus.Message}
	if o := e.ObjectRef; o != nil {
		texts = append(texts, &o.Namespace, &o.Name, &o.Resource, &o.Subresource, &o.APIGroup, &o.APIVersion)
	}
	for _, text := range texts {
		*text = short(*text)
	}
	annotations := map[string]string{}
	for key, text := range e.Annotations {
		annotations[key] = short(text)
	}
	e.Annotations = annotations
	return e
}

func short(text string) string {
	if len(text) > maxAuditText {
		return strings.ToValidUTF8(text[:maxAuditText], "") + "…"
	}
	return text
}
