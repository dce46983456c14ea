package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab/wire"
)

// Client talks to a running lab.
type Client struct {
	dir  string
	http *http.Client
}

// ErrNotUp says that no lab of that name runs.
var ErrNotUp = errors.New("is not up; start it with: yurtlab up")

// Connect returns a client of the running lab of that name. It fails with ErrNotUp.
func Connect(name string) (*Client, error) {
	dir, err := Dir(name)
	if err != nil {
		return nil, err
	}
	c := newClient(dir)
	conn, err := c.dialSocket(context.Background(), socketFile)
	if err != nil {
		return nil, fmt.Errorf("lab %q %w", name, ErrNotUp)
	}
	return c, conn.Close()
}

func newClient(dir string) *Client {
	c := &Client{dir: dir}
	c.http = &http.Client{Transport: &http.Transport{
		MaxIdleConns: 2, IdleConnTimeout: 10 * time.Second,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dialSocket(ctx, socketFile) },
	}}
	return c
}

func (c *Client) dialSocket(ctx context.Context, name string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "unix", filepath.Join(c.dir, name))
}

// Config returns the configuration that the lab was started with.
func (c *Client) Config() (Config, error) {
	o, err := readOrder(c.dir)
	return o.Config, err
}

// Status returns the present state of the lab.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "status", nil, &s)
	return s, err
}

// Traffic returns the bytes over each node's WAN link since the start or since the mark.
func (c *Client) Traffic(ctx context.Context, sinceMark bool) (map[string]wire.Bytes, error) {
	q := url.Values{}
	if sinceMark {
		q.Set("since-mark", "")
	}
	t := map[string]wire.Bytes{}
	err := c.call(ctx, http.MethodGet, "traffic", q, &t)
	return t, err
}

// Total returns the sum over all nodes of what Traffic returned.
func Total(traffic map[string]wire.Bytes) wire.Bytes {
	var sum wire.Bytes
	for _, b := range traffic {
		sum = sum.Add(b)
	}
	return sum
}

// MarkTraffic sets the mark that Traffic can count from.
func (c *Client) MarkTraffic(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "mark", nil, nil)
}

// Cut cuts the link of target (NODE or pool/POOL) to a network.
func (c *Client) Cut(ctx context.Context, n Network, target string, fault wire.Fault) error {
	return c.call(ctx, http.MethodPost, "link",
		url.Values{"network": {string(n)}, "target": {target}, "mode": {fault.String()}}, nil)
}

// Heal undoes Cut.
func (c *Client) Heal(ctx context.Context, n Network, target string) error {
	return c.call(ctx, http.MethodPost, "link", url.Values{"network": {string(n)}, "target": {target}}, nil)
}

// Shape gives the links of target (NODE or pool/POOL) to a network a shape. Cut and Heal do not change it.
func (c *Client) Shape(ctx context.Context, n Network, target string, shape LinkShape) error {
	content, err := json.Marshal(shape)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, "shape",
		url.Values{"network": {string(n)}, "target": {target}, "shape": {string(content)}}, nil)
}

// Unshape undoes Shape.
func (c *Client) Unshape(ctx context.Context, n Network, target string) error {
	return c.call(ctx, http.MethodPost, "shape", url.Values{"network": {string(n)}, "target": {target}}, nil)
}

// Node performs an action on a component of a node; All means the whole machine.
func (c *Client) Node(ctx context.Context, a Action, node string, component Component) error {
	return c.call(ctx, http.MethodPost, "node",
		url.Values{"action": {string(a)}, "node": {node}, "component": {string(component)}}, nil)
}

// Cloud performs an action on a program of the control plane (Etcd, KubeAPIServer and so on), or on all of it. At a start,
// flags ("--name=value") replace the program's own flags of the same names until the next start. After a start of
// kube-apiserver, or of all, Cloud returns when the cloud serves.
//
// A kube-apiserver that starts over other data ("--etcd-prefix=/empty", with "--authorization-mode=AlwaysAllow", because the
// roles are not in that data) tells the whole control plane that everything is gone, at a newer revision. Kill
// KubeControllerManager first: its garbage collector would remember Services as gone, and later delete their EndpointSlices
// from the real data.
func (c *Client) Cloud(ctx context.Context, a Action, component Component, flags ...string) error {
	return c.call(ctx, http.MethodPost, "cloud",
		url.Values{"action": {string(a)}, "component": {string(component)}, "flag": flags}, nil)
}

// Output runs a program of the host in a node's machine, such as iptables-save, and returns its output. The program
// must end by itself, with success.
func (c *Client) Output(ctx context.Context, node string, argv ...string) (string, error) {
	var printed string
	err := c.call(ctx, http.MethodPost, "output", url.Values{"node": {node}, "arg": argv}, &printed)
	return printed, err
}

