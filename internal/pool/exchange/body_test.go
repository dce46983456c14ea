package exchange

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// deadlines notes what is set.
type deadlines struct {
	http.ResponseWriter
	read, write []time.Duration // from when each was set; 0 is none
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.read = append(d.read, until(at))
	return nil
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.write = append(d.write, until(at))
	return nil
}

func until(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return time.Until(at)
}

func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := func(p *Body, after time.Duration) error {
			time.Sleep(after) // of the bubble's clock
			_, err := p.Read(make([]byte, 1))
			return err
		}
		d := &deadlines{}
		p := NewBody(t.Context(), d, strings.NewReader("abcd"), 30*time.Second)
		for _, after := range []time.Duration{0, time.Second, time.Second, time.Second, 25 * time.Second} {
			if err := read(p, after); err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
		p.Cut() // too late
		want := []time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second, 0}
		if !slices.Equal(d.read, want) || len(d.write) != 0 {
			t.Errorf("read deadlines %v, want %v; write %v", d.read, want, d.write)
		}
		d = &deadlines{}
		p = NewBody(t.Context(), d, strings.NewReader("abcd"), 30*time.Second)
		p.Cut()
		if err := read(p, 0); !errors.Is(err, os.ErrDeadlineExceeded) || len(d.read) != 1 || d.read[0] >= 0 {
			t.Errorf("after a cut: %v, deadlines %v", err, d.read)
		}
		if !slices.Equal(d.write, []time.Duration{lastWord}) {
			t.Errorf("write deadlines %v, want %s", d.write, lastWord)
		}
	})
}

// TestAnsweredWhileItIsRead: a handler that goes on after its request was answered touches the connection no more.
func TestAnsweredWhileItIsRead(t *testing.T) {
	for name, begin := range map[string]func(context.Context, http.ResponseWriter) *Body{
		"a body of before": nil,
		"a body of after": func(ctx context.Context, w http.ResponseWriter) *Body {
			return NewBody(ctx, w, strings.NewReader("abcd"), 30*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &deadlines{}
			var of context.Context
			var body *Body
			Bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				of = r.Context()
				body = NewBody(of, w, strings.NewReader("abcd"), 30*time.Second)
			})).ServeHTTP(d, httptest.NewRequest(http.MethodPut, "/", nil))
			if begin != nil {
				body = begin(of, d)
			}
			if n, err := body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read %d bytes, %v", n, err)
			}
			body.Cut()
			body.rest()
			if len(d.read)+len(d.write) != 0 {
				t.Errorf("deadlines were set: %v, %v", d.read, d.write)
			}
		})
	}
}
