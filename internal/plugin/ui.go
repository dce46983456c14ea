package plugin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"yurtcoordinator/internal/edge"
)

func (c *commands) ui() *cobra.Command {
	var port uint16
	var link, withdraw bool
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "ui POOL",
		Short: "Show a pool's page, which its coordinator serves, to a browser on this machine",
		Long: "Show a pool's page, which its coordinator serves, to a browser on this machine: nodes, links, Pods, Events.\n" +
			"\n" +
			"It asks the coordinator with the operators' kubeconfig, which it gets from the cloud unless you give it a pool's\n" +
			"own, and gives a browser on this machine only the page. Only a browser that has the link can open it.\n" +
			"This machine must reach the coordinator: on the pool's LAN, or by a VPN.\n" +
			"\n" +
			"With --link, the coordinator itself shows the page to every browser on its LAN that has the link, such as a\n" +
			"phone's, until the link ends. Such a browser needs no certificate, and gets no other right.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("for") && !link:
				return errors.New("--for is how long a link lives: give --link, too")
			case life < time.Second || life > edge.MaxLinkLife:
				return fmt.Errorf("--for is %s: a link lives 1s at least and %s at most", life, edge.MaxLinkLife)
			}
			access, err := c.accessTo(cmd.Context(), edge.PoolName(args[0]))
			if err != nil {
				return err
			}
			switch out := Visible(c.output); {
			case withdraw:
				return withdrawLinks(cmd.Context(), out, access, args[0])
			case link:
				return makeLink(cmd.Context(), c.output, access, args[0], life)
			}
			return showPage(cmd.Context(), c.output, access, args[0], port)
		},
		ValidArgsFunction: c.completePools,
	}
	flags := cmd.Flags()
	flags.Uint16Var(&port, "port", 0, "the port at 127.0.0.1 to serve it on; 0 means any free port")
	flags.BoolVar(&link, "link", false, "print a link for a phone on the pool's LAN, with a QR code, and end")
	flags.DurationVar(&life, "for", linkLife, "how long the link lives, 24h at most; it ends with your certificate, too")
	flags.BoolVar(&withdraw, "withdraw", false, "end all links to the pool's page, whoever made them, and make none")
	cmd.MarkFlagsMutuallyExclusive("port", "link")
	cmd.MarkFlagsMutuallyExclusive("port", "withdraw")
	cmd.MarkFlagsMutuallyExclusive("for", "withdraw")
	cmd.MarkFlagsMutuallyExclusive("link", "withdraw")
	return cmd
}

// accessTo returns how to reach a pool's coordinator as its operators do.
func (c *commands) accessTo(ctx context.Context, pool edge.PoolName) (*rest.Config, error) {
	access, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	r, err := NewReader(access)
	switch {
	case err != nil:
		return nil, err
	case r.Within != "" && r.Within != pool && r.Within != unnamed:
		return nil, fmt.Errorf("this kubeconfig is of pool %s, not of %s", r.Within, pool)
	case r.Within != "":
		return access, nil
	}
	content, err := r.Kubeconfig(ctx, pool)
	if err != nil {
		return nil, err
	}
	return clientcmd.RESTConfigFromKubeConfig(content)
}

// showPage serves the page at 127.0.0.1 until ctx ends.
func showPage(ctx context.Context, out io.Writer, access *rest.Config, pool string, port uint16) error {
	p, err := newPageProxy(access)
	if err != nil {
		return err
	}
	if err := p.try(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	p.host = listener.Addr().String()
	server := &http.Server{
		Handler: p, ReadHeaderTimeout: pageTimeout, WriteTimeout: 2 * pageTimeout, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	fmt.Fprintf(out,
		"The page of pool %s, for a browser on this machine:\n\n  %s\n\nKeep the link secret: whoever has it can see the page. "+
			"Ctrl-C ends it.\n", pool, p.link())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	_ = server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// pageTimeout bounds an answer of the coordinator.
const pageTimeout = 30 * time.Second

// pageProxy forwards requests for a coordinator's page, and for nothing else. So a person who has the link to the proxy sees the
// page, and gets none of the operators' other rights. The proxy answers only requests whose Host is its own, so that no other
// site's name can lead to it.
type pageProxy struct {
	host   string // 127.0.0.1:PORT, set before it serves
	token  string
	server *url.URL
	client http.RoundTripper
	proxy  *httputil.ReverseProxy
}

func newPageProxy(access *rest.Config) (*pageProxy, error) {
	access = rest.CopyConfig(access)
	access.Timeout = 0
	server, _, err := rest.DefaultServerUrlFor(access)
	if err != nil {
		return nil, err
	}
	client, err := rest.TransportFor(access)
	if err != nil {
		return nil, err
	}
	p := &pageProxy{token: strings.ToLower(rand.Text()), server: server, client: client}
	p.proxy = &httputil.ReverseProxy{
		Transport: client,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = server.Scheme, server.Host, server.Host
			r.Out.URL.Path, r.Out.URL.RawPath = p.below(r.In.URL.Path), ""
			for name := range r.Out.Header {
				if !passed[name] {
					r.Out.Header.Del(name)
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the coordinator does not answer: "+err.Error(), http.StatusBadGateway)
		},
	}
	return p, nil
}

// passed are the headers of a browser that reach the coordinator.
var passed = map[string]bool{"Accept": true, "Accept-Language": true, "If-None-Match": true, "User-Agent": true}

func (p *pageProxy) link() string {
	return fmt.Sprintf("http://%s/%s%s/", p.host, p.token, edge.PathPage)
}

// below returns the path at the coordinator; empty means that this is none of the page's.
func (p *pageProxy) below(path string) string {
	token, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if subtle.ConstantTimeCompare([]byte(token), []byte(p.token)) != 1 {
		return ""
	}
	if rest = "/" + rest; !strings.HasPrefix(rest, edge.PathPage+"/") || strings.Contains(rest, "..") {
		return ""
	}
	return rest
}

// ServeHTTP implements http.Handler.
func (p *pageProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Host != p.host:
		http.Error(w, "this is "+p.host, http.StatusMisdirectedRequest)
	case p.below(r.URL.Path) == "":
		http.Error(w, "there is nothing here: use the whole link that kubectl yurt ui has printed", http.StatusNotFound)
	case r.Method != http.MethodGet:
		http.Error(w, "this page can only be read", http.StatusMethodNotAllowed)
	default:
		p.proxy.ServeHTTP(w, r)
	}
}

// try asks for the page once, so that what is wrong is told on the terminal.
func (p *pageProxy) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.server.JoinPath(edge.PathPage+"/").String(), nil)
	if err != nil {
		return err
	}
	response, err := p.client.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("%w\n(is this machine on the pool's LAN? Any node of the pool leads there: "+
			"--context=yurt-coordinator-POOL/any)", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	said, _ := io.ReadAll(io.LimitReader(response.Body, 500))
	return fmt.Errorf("%s does not show its page: %s: %s\n(is it a coordinator, of this version?)", p.server.Host,
		response.Status,
		strings.TrimSpace(string(said)))
}
