package cloudscale

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/sim/pki"
	"yurtcoordinator/lab/bench"
)

const (
	// controllerUser is the user to whom the chart grants its rights.
	controllerUser = "system:serviceaccount:kube-system:coordinator-controller"
	// approverUser is the user to whom the chart grants the rights of the approver of certificates.
	approverUser = "system:serviceaccount:kube-system:coordinator-approver"

	serveTimeout = 2 * time.Minute

	// etcdQuota is etcd's quota: a run writes some GB of Nodes and Leases, and compaction comes every five minutes.
	etcdQuota = 8 << 30
)

// cluster is a control plane on the loopback interface.
type cluster struct {
	cfg     Config
	dir     string
	ca      *pki.Authority
	server  string
	audit   *auditLog
	started []*process // in the order of their start
	etcd    *process
	api     *process
	token   string // opens /metrics of coordinator-controller
}

// startCluster returns when kube-apiserver serves.
func startCluster(ctx context.Context, cfg Config, dir string) (_ *cluster, err error) {
	c := &cluster{cfg: cfg, dir: dir, audit: &auditLog{path: filepath.Join(dir, "audit.log")}}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.ca, err = pki.Create(filepath.Join(dir, "pki"), "ca", clock.RealClock{}); err != nil {
		return nil, err
	}
	ports, err := bench.FreePorts(3)
	if err != nil {
		return nil, err
	}
	if err := c.startEtcd(ports[0], ports[1]); err != nil {
		return nil, err
	}
	if err := c.startAPIServer(ports[0], ports[2]); err != nil {
		return nil, err
	}
	admin, err := c.as("admin", "admin", "system:masters")
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(admin)
	if err != nil {
		return nil, err
	}
	return c, eventually(ctx, "kube-apiserver", serveTimeout, func(ctx context.Context) error {
		if err := answers(ctx, client, c.server+"/readyz"); err != nil {
			return fmt.Errorf("%w; its last words: %s", err, lastWords(c.api.log))
		}
		return nil
	})
}

func (c *cluster) start(name string, argv ...string) (*process, error) {
	p, err := startProcess(c.dir, name, argv...)
	if err == nil {
		c.started = append(c.started, p)
	}
	return p, err
}

func (c *cluster) startEtcd(client, peer int) (err error) {
	serve := fmt.Sprintf("http://127.0.0.1:%d", client)
	c.etcd, err = c.start("etcd", c.cfg.Etcd, "--data-dir="+filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync",
		"--log-level=error", fmt.Sprintf("--quota-backend-bytes=%d", etcdQuota),
		"--listen-client-urls="+serve, "--advertise-client-urls="+serve,
		fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", peer))
	return err
}

func (c *cluster) startAPIServer(etcd, port int) error {
	keys := filepath.Join(c.dir, "pki")
	c.server = fmt.Sprintf("https://127.0.0.1:%d", port)
	serving, err := c.ca.Issue(pki.Request{
		Name: "kube-apiserver", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	})
	if err != nil {
		return err
	}
	accounts, err := pki.CreateServiceAccountKeys(keys, "sa")
	if err != nil {
		return err
	}
	policy := filepath.Join(c.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	c.token = rand.Text()
	tokens := filepath.Join(c.dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(c.token+",scrapes,scrapes,system:masters\n"), 0o600); err != nil {
		return err
	}
	c.api, err = c.start("kube-apiserver", c.cfg.KubeAPIServer,
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", etcd), "--cert-dir="+filepath.Join(c.dir, "certs"),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
		"--tls-cert-file="+serving.Cert, "--tls-private-key-file="+serving.Key, "--client-ca-file="+c.ca.Files().Cert,
		"--service-account-key-file="+accounts.Public, "--service-account-signing-key-file="+accounts.Private,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--token-auth-file="+tokens, "--audit-policy-file="+policy, "--audit-log-path="+c.audit.path, "--audit-log-mode=blocking",
		"--audit-log-maxsize=4096")
	return err
}

// startManager starts kube-controller-manager with the controllers that make the Pods of the coordinators' Deployments, and
// with the signer.
func (c *cluster) startManager() error {
	kubeconfig, err := c.kubeconfig("kube-controller-manager", "system:kube-controller-manager")
	if err != nil {
		return err
	}
	_, err = c.start("kube-controller-manager", c.cfg.KubeControllerManager, "--kubeconfig="+kubeconfig,
		"--controllers=deployment-controller,replicaset-controller,serviceaccount-controller,"+
			"certificatesigningrequest-signing-controller",
		"--leader-elect=false", "--secure-port=0", "--use-service-account-credentials",
		"--kube-api-qps=1000", "--kube-api-burst=2000",
		"--cluster-signing-cert-file="+c.ca.Files().Cert, "--cluster-signing-key-file="+c.ca.Files().Key)
	return err
}

// startApprover starts the approver of the certificates that coordinator-controller requests. It is a separate process, as in
// the chart.
func (c *cluster) startApprover() error {
	kubeconfig, err := c.kubeconfig("coordinator-approver", approverUser, groupsOf(approverUser)...)
	if err != nil {
		return err
	}
	ports, err := bench.FreePorts(2)
	if err != nil {
		return err
	}
	_, err = c.start("coordinator-approver", c.cfg.CoordinatorController, "--kubeconfig="+kubeconfig, "--approver=alone",
		fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", ports[0]),
		fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", ports[1]))
	return err
}

// stop ends all started programs, the last one first.
func (c *cluster) stop() {
	for i := len(c.started) - 1; i >= 0; i-- {
		c.started[i].stop()
	}
}

// died returns why a needed program has ended; nil while all run.
func (c *cluster) died() error {
	for _, p := range c.started {
		if err := p.died(); err != nil {
			return err
		}
	}
	return nil
}

// as returns access to the API server with a new certificate.
func (c *cluster) as(name, user string, groups ...string) (*rest.Config, error) {
	pair, err := c.ca.Issue(pki.Request{Name: name, CommonName: user, Organizations: groups, Client: true})
	if err != nil {
		return nil, err
	}
	cfg := &rest.Config{Host: c.server, UserAgent: "cloud-scale", QPS: -1, Timeout: time.Minute}
	for path, into := range map[string]*[]byte{
		c.ca.Files().Cert: &cfg.CAData, pair.Cert: &cfg.CertData, pair.Key: &cfg.KeyData,
	} {
		if *into, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	return cfg, nil
}

// kubeconfig writes a kubeconfig with a new certificate, and returns its path.
func (c *cluster) kubeconfig(name, user string, groups ...string) (string, error) {
	pair, err := c.ca.Issue(pki.Request{Name: name, CommonName: user, Organizations: groups, Client: true})
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, name+".kubeconfig")
	return path, pki.WriteKubeconfig(path, pki.Access{Server: c.server, Authority: c.ca.Files().Cert, Client: pair})
}

// answers reports whether a GET returns 200.
func answers(ctx context.Context, client *http.Client, address string) error {
	_, err := bench.Get(ctx, client, address)
	return err
}

// groupsOf returns the groups of a ServiceAccount.
func groupsOf(user string) []string {
	parts := strings.Split(user, ":")
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + parts[2]}
}

var errNotYet = errors.New("not yet")