// follow reports the steps of the boot until it has ended.
func (c *Client) follow(ctx context.Context, progress func(Step)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://lab/boot", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for in := json.NewDecoder(resp.Body); ; {
		var s Step
		if err := in.Decode(&s); err != nil {
			return fmt.Errorf("the lab's own process ended while booting; its log: %s: %w",
				filepath.Join(c.dir, logFile), err)
		}
		progress(s)
		switch {
		case s.Error != "":
			return errors.New(s.Error)
		case s.Done:
			return nil
		}
	}
}

func (c *Client) call(ctx context.Context, method, path string, q url.Values, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute) // powering a machine on takes the longest
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://lab/"+path+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(body)))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(body, out)
}

// callMargin is how much longer a caller waits than the lab may take to answer.
const callMargin = 5 * time.Second

// Dial connects to a TCP address from within a machine's network, or to a Unix socket by its path on the machine. If machine is
// empty, it uses the lab's own network, which is on every switch and never cut off. It fails after dialTimeout.
func (c *Client) Dial(ctx context.Context, machine, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout+callMargin, errors.New("the lab does not answer"))
	defer cancel()
	conn, err := c.dialSocket(ctx, dialFile)
	if err != nil {
		return nil, err
	}
	if machine == "" {
		machine = "-"
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	in := bufio.NewReader(conn)
	answer := ""
	if _, err = fmt.Fprintln(conn, machine, address); err == nil {
		answer, err = in.ReadString('\n')
	}
	if answer = strings.TrimSpace(answer); err == nil && answer != dialOK {
		err = errors.New(answer)
	}
	if !stop() || err != nil {
		return nil, errors.Join(err, conn.Close(), context.Cause(ctx))
	}
	return &bufferedConn{Conn: conn, in: in}, nil
}

// bufferedConn is a connection whose first input may already be in a buffer.
type bufferedConn struct {
	net.Conn
	in *bufio.Reader
}

func (b *bufferedConn) Read(p []byte) (int, error) { return b.in.Read(p) }

// CloudConfig returns an administrator's access to the cloud.
func (c *Client) CloudConfig() (*rest.Config, error) { return c.config("admin", "", "") }

// CloudConfigAs returns access to the cloud with the certificate of that name in the lab's keys.
func (c *Client) CloudConfigAs(name string) (*rest.Config, error) {
	return c.config(name, "", "")
}

// CloudKeys returns the files of the certificate that the cloud's kube-apiserver shows, and of its key.
func (c *Client) CloudKeys() (cert, key string) {
	at := filepath.Join(c.dir, "pki", "kube-apiserver")
	return at + ".crt", at + ".key"
}

// CloudConfigFrom returns a node's own access to the cloud over the node's own WAN link. A program on the node that does not
// use the hub has this access.
func (c *Client) CloudConfigFrom(node string) (*rest.Config, error) {
	return c.config(node, "", node)
}

// HubConfig returns kubelet's access through a node's hub. Requests over it come from the node's user.
func (c *Client) HubConfig(node string) (*rest.Config, error) {
	access, err := c.HubConfigAs(node, "")
	if err != nil {
		return nil, err
	}
	access.BearerTokenFile = filepath.Join(c.dir, "machines", node, hubKeys, kubeletToken)
	return access, nil
}

// HubConfigAs returns access to the port that a node's hub has for kubelet, with the caller's own token. An empty token means a
// request without one.
func (c *Client) HubConfigAs(node, token string) (*rest.Config, error) {
	dir, err := c.HubKeysDir(node)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(dir, hubAuthority))
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: hubAddress, QPS: -1, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: authority},
		Dial: func(ctx context.Context, _, address string) (net.Conn, error) { return c.Dial(ctx, node, address) },
	}, nil
}

