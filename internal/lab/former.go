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
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab/build"
)

// Former is our release before the present one, of a lab made with Config.Former.
const Former = build.Former

// FormerCoordinator returns the tag of its coordinator's image, as a PoolSettings pins it. All nodes of an installed lab have it.
func FormerCoordinator() string { return build.FormerCoordinator() }

// hubRelease says of which release a node's hub is: formerHub, or else ours. Without the file it is as Config.Former says.
const (
	hubRelease = "hub.release"
	formerHub  = "former"
)

// formerRuns reports whether the hub of the node with this disk is of Former.
func formerRuns(cfg Config, disk string) (bool, error) {
	content, err := os.ReadFile(filepath.Join(disk, hubRelease))
	if errors.Is(err, fs.ErrNotExist) {
		return cfg.Former, nil
	}
	return string(content) == formerHub, err
}

// former reports whether the node's hub is of Former.
func (n node) former() bool {
	is, err := formerRuns(n.cfg, n.disk)
	return is && err == nil
}

// formerHubAddress is where programs find a hub of Former, which does not ask who they are.
var formerHubAddress = fmt.Sprintf("http://127.0.0.1:%d", edge.PortHub)

// formerHub returns the command line of a hub of Former: of the present one's, what it knows.
func (n node) formerHub() []string {
	unknown := "--kubelet-config=" + n.file(kubeletSettings)
	argv := slices.DeleteFunc(n.presentHub(), func(arg string) bool { return arg == unknown })
	argv[0] = n.bins.Former.YurtHub
	return argv
}

// clientsOfHub must find a node's hub where its program serves.
var clientsOfHub = []Component{KubeletC, KubeProxy}

// runHub replaces a node's hub, as `yurthub join` does with another program: what the hub keeps stays; when it is ready, kubelet
// is told where to find it and is started anew; containers go on.
func (l *Lab) runHub(ctx context.Context, name string, former bool) error {
	h, n, err := l.host(name)
	if err != nil {
		return err
	}
	if !l.cfg.Former || n.takenOver() || n.cfg.noHub {
		return fmt.Errorf("%s can't have a hub of %s: make the lab with Config.Former, and leave the node to it", name, Former)
	}
	release := ""
	if former {
		release = formerHub
	}
	_ = l.order(ctx, Kill, h, Hub, nil) // one that has died is started all the same
	if err := os.WriteFile(n.file(hubRelease), []byte(release), 0o600); err != nil {
		return err
	}
	if err := l.component(ctx, Start, h, n, Hub); err != nil {
		return err
	}
	if err := l.waitHub(ctx, h); err != nil {
		return err
	}
	if err := n.writeFiles(); err != nil {
		return err
	}
	for _, c := range clientsOfHub {
		if !slices.Contains(n.components(), c) {
			continue
		}
		if err := l.component(ctx, Restart, h, n, c); err != nil {
			return err
		}
	}
	return nil
}

// waitHub waits until a machine's hub says that it is ready.
func (l *Lab) waitHub(ctx context.Context, h *host) error {
	ctx, cancel := context.WithTimeoutCause(ctx, restartTimeout, fmt.Errorf("the hub of %s is not ready", h.spec.Name))
	defer cancel()
	for {
		l.mu.Lock()
		m := h.machine
		l.mu.Unlock()
		if m == nil {
			return fmt.Errorf("%s has no power", h.spec.Name)
		}
		err := getFromHub(ctx, func(ctx context.Context, _, address string) (net.Conn, error) {
			return dialInside(ctx, m.PID, address)
		}, "/readyz", func(io.Reader) error { return nil })
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

// RunHub replaces the program of a node's hub by Former's or the present one, in a lab made with Config.Former. It gets what the
// other one has left on the disk. kubelet and kube-proxy are started anew, since Former serves them without TLS.
func (c *Client) RunHub(ctx context.Context, node string, former bool) error {
	return c.call(ctx, http.MethodPost, "hub", url.Values{"node": {node}, "former": {strconv.FormatBool(former)}}, nil)
}

// FormerPlugin returns the command that runs Former's kubectl-yurt as an administrator of the cloud.
func (c *Client) FormerPlugin(ctx context.Context, args ...string) (*exec.Cmd, error) {
	o, err := readOrder(c.dir)
	if err != nil {
		return nil, err
	}
	if o.Binaries.Former.KubectlYurt == "" {
		return nil, errors.New("this lab has no former release: make it with Config.Former")
	}
	cmd, err := c.inside(ctx, append([]string{"--net", "--", o.Binaries.Former.KubectlYurt}, args...))
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, "KUBECONFIG="+filepath.Join(c.dir, "pki", "admin.kubeconfig"))
	return cmd, nil
}

// asServed sends requests for a node's hub as its present program serves them: one of Former serves without TLS, and takes
// who has no token for kubelet.
type asServed struct {
	cfg  Config
	disk string
	http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a asServed) RoundTrip(r *http.Request) (*http.Response, error) {
	former, err := formerRuns(a.cfg, a.disk)
	if err != nil {
		return nil, err
	}
	if former {
		r = r.Clone(r.Context())
		r.URL.Scheme = "http"
		r.Header.Del("Authorization")
	}
	return a.RoundTripper.RoundTrip(r)
}
