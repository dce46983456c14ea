package model

import (
	"context"
	"io"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Wire connects one caller to a Handler in the same process. It is an http.RoundTripper without sockets and without delay.
type Wire struct {
	Handler http.Handler
	// User is the caller; the Handler takes it for authenticated.
	User user.Info
}

// RoundTrip implements http.RoundTripper. It returns once the Handler has written or flushed something, or has ended. Each write
// of the Handler waits until the client has read all of it. Closing the body cancels the Handler's request.
func (w *Wire) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(request.WithUser(r.Context(), w.User))
	in := r.Clone(ctx)
	in.RequestURI = r.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	reader, writer := io.Pipe()
	a := &answer{header: http.Header{}, body: writer, begun: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer cancel()
		w.Handler.ServeHTTP(a, in)
		_ = in.Body.Close()
		if ctx.Err() == nil {
			stop()
			a.WriteHeader(http.StatusOK)
			_ = writer.Close()
		}
	}()
	select {
	case <-a.begun:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return &http.Response{
		Status: http.StatusText(a.code), StatusCode: a.code, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: a.sent, Body: &answerBody{reader, cancel}, ContentLength: -1, Request: r,
	}, nil
}

// answer is an http.ResponseWriter. The answer has begun once its header is written.
type answer struct {
	header http.Header
	body   *io.PipeWriter
	begun  chan struct{} // closed when code and sent are set
	code   int
	sent   http.Header
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code, a.sent = code, a.header.Clone()
		close(a.begun)
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// Flush implements http.Flusher.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

type answerBody struct {
	*io.PipeReader
	end context.CancelFunc
}

// Close implements io.Closer.
func (b *answerBody) Close() error {
	b.end()
	return b.PipeReader.Close()
}