// Adopt prepares the lab's own programs on a node that was taken over to use the hub that was installed there. It gives them
// that hub's authority and kubelet's token. Programs that already run need a restart.
func (c *Client) Adopt(node string) error {
	to, err := c.HubKeysDir(node)
	if err != nil {
		return err
	}
	from := filepath.Join(c.dir, "machines", node, "var-lib", "yurthub", "pki")
	for _, name := range []string{hubAuthority, kubeletToken} {
		content, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return fmt.Errorf("no yurthub has been installed on %s: %w", node, err)
		}
		if err := os.WriteFile(filepath.Join(to, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// config returns access from a machine to a server, with the certificate of that name; an empty server means the cloud.
func (c *Client) config(name, server, machine string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags(server, filepath.Join(c.dir, "pki", name+".kubeconfig"))
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	cfg.Dial = func(ctx context.Context, _, address string) (net.Conn, error) { return c.Dial(ctx, machine, address) }
	return cfg, nil
}

// Hub asks a node's hub for its status.
func (c *Client) Hub(ctx context.Context, node string) (HubStatus, error) {
	return askHub(ctx, func(ctx context.Context, _, address string) (net.Conn, error) {
		return c.Dial(ctx, node, address)
	})
}

// HubSettings writes a hub's configuration file (YAML, with the names of its flags). The hub reads the file at its start, and
// checks it every 5 s.
func (c *Client) HubSettings(node, yaml string) error { return c.replace(node, hubSettings, yaml) }

// TakeOver lets the caller administer a node as a user administers one. From now on the lab starts neither hub nor kubelet
// there: when the machine is powered on, the lab runs this shell script, which must start them. The caller kills a hub and a
// kubelet that already run.
func (c *Client) TakeOver(node, script string) error {
	dir := filepath.Join(c.dir, "machines", node)
	if _, err := os.Stat(dir); err != nil || node == "" || strings.Contains(node, "/") {
		return fmt.Errorf("no node %q in this lab", node)
	}
	return os.WriteFile(filepath.Join(dir, bootScript), []byte(script), 0o600)
}

// JoinWith puts another bootstrap token where a hub looks for one.
func (c *Client) JoinWith(node, token string) error { return c.replace(node, bootstrapFile, token) }

// replace replaces a file that a running hub reads.
func (c *Client) replace(node, name, content string) error {
	path := filepath.Join(c.dir, "machines", node, name)
	if _, err := os.Stat(path); err != nil || node == "" || strings.Contains(node, "/") {
		return fmt.Errorf("no node %q in this lab has run a hub that reads %s", node, name)
	}
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path) // a hub never reads half a file
}

// HubCacheDir returns the directory in which a node's hub keeps what it knows.
func (c *Client) HubCacheDir(node string) (string, error) { return c.hubDir(node, hubCache) }

// HubKeysDir returns the directory in which a node's hub keeps the certificates that it got.
func (c *Client) HubKeysDir(node string) (string, error) { return c.hubDir(node, hubKeys) }

func (c *Client) hubDir(node, name string) (string, error) {
	path := filepath.Join(c.dir, "machines", node, name)
	if _, err := os.Stat(path); err != nil || node == "" || strings.Contains(node, "/") {
		return "", fmt.Errorf("no node %q in this lab has run a hub that keeps %s", node, name)
	}
	return path, nil
}

// HubCache returns the paths of the files in HubCacheDir.
func (c *Client) HubCache(node string) ([]string, error) {
	dir, err := c.HubCacheDir(node)
	if err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(dir, "*"))
}

// AuditLog returns the path of the cloud's audit log.
func (c *Client) AuditLog() (string, error) {
	cfg, err := c.Config()
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, "machines", cloudMachine, auditLog)
	if cfg.Bare {
		path = filepath.Join(c.dir, "machines", cloudMachine, "var-log", filepath.Base(BareAudit), auditLog)
	}
	_, err = os.Stat(path)
	return path, err
}

// Logs returns the paths of our own programs' logs on all machines.
func (c *Client) Logs() ([]string, error) {
	var all []string
	for _, name := range []string{string(Hub), string(Coordinator), "coordinator-controller", "coordinator-approver"} {
		paths, err := filepath.Glob(filepath.Join(c.dir, "machines", "*", name+".log"))
		if err != nil {
			return nil, err
		}
		all = append(all, paths...)
	}
	for _, container := range containersOfOurs {
		paths, err := c.containerLogs("*", container)
		if err != nil {
			return nil, err
		}
		all = append(all, paths...)
	}
	return all, nil
}

// containersOfOurs are the containers of our own programs in an installed lab, by the programs' usual names.
var containersOfOurs = map[Component]string{
	Coordinator: edge.AppCoordinator, CoordinatorController: controllerProgram, Hub: "yurthub",
	CoordinatorApprover: "coordinator-approver",
}

// containerLogs returns the paths of the logs of a container in the system's Pods on a machine, sorted by the last
// write.
func (c *Client) containerLogs(machine, container string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(c.dir, "machines", machine, "var-log", "pods", edge.NamespaceSystem+"_*",
		container, "*.log"))
	if err != nil {
		return nil, err
	}
	written := map[string]time.Time{}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil { // one that kubelet has just removed counts as the oldest
			written[path] = info.ModTime()
		}
	}
	slices.SortStableFunc(paths, func(a, b string) int { return written[a].Compare(written[b]) })
	return paths, nil
}

// Log returns the path of the log of a component, on a node or in the cloud. In a container's log each line begins with a time,
// a stream and a mark.
func (c *Client) Log(machine, component string) (string, error) {
	dir := filepath.Join(c.dir, "machines", machine)
	if _, err := os.Stat(dir); err != nil || machine == "" || strings.Contains(machine, "/") {
		return "", fmt.Errorf("no machine %q in this lab: want a node, or cloud", machine)
	}
	path := filepath.Join(dir, component+".log")
	if _, err := os.Stat(path); err == nil && !strings.Contains(component, "/") {
		return path, nil
	}
	if container, ok := containersOfOurs[Component(component)]; ok {
		paths, err := c.containerLogs(machine, container)
		if err != nil {
			return "", err
		}
		if len(paths) > 0 {
			return paths[len(paths)-1], nil
		}
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return "", err
	}
	for i, l := range logs {
		logs[i] = strings.TrimSuffix(filepath.Base(l), ".log")
	}
	return "", fmt.Errorf("%s has no log of %q: want one of %s", machine, component, strings.Join(logs, ", "))
}
