package lab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/sim/pki"
)

// Names of certificates in the lab's keys, for Client.CloudConfigAs and Client.CoordinatorConfig.
const (
	// Operator is the certificate of the person on site.
	Operator = "operator"
	// ExpiredCertificate is a node's certificate that expired a minute ago.
	ExpiredCertificate = "expired"
	// UnknownCertificate is a node's certificate in name only: nobody knows the authority that signed it.
	UnknownCertificate = "unknown"
)

// keys are the lab's keys.
type keys struct {
	dir string
	// cloud is where the cloud serves.
	cloud string
}

// writePKI makes all keys and certificates of the lab, and the kubeconfigs that use them.
func (l *Lab) writePKI() error {
	ca, err := pki.Create(l.pki(), "ca", clock.RealClock{})
	if err != nil {
		return err
	}
	l.authority = ca.Hash()
	next, err := l.nextAuthority(ca)
	if err != nil {
		return err
	}
	k := keys{l.pki(), l.cfg.families().cloudAddress()}
	for _, r := range l.servers() {
		r.Server = true
		if _, err := ca.Issue(r); err != nil {
			return err
		}
	}
	for _, r := range l.clients() {
		signer := ca
		if slices.Contains(cloudClients, r.Name) {
			signer = next
		}
		if err := k.client(signer, r); err != nil {
			return err
		}
	}
	stranger, err := pki.Create(filepath.Join(l.pki(), "stranger"), "ca", clock.RealClock{})
	if err != nil {
		return err
	}
	if err := k.client(stranger, nodeUser(UnknownCertificate, l.all[0].name())); err != nil {
		return err
	}
	if _, err := pki.CreateServiceAccountKeys(l.pki(), "sa"); err != nil {
		return err
	}
	return k.adminToken()
}

func (l *Lab) clients() []pki.Request {
	all := []pki.Request{
		{Name: "admin", CommonName: "admin", Organizations: []string{"system:masters"}},
		{Name: "kube-controller-manager", CommonName: "system:kube-controller-manager"},
		{Name: "kube-scheduler", CommonName: "system:kube-scheduler"},
		{Name: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"}},
		nodeUser(ExpiredCertificate, l.all[0].name()).Expired(time.Now()),
	}
	if !l.cfg.Installed { // otherwise coordinator-controller has its ServiceAccount, and makes the operators' kubeconfigs
		all = append(all,
			pki.Request{Name: "coordinator-controller", CommonName: "system:serviceaccount:kube-system:coordinator-controller"},
			pki.Request{Name: "coordinator-approver", CommonName: "system:serviceaccount:kube-system:coordinator-approver"},
			pki.Request{Name: Operator, CommonName: "on-site", Organizations: []string{edge.GroupOperators}})
	}
	for _, p := range l.nodePlaces() {
		all = append(all, nodeUser(string(p.name()), p.name()))
	}
	return all
}

func nodeUser(name string, node edge.NodeName) pki.Request {
	return pki.Request{Name: name, CommonName: node.User(), Organizations: []string{edge.GroupNodes}}
}

// apiServerKeys is the name of the API server's certificate.
const apiServerKeys = "kube-apiserver"

func (l *Lab) apiServer() pki.Request {
	all := l.cfg.families()
	return pki.Request{
		Name: apiServerKeys, DNSNames: []string{"kubernetes.default.svc", "kubernetes"}, Server: true,
		IPs: slices.Concat(asIPs(each(all, family.cloudWAN)), []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
			asIPs(each(all, func(f family) netip.Addr { return f.services.Addr().Next() }))),
	}
}

func (l *Lab) servers() []pki.Request {
	all := []pki.Request{l.apiServer()}
	for _, p := range l.nodePlaces() {
		name, address := string(p.name()), asIPs(p.internal(l.cfg))
		all = append(all, pki.Request{
			Name: name + "-kubelet", CommonName: name, IPs: address, DNSNames: []string{name},
		})
		if l.node(p).runsCoordinator() {
			all = append(all, pki.Request{Name: name + "-coordinator", CommonName: "yurt-coordinator", IPs: address})
		}
	}
	return all
}

// client issues a client's certificate and writes the kubeconfig for the cloud that uses it.
func (k keys) client(signer *pki.Authority, r pki.Request) error {
	r.Client = true
	pair, err := signer.Issue(r)
	if err != nil {
		return err
	}
	// Whoever signed the client's certificate, the lab signed the server's.
	return pki.WriteKubeconfig(filepath.Join(k.dir, r.Name+".kubeconfig"), pki.Access{
		Server: k.cloud, Authority: filepath.Join(k.dir, knownAuthorities), Client: pair, Embed: true,
	})
}

// userProxy and userDNS are the cloud's users for kube-proxy and CoreDNS. Kubernetes itself gives the first its rights.
const userProxy, userDNS = "system:kube-proxy", "yurtlab:coredns"

// tokenOf returns the token of one of the lab's programs.
func tokenOf(user string) string { return "lab-" + user }

// adminToken writes the tokens for the cloud: the administrator's, and those of the programs that send one.
func (k keys) adminToken() error {
	tokens := fmt.Sprintf("%s,admin,admin,system:masters\n", AdminToken)
	for user, name := range map[string]string{proxyUser: userProxy, dnsUser: userDNS} {
		tokens += fmt.Sprintf("%s,%s,%s\n", tokenOf(user), name, name)
	}
	return os.WriteFile(filepath.Join(k.dir, "tokens.csv"), []byte(tokens), 0o600)
}

// handOut copies the files of these names and the authority's certificate to a machine's disk. It copies nothing else, because
// a machine must never see another machine's keys.
func (l *Lab) handOut(disk string, names ...string) error {
	for _, name := range append(names, "ca.crt") {
		content, err := os.ReadFile(filepath.Join(l.pki(), name))
		if err != nil {
			return err
		}
		to := filepath.Join(disk, keysDir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// keysDir is the directory of a machine's keys on its disk.
const keysDir = "pki"

// both returns the two files of a certificate.
func both(name string) []string { return []string{name + ".crt", name + ".key"} }
