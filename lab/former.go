package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

// hubFormer is a file on a node's disk. While it exists, the node's hub is that of Config.Former.
const hubFormer = "hub.former"

// hubProgram returns the program of the node's hub.
func (n node) hubProgram() string {
	if _, err := os.Stat(n.file(hubFormer)); err == nil {
		return n.bins.Former.YurtHub
	}
	return n.bins.YurtHub
}

// runHub replaces a node's hub by another program, which gets the hub's flags and whatever the hub left on the disk. The node's
// other programs keep running. It returns when the new hub is ready.
func (l *Lab) runHub(ctx context.Context, name string, former bool) error {
	h, n, err := l.host(name)
	if err != nil {
		return err
	}
	if l.cfg.Former == "" || n.takenOver() || n.cfg.noHub {
		return fmt.Errorf("%s can't have a hub of another commit: make the lab with Config.Former, and leave the node to it",
			name)
	}
	_ = l.order(ctx, Kill, h, Hub, nil) // one that has died is started all the same
	if former {
		err = os.WriteFile(n.file(hubFormer), nil, 0o600)
	} else if err = os.Remove(n.file(hubFormer)); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	if err := l.component(ctx, Start, h, n, Hub); err != nil {
		return err
	}
	return l.waitHub(ctx, h, false)
}

// waitHub waits until a machine's hub is ready. With inPool it waits until the hub also reaches its pool's coordinator.
func (l *Lab) waitHub(ctx context.Context, h *host, inPool bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, restartTimeout, fmt.Errorf("the hub of %s is not ready", h.spec.Name))
	defer cancel()
	for {
		l.mu.Lock()
		m := h.machine
		l.mu.Unlock()
		if m == nil {
			return fmt.Errorf("%s has no power", h.spec.Name)
		}
		dial := func(ctx context.Context, _, address string) (net.Conn, error) { return dialInside(ctx, m.PID, address) }
		err := getFromHub(ctx, dial, "/readyz", func(io.Reader) error { return nil })
		if err == nil && inPool {
			var hub HubStatus
			if hub, err = askHub(ctx, dial); err == nil && hub.Coordinator != "up" {
				err = fmt.Errorf("its coordinator is %s", hub.Coordinator)
			}
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// formerRoute answers Client.RunHub.
func (s *server) formerRoute(mux *http.ServeMux) {
	mux.HandleFunc("POST /hub", s.whenBooted(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		former, err := strconv.ParseBool(r.URL.Query().Get("former"))
		if err != nil {
			return nil, err
		}
		return nil, s.lab.runHub(r.Context(), r.URL.Query().Get("node"), former)
	}))
}

// RunHub replaces the program of a node's hub: by that of Config.Former if former is true, otherwise by the present one. The
// new program gets whatever the other one left on the disk.
func (c *Client) RunHub(ctx context.Context, node string, former bool) error {
	return c.call(ctx, http.MethodPost, "hub", url.Values{"node": {node}, "former": {strconv.FormatBool(former)}}, nil)
}
