package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// FullRead is one request that made the cloud send all objects of a resource. It is a list, or a watch that begins with all
// objects because it has sendInitialEvents, or no resourceVersion, or 0.
type FullRead struct {
	// At is when the cloud received the request.
	At time.Time `json:"at"`
	// User is the caller, such as "system:node:p1-n1".
	User string `json:"user"`
	// Verb is list or watch, URI the request with all its parameters, Agent the calling program.
	Verb  string `json:"verb"`
	URI   string `json:"uri"`
	Agent string `json:"agent"`
}

// CloudLists returns the requests that made the cloud send all objects of a resource ("endpointslices") since the start of the
// lab, in the order of the audit log. It includes every caller, but only answered requests. A list in several pages counts
// once, by its first page. The result is exact for requests whose answers were read to the end, and for watches that have
// begun.
func (c *Client) CloudLists(ctx context.Context, resource string) ([]FullRead, error) {
	path, err := c.AuditLog()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	reads, err := fullReads(ctx, f, resource)
	if err != nil {
		return nil, fmt.Errorf("the cloud's audit log: %w", err)
	}
	return reads, nil
}

// Request is one request that the cloud received from a node.
type Request struct {
	At time.Time `json:"at"`
	// Node is the node that sent the request, known by the address.
	Node string `json:"node"`
	// Agent is the calling program without its version. Verb is the audit log's. What is the resource with its subresource, or
	// the path of a request that is for no resource.
	Agent string `json:"agent"`
	Verb  string `json:"verb"`
	What  string `json:"what"`
}

// Requests returns the requests that the cloud received from nodes in [from, to), in a lab with Config.AuditAll. It has watches
// that have begun, and other requests that have ended.
func (c *Client) Requests(ctx context.Context, from, to time.Time) ([]Request, error) {
	cfg, err := c.Config()
	if err != nil {
		return nil, err
	}
	nodes := map[string]string{}
	for _, p := range cfg.places() {
		for _, f := range cfg.families() {
			nodes[p.wan(f).String()] = string(p.name())
		}
	}
	path, err := c.AuditLog()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Request
	err = eachEvent(ctx, f, "", func(e auditv1.Event) {
		if e.RequestReceivedTimestamp.Time.Before(from) || !e.RequestReceivedTimestamp.Time.Before(to) || len(e.SourceIPs) == 0 {
			return
		}
		node, ok := nodes[e.SourceIPs[0]]
		if began := e.Stage == auditv1.StageResponseStarted; ok && began == (e.Verb == "watch") {
			all = append(all, request(e, node))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("the cloud's audit log: %w", err)
	}
	return all, nil
}

func request(e auditv1.Event, node string) Request {
	r := Request{At: e.RequestReceivedTimestamp.Time, Node: node, Verb: e.Verb}
	r.Agent, _, _ = strings.Cut(e.UserAgent, "/")
	if e.ObjectRef == nil {
		r.What, _, _ = strings.Cut(e.RequestURI, "?")
		return r
	}
	r.What = e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		r.What += "/" + e.ObjectRef.Subresource
	}
	return r
}

// fullReads finds the full reads in an audit log.
func fullReads(ctx context.Context, log io.Reader, resource string) ([]FullRead, error) {
	var reads []FullRead
	err := eachEvent(ctx, log, `"`+resource+`"`, func(e auditv1.Event) {
		if full(e, resource) {
			reads = append(reads, FullRead{
				At: e.RequestReceivedTimestamp.Time, User: e.User.Username, Verb: e.Verb, URI: e.RequestURI, Agent: e.UserAgent,
			})
		}
	})
	return reads, err
}

// eachEvent calls do with each event whose line contains a text. The log's last line may be half written.
func eachEvent(ctx context.Context, log io.Reader, text string, do func(auditv1.Event)) error {
	for in := bufio.NewReaderSize(log, 64<<10); ctx.Err() == nil; {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !bytes.Contains(line, []byte(text)) {
			continue
		}
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		do(e)
	}
	return context.Cause(ctx)
}

// full reports whether the event records a full read.
func full(e auditv1.Event, resource string) bool {
	if e.ObjectRef == nil || e.ObjectRef.Resource != resource || e.ObjectRef.Subresource != "" ||
		e.ResponseStatus == nil || e.ResponseStatus.Code != http.StatusOK {
		return false
	}
	_, query, _ := strings.Cut(e.RequestURI, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return false // the cloud answers this with 400
	}
	switch {
	case e.Verb == "list" && e.Stage == auditv1.StageResponseComplete:
		return q.Get("continue") == "" && q.Get("limit") != "1" // reading one object is not a full read
	case e.Verb == "watch" && e.Stage == auditv1.StageResponseStarted:
		initial, err := strconv.ParseBool(q.Get("sendInitialEvents"))
		if err == nil {
			return initial
		}
		return q.Get("resourceVersion") == "" || q.Get("resourceVersion") == "0"
	}
	return false
}
