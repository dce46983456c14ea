package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// maxAnswer bounds how much of any answer is read, in bytes. A hub's status with a thousand selections is a third of that.
const maxAnswer = 1 << 20

// plainClient follows no redirects, and bounds headers.
func plainClient(step time.Duration, by *http.Transport) *http.Client {
	by.DisableKeepAlives, by.MaxResponseHeaderBytes = true, 64<<10
	return &http.Client{
		Timeout: step, Transport: by,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// fetch gets at most maxAnswer bytes.
func fetch(ctx context.Context, client *http.Client, url string) (status int, body []byte, header http.Header, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "yurthub-check")
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	return resp.StatusCode, body, resp.Header, err
}

// askHub asks what runs at the health port for its health and status.
func askHub(ctx context.Context, c Config) Hub {
	client := plainClient(c.Step, new(http.Transport))
	status, _, _, err := fetch(ctx, client, c.healthURL()+"/healthz")
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Hub{Nobody: true}
	case err != nil:
		return Hub{Trouble: cause(err)}
	case status != http.StatusOK:
		return Hub{Trouble: fmt.Sprintf("/healthz answers with status %d", status)}
	}
	status, body, _, err := fetch(ctx, client, c.healthURL()+"/status")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/status answers with status %d", status)
	}
	var hub Hub
	if err == nil {
		_ = json.Unmarshal(body, &hub.Status) // a hub of another release may say more, in another form: what can be read counts
		if hub.Status.Node == "" || hub.Status.Cloud == "" {
			err = errors.New("/status is not a hub's")
		}
	}
	if err != nil {
		return Hub{Trouble: cause(err)}
	}
	return hub
}

// cause returns the innermost text of a network error. The caller adds addresses and methods.
func cause(err error) string {
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &op) && op.Timeout():
		return "no answer in time"
	case errors.As(err, &op):
		return line(op.Err.Error())
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "no answer in time"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return line(err.Error())
		}
		err = inner
	}
}

// probe listens at the port for a moment, to find out whether another program holds the port, or why none could listen there.
func (p *Port) probe(ctx context.Context) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", p.Address)
	switch {
	case err == nil:
		_ = l.Close()
	case errors.Is(err, syscall.EADDRINUSE):
		p.Held = true
	default:
		p.Trouble = cause(err)
	}
}
