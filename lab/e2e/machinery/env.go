package machinery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Times.
const (
	// patience is how long a client waits for something that must come.
	patience = 20 * time.Second
	// again is the time between two looks.
	again = 20 * time.Millisecond
)

// Access is one way to an API.
type Access struct {
	config *rest.Config
	client *http.Client
}

// NewAccess returns an access that sends the given header in addition to config's. config must have a Dial. Answers arrive as
// they were sent, not decompressed.
func NewAccess(config *rest.Config, header http.Header) (*Access, error) {
	if config.Dial == nil {
		return nil, errors.New("an access needs a Dial: client-go's default transport asks for gzip by itself")
	}
	c := rest.CopyConfig(config)
	c.DisableCompression, c.Timeout = true, 0
	if len(header) > 0 {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper { return headed{next, header} })
	}
	client, err := rest.HTTPClientFor(c)
	return &Access{c, client}, err
}

// headed adds headers to requests that lack them.
type headed struct {
	next   http.RoundTripper
	header http.Header
}

func (h headed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range h.header {
		if len(r.Header[name]) == 0 {
			r.Header[name] = values
		}
	}
	return h.next.RoundTrip(r)
}

// Env is what a check gets: a way to read, a way to write, and a namespace.
type Env struct {
	ctx            context.Context //nolint:containedctx // an Env is one run of a check, as testing.T is
	Reader, Writer *Access
	// Namespace is the check's own. Group is the group of the suite's custom resources on this side.
	Namespace, Group string

	transcript Transcript
	// wrong are assertions that did not hold. A step also records each.
	wrong []error
}

// stopped ends a check that can't continue.
type stopped struct{ error }

// Must ends the check if err is not nil.
func (e *Env) Must(err error) {
	if err != nil {
		panic(stopped{err})
	}
}

// Note records something that a client saw.
func (e *Env) Note(name string, seen any) { e.Must(e.transcript.add(name, seen)) }

// Expect records whether an assertion holds.
func (e *Env) Expect(what string, holds bool, why ...any) {
	if !holds {
		e.wrong = append(e.wrong, fmt.Errorf("%s: not so: %s", what, short(why)))
	}
	e.Note("assert: "+what, holds)
}

// Alias gives a name of this run the name that it has in all runs.
func (e *Env) Alias(name, canonical string) { e.transcript.Aliases[name] = canonical }

// Request is one request.
type Request struct {
	Method, Path string
	Query        url.Values
	Header       http.Header
	// Body is sent as it is if it is bytes or a string, otherwise as JSON.
	Body any
	// Plain leaves the answer out of the transcript.
	Plain bool
	// Bodiless records only the status and the header.
	Bodiless bool
}

// Answer is the response to a request.
type Answer struct {
	Status int
	Header http.Header
	Raw    []byte
	// JSON is the body, if it is an object in JSON.
	JSON map[string]any
}

// headers are those that a client may depend on.
var headers = []string{
	"Allow", "Cache-Control", "Content-Encoding", "Content-Type", "Location", "Retry-After", "Vary", "Warning",
}

func (a *Answer) seen(bodiless bool) map[string]any {
	header := map[string]any{}
	for _, name := range headers {
		if values := a.Header.Values(name); len(values) > 0 {
			header[name] = values
		}
	}
	seen := map[string]any{"status": a.Status, "header": header}
	switch {
	case bodiless:
	case a.JSON != nil:
		seen["body"] = a.JSON
	default:
		seen["body"] = string(a.Raw)
	}
	return seen
}

// send sends a request, and returns the answer with its body unread.
func (e *Env) send(ctx context.Context, via *Access, r Request) (*http.Response, error) {
	var body io.Reader
	header := r.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if r.Body != nil {
		var content []byte
		switch b := r.Body.(type) {
		case []byte:
			content = b
		case string:
			content = []byte(b)
		default:
			var err error
			if content, err = json.Marshal(b); err != nil {
				return nil, err
			}
		}
		body = bytes.NewReader(content)
		if header.Get("Content-Type") == "" {
			header.Set("Content-Type", "application/json")
		}
	}
	address := strings.TrimSuffix(via.config.Host, "/") + r.Path
	if len(r.Query) > 0 {
		address += "?" + r.Query.Encode()
	}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, address, body)
	if err != nil {
		return nil, err
	}
	request.Header = header
	return via.client.Do(request)
}

func (e *Env) ask(via *Access, r Request) (*Answer, error) {
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	response, err := e.send(ctx, via, r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	a := &Answer{Status: response.StatusCode, Header: response.Header}
	if a.Raw, err = io.ReadAll(response.Body); err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.Path, err)
	}
	if json.Unmarshal(a.Raw, &a.JSON) != nil {
		a.JSON = nil
	}
	return a, nil
}

func (e *Env) do(via *Access, name string, r Request) *Answer {
	a, err := e.ask(via, r)
	e.Must(err)
	if !r.Plain {
		e.Note(name, a.seen(r.Bodiless))
	}
	return a
}

// Read asks the examined side.
func (e *Env) Read(name string, r Request) *Answer { return e.do(e.Reader, name, r) }

// Get reads a path with a query ("a=b&c=d"; a value must be escaped).
func (e *Env) Get(name, path, query string) *Answer {
	return e.Read(name, Request{Path: path, Query: values(query)})
}

// GetAs is Get with an Accept header.
func (e *Env) GetAs(name, path, query, accept string) *Answer {
	return e.Read(name, Request{Path: path, Query: values(query), Header: http.Header{"Accept": {accept}}})
}

func values(query string) url.Values {
	v, err := url.ParseQuery(query)
	if err != nil {
		panic(stopped{err})
	}
	return v
}

// Write makes the writer write something, and expects it to succeed.
func (e *Env) Write(name string, r Request) Object {
	a := e.do(e.Writer, name, r)
	if a.Status >= http.StatusBadRequest {
		e.Must(fmt.Errorf("%s: %d %s", name, a.Status, a.Raw))
	}
	return a.JSON
}

// Try makes the writer write something, whatever the result.
func (e *Env) Try(name string, r Request) *Answer { return e.do(e.Writer, name, r) }

// Until waits until look returns nil.
func (e *Env) Until(what string, look func() error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	every := time.NewTicker(again)
	defer every.Stop()
	for {
		err := look()
		if err == nil {
			return
		}
		select {
		case <-every.C:
		case <-deadline.C:
			e.Must(fmt.Errorf("not within %v: %s: %w", patience, what, err))
		case <-e.ctx.Done():
			e.Must(fmt.Errorf("%s: %w", what, errors.Join(context.Cause(e.ctx), err)))
		}
	}
}

// Typed returns a client of Kubernetes' types through an access, in an encoding.
func (e *Env) Typed(via *Access, contentType string) kubernetes.Interface {
	c := rest.CopyConfig(via.config)
	c.ContentType, c.AcceptContentTypes = contentType, contentType
	client, err := kubernetes.NewForConfig(c)
	e.Must(err)
	return client
}

// Dynamic returns a client of any types.
func (e *Env) Dynamic(via *Access) dynamic.Interface {
	client, err := dynamic.NewForConfig(via.config)
	e.Must(err)
	return client
}
