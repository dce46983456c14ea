package pool

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"yurtcoordinator/internal/edge"
)

// auditBench has an auditFilter, and what it has written.
type auditBench struct {
	t      *testing.T
	filter *auditFilter
	out    bytes.Buffer
}

func newAuditBench(t *testing.T) *auditBench {
	b := &auditBench{t: t}
	b.filter = newAuditFilter(&b.out, refusalsPerSecond)
	return b
}

// ends has n requests end with a code, with the stages that kube-apiserver has for those that may last.
func (b *auditBench) ends(n int, code int32, subresource string) {
	for range n {
		for _, stage := range []auditinternal.Stage{auditinternal.StageResponseStarted, auditinternal.StageResponseComplete} {
			if code == 401 && stage == auditinternal.StageResponseComplete {
				continue // kube-apiserver has no such stage
			}
			ok := b.filter.ProcessEvents(&auditinternal.Event{
				Level: auditinternal.LevelMetadata, Stage: stage, ResponseStatus: &metav1.Status{Code: code},
				ObjectRef: &auditinternal.ObjectReference{Resource: "pods", Subresource: subresource},
			})
			if !ok {
				b.t.Error("not written")
			}
		}
	}
}

// lines takes what was written since the last call.
func (b *auditBench) lines() (all []auditv1.Event) {
	b.t.Helper()
	for text := range bytes.Lines(b.out.Bytes()) {
		var e auditv1.Event
		if err := json.Unmarshal(text, &e); err != nil {
			b.t.Errorf("%v in %s", err, text)
		}
		all = append(all, e)
	}
	b.out.Reset()
	return all
}

func TestRefusalsAreBoundedAndStreamsAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newAuditBench(t)
		b.ends(1, 200, "")
		b.ends(1, 404, "exec")
		b.ends(1, 201, "eviction")
		if got := b.lines(); len(got) != 0 {
			t.Errorf("what is neither refused nor a stream has a line: %+v", got)
		}
		b.ends(refusalsPerSecond, 403, "exec")
		if n := len(b.lines()); n != refusalsPerSecond {
			t.Errorf("%d refusals have %d lines", refusalsPerSecond, n)
		}
		b.ends(70, 403, "")
		b.ends(30, 401, "")
		if got := b.lines(); len(got) != 0 {
			t.Errorf("of 100 refusals more, in the same second, there are %d lines", len(got))
		}
		for _, stream := range []string{"exec", "attach", "portforward", "log"} {
			b.ends(100, 101, stream)
			if got := b.lines(); len(got) != 100 || got[0].Stage != auditv1.StageResponseStarted {
				t.Errorf("100 of %s have %d lines", stream, len(got))
			}
		}
		time.Sleep(time.Second) // of the bubble
		b.ends(2, 401, "")
		got := b.lines()
		const key = edge.AnnotationSuppressed
		if len(got) != 2 || got[0].Annotations[key] != "100" || got[1].Annotations[key] != "0" {
			t.Errorf("after that there are %d lines: %+v", len(got), got)
		}
	})
}

func TestAHostileCallerWritesNoLongLine(t *testing.T) {
	b := newAuditBench(t)
	long := "/x\n{\"kind\":\"forged\"}" + strings.Repeat("ü", 100_000)
	e := &auditinternal.Event{
		AuditID: types.UID(long), Stage: auditinternal.StageResponseComplete, RequestURI: long, Verb: long,
		SourceIPs: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"},
		ObjectRef: &auditinternal.ObjectReference{Resource: long, Namespace: long, Name: long, Subresource: long},
		ResponseStatus: &metav1.Status{Code: 403, Message: long, Details: &metav1.StatusDetails{
			Name: long, Causes: []metav1.StatusCause{{Message: long}},
		}},
		Annotations: map[string]string{"why": long},
	}
	whole := e.DeepCopy()
	b.filter.ProcessEvents(e)
	if n := b.out.Len(); n > 16*maxAuditText {
		t.Errorf("the line has %d bytes", n)
	}
	got := b.lines()
	if len(got) != 1 || !strings.HasPrefix(got[0].RequestURI, "/x\n") || !strings.HasSuffix(got[0].RequestURI, "ü…") {
		t.Errorf("got %+v", got)
	}
	if ips := got[0].SourceIPs; len(ips) != 1 || ips[0] != "192.0.2.3" {
		t.Errorf("from %v: all but the last are what the caller says", ips)
	}
	if e.RequestURI != whole.RequestURI || e.ResponseStatus.Details == nil || len(e.Annotations) != 1 {
		t.Error("the request's own event has changed")
	}
}
