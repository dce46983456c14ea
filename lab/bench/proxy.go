package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"yurtcoordinator/internal/sim/pki"
)

// proxy is a running Caddy: the floor beside which a hub is measured. It does only what any program in the hub's place has to
// do. It ends TLS of HTTP/1.1 on the loopback interface, and asks the API server over one connection of HTTP/2, with the node's
// certificate.
type proxy struct {
	// access leads through the proxy. Whoever reaches the proxy acts as the node, so it runs only in a lab and during the
	// benchmark.
	access Access
	pid    int
	dir    string
	cmd    *exec.Cmd
	said   *bytes.Buffer
	ended  chan struct{} // closed when the process has ended
}

const (
	// proxyStart bounds the proxy's start. proxyStop is how long it has to end in an orderly way.
	proxyStart, proxyStop = 20 * time.Second, 5 * time.Second
	// loopback is the address where the proxy listens.
	loopback = "127.0.0.1"
)

// startProxy starts Caddy from the file program, in front of the API server that the node asks.
func startProxy(ctx context.Context, program string, asNode Access) (p *proxy, err error) {
	p = &proxy{said: &bytes.Buffer{}, ended: make(chan struct{})}
	if p.dir, err = os.MkdirTemp("", "yurtlab-proxy-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("plain proxy: %w", err), p.stop())
			p = nil
		}
	}()
	ports, err := FreePorts(1)
	if err != nil {
		return p, err
	}
	port := strconv.Itoa(ports[0])
	config, err := p.prepare(port, asNode)
	if err != nil {
		return p, err
	}
	p.cmd = exec.Command(program, "run", "--config", config)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, p.said, p.said
	// It keeps files below its home. A hub runs with one processor, too.
	p.cmd.Env = []string{"HOME=" + p.dir, "GOMAXPROCS=1"}
	// A session of its own, as each machine's programs have: the kernel shares the processors among sessions first.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := p.cmd.Start(); err != nil {
		return p, err
	}
	p.pid = p.cmd.Process.Pid
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // stop says how it ended
	}()
	return p, p.ready(ctx, net.JoinHostPort(loopback, port))
}

// prepare writes what Caddy reads, and returns the file of its configuration.
func (p *proxy) prepare(port string, asNode Access) (path string, err error) {
	server, err := url.Parse(asNode.Server)
	if err != nil {
		return "", err
	}
	authority, err := pki.Create(filepath.Join(p.dir, "pki"), "ca", clock.RealClock{})
	if err != nil {
		return "", err
	}
	serving := pki.Request{Name: "proxy", Server: true, IPs: []net.IP{net.ParseIP(loopback)}}
	pair, err := authority.Issue(serving)
	if err != nil {
		return "", err
	}
	p.access.Server = "https://" + net.JoinHostPort(loopback, port)
	if p.access.CA, err = os.ReadFile(authority.Files().Cert); err != nil {
		return "", err
	}
	files := proxyFiles{Serving: pair, NodeCert: filepath.Join(p.dir, "node.crt"), NodeKey: filepath.Join(p.dir, "node.key"),
		CloudCA: filepath.Join(p.dir, "cloud.crt")}
	config, err := proxyConfig(net.JoinHostPort(loopback, port), server.Host, files)
	if err != nil {
		return "", err
	}
	path = filepath.Join(p.dir, "caddy.json")
	for name, content := range map[string][]byte{
		files.NodeCert: asNode.Cert, files.NodeKey: asNode.Key, files.CloudCA: asNode.CA, path: config,
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return "", err
		}
	}
	return path, nil
}

// proxyFiles are the certificates that a proxy reads.
type proxyFiles struct {
	Serving                    pki.Pair
	NodeCert, NodeKey, CloudCA string
}

// proxyConfig returns Caddy's configuration. It leaves Caddy's defaults, which decide what a request costs, with three
// exceptions: Caddy speaks to both sides as a hub does, does not log requests, and does not compress.
func proxyConfig(listen, server string, files proxyFiles) ([]byte, error) {
	type object = map[string]any
	type list = []any
	return json.MarshalIndent(object{
		"admin":   object{"disabled": true, "config": object{"persist": false}},
		"logging": object{"logs": object{"default": object{"level": "ERROR"}}},
		"apps": object{
			"tls": object{"certificates": object{"load_files": list{
				object{"certificate": files.Serving.Cert, "key": files.Serving.Key},
			}}},
			"http": object{"servers": object{"proxy": object{
				"listen": list{listen}, "protocols": list{"h1"}, "automatic_https": object{"disable": true},
				"tls_connection_policies": list{object{}},
				"routes": list{object{"handle": list{object{
					"handler":   "reverse_proxy",
					"upstreams": list{object{"dial": server}},
					"transport": object{
						"protocol": "http", "versions": list{"2"}, "compression": false,
						"tls": object{
							"ca":                          object{"provider": "file", "pem_files": list{files.CloudCA}},
							"client_certificate_file":     files.NodeCert,
							"client_certificate_key_file": files.NodeKey,
						},
					},
				}}}},
			}}},
		},
	}, "", " ")
}

// ready waits until the proxy accepts connections.
func (p *proxy) ready(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, proxyStart)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return fmt.Errorf("it ended (%s): %s", p.cmd.ProcessState, lastLine(p.said.Bytes()))
		case <-ctx.Done():
			return fmt.Errorf("it does not listen: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func lastLine(said []byte) string {
	all := bytes.Split(bytes.TrimSpace(said), []byte("\n"))
	return string(all[len(all)-1])
}

// stop ends the proxy and removes its files.
func (p *proxy) stop() error {
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(proxyStop): // connections that clients still have open
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
	return os.RemoveAll(p.dir)
}

// FreePorts returns ports of the loopback interface where nobody listens. In a lab, nothing else takes one there meanwhile.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return nil, err
		}
		defer l.Close()
		address, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("%v is not a TCP address", l.Addr())
		}
		ports[i] = address.Port
	}
	return ports, nil
}
