package approve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apiServer is what is said of its addresses and names.
const apiServer = "the API server"

// Reserved is where the API server is, and where Services are: no node serves there. Make it with newReserved.
type Reserved struct {
	addresses map[netip.Addr]string
	names     map[string]string
}

func newReserved() *Reserved {
	return &Reserved{addresses: map[netip.Addr]string{}, names: map[string]string{
		"kubernetes": apiServer, "kubernetes.default": apiServer, "localhost": "every machine",
	}}
}

// addAddress reserves an address; anything else is passed over.
func (r *Reserved) addAddress(text, whose string) {
	if ip, err := netip.ParseAddr(text); err == nil {
		r.addresses[ip.Unmap()] = whose
	}
}

// addHost reserves a host, by whichever of its names a resolver with search domains may find it.
func (r *Reserved) addHost(host, whose string) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(host); err == nil {
		r.addAddress(host, whose)
		return
	}
	for at, c := range host {
		if c == '.' && at > 0 {
			r.names[host[:at]] = whose
		}
	}
	if host != "" {
		r.names[host] = whose
	}
}

func (r *Reserved) addService(s *corev1.Service) {
	whose := "Service " + s.Namespace + "/" + s.Name
	if s.Namespace == metav1.NamespaceDefault && s.Name == "kubernetes" {
		whose = apiServer
	}
	for _, name := range []string{s.Name, s.Name + "." + s.Namespace} {
		if r.names[name] == "" {
			r.names[name] = whose
		}
	}
	for _, ip := range slices.Concat([]string{s.Spec.ClusterIP, s.Spec.LoadBalancerIP}, s.Spec.ClusterIPs, s.Spec.ExternalIPs) {
		r.addAddress(ip, whose)
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		r.addAddress(in.IP, whose)
		if in.Hostname != "" {
			r.names[strings.ToLower(in.Hostname)] = whose
		}
	}
}

// address returns whose an address is; empty means nobody's.
func (r *Reserved) address(ip netip.Addr) string {
	if ip.IsUnspecified() || ip.IsLoopback() || ip.IsMulticast() {
		return "every machine"
	}
	return r.addresses[ip]
}

// name returns whose a name is; empty means nobody's. A Service's is also with what a cluster's domain puts behind .svc.
func (r *Reserved) name(name string) string {
	if whose := r.names[name]; whose != "" {
		return whose
	}
	parts := strings.SplitN(name, ".", 4)
	if len(parts) > 2 && parts[2] == "svc" {
		if whose := r.names[parts[0]+"."+parts[1]]; whose != "" {
			return whose
		}
		return "Services"
	}
	return ""
}

const (
	// reservedFor is how long what was found out about the API server and Services is taken for true.
	reservedFor = 30 * time.Second
	// servicesPage is how many Services are read at a time.
	servicesPage = 500
	// resolveTimeout bounds one look-up of a name.
	resolveTimeout = 5 * time.Second
)

// Resolver finds the addresses of a name; net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// places knows what is reserved, as of some seconds ago.
type places struct {
	reader   client.Reader
	server   string // of the kubeconfig
	resolver Resolver
	clock    clock.PassiveClock

	mu    sync.Mutex
	at    time.Time
	known *Reserved
}

// reserved returns what is reserved. It asks at most every reservedFor, and fails if anything of it cannot be found out.
func (p *places) reserved(ctx context.Context) (*Reserved, error) {
	p.mu.Lock()
	known, age := p.known, p.clock.Since(p.at)
	p.mu.Unlock()
	if known != nil && age < reservedFor {
		return known, nil
	}
	began, found := p.clock.Now(), newReserved()
	for _, find := range []func(context.Context, *Reserved) error{p.endpoints, p.services, p.hosts} {
		if err := find(ctx, found); err != nil {
			return nil, fmt.Errorf("where the API server is: %w", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.known = began, found
	return found, nil
}

// endpoints finds the addresses behind default/kubernetes.
func (p *places) endpoints(ctx context.Context, r *Reserved) error {
	all := &discoveryv1.EndpointSliceList{}
	err := p.reader.List(ctx, all, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"})
	if err != nil {
		return err
	}
	for _, slice := range all.Items {
		for _, e := range slice.Endpoints {
			for _, address := range e.Addresses {
				r.addHost(address, apiServer)
			}
		}
	}
	return nil
}

func (p *places) services(ctx context.Context, r *Reserved) error {
	for page := ""; ; {
		some := &corev1.ServiceList{}
		if err := p.reader.List(ctx, some, client.Limit(servicesPage), client.Continue(page)); err != nil {
			return err
		}
		for i := range some.Items {
			r.addService(&some.Items[i])
		}
		if page = some.Continue; page == "" {
			break
		}
	}
	if r.names["kubernetes.default"] != apiServer || len(r.addresses) == 0 {
		return errors.New("there is no Service default/kubernetes")
	}
	return nil
}

// hosts finds by which names and addresses this program, and those that join the cluster, know the API server.
func (p *places) hosts(ctx context.Context, r *Reserved) error {
	servers := []string{p.server}
	info := &corev1.ConfigMap{}
	err := p.reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespacePublic, Name: "cluster-info"}, info)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil {
		config, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
		if err != nil {
			return fmt.Errorf("ConfigMap kube-public/cluster-info: %w", err)
		}
		for _, c := range config.Clusters {
			servers = append(servers, c.Server)
		}
	}
	for _, server := range servers {
		host := hostOf(server)
		r.addHost(host, apiServer)
		if _, err := netip.ParseAddr(host); err == nil || host == "" {
			continue
		}
		if err := p.resolve(ctx, r, host); err != nil {
			return err
		}
	}
	return nil
}

// resolve reserves the addresses of a name. One that nobody knows here has none: it may be known elsewhere only.
func (p *places) resolve(ctx context.Context, r *Reserved, host string) error {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	found, err := p.resolver.LookupNetIP(ctx, "ip", host)
	if unknown := (*net.DNSError)(nil); errors.As(err, &unknown) && unknown.IsNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	for _, ip := range found {
		r.addresses[ip.Unmap()] = apiServer
	}
	return nil
}

// hostOf returns the host of a kubeconfig's server, which may be a URL or a host with a port.
func hostOf(server string) string {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
