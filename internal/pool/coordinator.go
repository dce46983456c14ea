package pool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/access"
	"yurtcoordinator/internal/pool/apiserver"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/pool/limits"
	"yurtcoordinator/internal/pool/shareserver"
	"yurtcoordinator/internal/pool/state"
	"yurtcoordinator/internal/pool/succession"
)

// placesOfState is how many of its caller's places (package limits) a stream of the pool's state takes. It is large because the
// lines of a stream wait in memory until they are read, some 200 bytes for each Pod. A hub has one such stream.
const placesOfState = 10

// addressesOfNode bounds the addresses of one Node at which a coordinator looks for a younger one.
const addressesOfNode = 4

var errNotSetUp = errors.New("the pool's Leases are not in place yet")

// Server is what a coordinator takes from the API server that it makes one of. apiserver.Assembly is one.
type Server interface {
	// Client is of the server itself, and may do everything.
	Client() kubernetes.Interface
	// Informers are the server's own copies of objects.
	Informers() informers.SharedInformerFactory
	// Authorizer has Kubernetes' own: the Node authorizer, and what lets this process itself do everything.
	Authorizer() authorizer.Authorizer
	// Storage says where the server keeps each resource.
	Storage() generic.RESTOptionsGetter
	// VerifyOptions return how to verify client certificates by the present CAs.
	VerifyOptions() (x509.VerifyOptions, bool)
}

// Around is what a Coordinator is built around. All fields are required.
type Around struct {
	Server Server
	// Write and Read are those of the storage below the server.
	Write shareserver.Writer
	Read  shareserver.Reader
	// Port is where the pool's coordinators serve on the LAN, and Dial connects there.
	Port uint16
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Ready is called once the pool's Leases are in place. It fails only when ctx has ended.
	Ready func(ctx context.Context) error
	Log   klog.Logger
}

// Coordinator turns an API server into a pool's coordinator. It decides who may do what, takes what hubs push, tells hubs what it
// knows of nodes, and ends when there is a younger coordinator. It does not listen, and works with any API server and storage.
type Coordinator struct {
	// Parts are for the server, but for how it listens and what it logs and installs.
	Parts apiserver.Parts

	config    Config
	around    Around
	client    kubernetes.Interface
	installed atomic.Bool // the pool's Leases exist

	members  *access.Members
	denied   *access.Denied
	elected  *access.Election
	present  *state.Server
	mirrored *shareserver.Mirror
	own      *shareserver.NodeObjects
}

// NewCoordinator returns a Coordinator that serves as config says. It reads the lists of members and denied users once.
func NewCoordinator(config Config, around Around) (*Coordinator, error) {
	config = config.completed()
	clock, client := config.Ends.Clock, around.Server.Client()
	c := &Coordinator{
		config: config, around: around, client: client,
		denied:  access.NewDenied(config.DeniedUsersFile),
		elected: access.NewElection(client.CoordinationV1(), clock), present: state.New(clock),
	}
	c.members = access.NewMembers(config.PoolNodesFile, c.brought)
	_, _ = c.denied.Read() // AddTo's members report their errors
	verify := around.Server.VerifyOptions
	c.Parts = apiserver.Parts{
		Known: access.Known(verify, clock), Door: access.AtTheDoor(verify, config.PoolCAFile, clock),
		Unrecognized: access.Unrecognized, Chain: c.chain,
		ConnContext: func(ctx context.Context, of net.Conn) context.Context {
			return conns.WithNewcomer(access.WithCaller(ctx), of)
		},
		MayLast: func(r *http.Request) bool {
			return shareserver.MayLast(r) || state.MayLast(r)
		},
		Ready: healthz.NamedCheck("pool-setup", func(*http.Request) error {
			if !c.installed.Load() {
				return errNotSetUp
			}
			return nil
		}),
	}
	if err := c.decide(); err != nil {
		return nil, err
	}
	if err := c.handle(); err != nil {
		return nil, err
	}
	_, _ = c.members.Read()
	return c, nil
}

// brought is what the leader says about the pool's nodes: the status of its NodePool, as it comes from the cloud.
func (c *Coordinator) brought() (w access.Word) {
	pools, in := c.mirrored.FromLeader(edge.OwnNodePools)
	for _, o := range pools {
		var pool struct {
			Status struct{ Nodes []string }
		}
		if json.Unmarshal(o.Raw, &pool) == nil {
			w = access.Word{ID: fmt.Sprintf("%s/%d", in, o.Revision), Nodes: pool.Status.Nodes}
		}
	}
	return w
}

// decide makes the deciders of who may do what.
func (c *Coordinator) decide() (err error) {
	p, server, rights := &c.Parts, c.around.Server, access.NewRights(c.config.OwnSecrets)
	p.Rules = rights
	p.Authorizer, err = access.NewAuthorizer(c.denied, c.members, access.ReadPods(c.client.CoreV1()), server.Authorizer(), rights)
	if err != nil {
		return err
	}
	p.Admission, err = access.NewAdmission(server.Informers(), p.Authorizer, c.config.NodeName, c.elected, c.present)
	return err
}

// handle makes what hubs bring and hear, beside Kubernetes' own API.
func (c *Coordinator) handle() error {
	builtIns, err := shareserver.StoredOfPool(c.around.Server.Storage())
	if err != nil {
		return err
	}
	kinds, err := shareserver.StoredOfNodes(c.around.Server.Storage(), c.config.OwnSecrets)
	if err != nil {
		return err
	}
	clock := c.config.Ends.Clock
	c.mirrored = shareserver.NewMirror(shareserver.MirrorConfig{
		Quota: c.config.MirrorQuotaBytes, Clock: clock, Leads: c.elected.Leads, Fills: c.elected.Fills,
		Write: c.around.Write, BuiltIns: builtIns, Current: c.elected.Declared().Current, Stalled: c.config.stalledPush,
	})
	c.own = shareserver.NewNodeObjects(shareserver.NodeObjectsConfig{
		Quota: c.config.OwnQuotaBytes, Clock: clock, Write: c.around.Write, Read: c.around.Read, Kinds: kinds,
		Log: c.around.Log, Member: c.members.Has, Present: c.present, Stalled: c.config.stalledPush,
	})
	if err := c.present.Follow(c.around.Server.Informers().Coordination().V1().Leases().Informer()); err != nil {
		return err
	}
	c.Parts.BeforeShutdown = func() error { // their watches and streams would delay the end
		return errors.Join(c.mirrored.Close(), c.present.Close())
	}
	c.Parts.Handlers = map[string]http.Handler{
		edge.PathMirror: c.mirrored, edge.PathOwn: c.own, edge.PathState: c.present,
		"/openapi/": http.HandlerFunc(access.NoOpenAPI),
	}
	return nil
}

// chain returns all handlers that a request passes:
//
//	the connection   wiring.gate bounds the connections of each client and of all, and those whose client has made no allowed
//	                 request yet; Parts.Known checks that a client CA has signed the client's certificate
//	limits.TurnAway  closes the connection after a 401 or 403, if its client has made no allowed request
//	exchange.Bound   lets no body be read once its request has been answered
//	access.Unlinked  takes a link's secret out of the address, before anything logs it
//	access.TellWhy   puts into a 401 what to do
//	kubernetes       kube-apiserver's own: Parts.Door says who calls, AuditLog logs it, Authorizer says whether the caller may
//	limits           bounds what each caller has under way, and its heartbeats
//	access.FromHere  refuses requests that other sites' pages make through a browser
//	Mirror.Gate      refuses programs a resource that has not come completely
//	api              Parts.Handlers by their paths: what hubs push and hear, and the page; otherwise Kubernetes' API, whose
//	                 writes Admission decides about
func (c *Coordinator) chain(api http.Handler, kubernetes func(http.Handler) http.Handler, lasts apiserver.Lasts) http.Handler {
	h := access.FromHere(c.mirrored.Gate(api))
	places := func(r *http.Request, info *request.RequestInfo) int {
		switch {
		case !lasts(r, info):
			return 0
		case r.URL.Path == edge.PathState:
			return placesOfState
		}
		return 1
	}
	h = limits.New(places, access.Expected, c.config.Ends.Clock, c.around.Log).Handler(h)
	return limits.TurnAway(exchange.Bound(access.Unlinked(access.TellWhy(kubernetes(h)))))
}

// AddTo adds what runs while the server serves, by a run.Group's Add.
func (c *Coordinator) AddTo(add func(name string, run func(context.Context) error)) {
	add("own objects", c.own.Run)
	add("presence", func(ctx context.Context) error { return c.present.Run(ctx, c.members.Has) })
	add("pool's nodes", func(ctx context.Context) error { return c.members.Run(ctx, c.own.Sweep) })
	add("denied users", c.denied.Run)
	add("namespaces", func(ctx context.Context) error {
		return c.own.KeepNamespaces(ctx, c.client.CoreV1().Namespaces())
	})
	add("succession", c.successor().Run)
	add("setup", func(ctx context.Context) error {
		if access.Furnish(ctx, c.client) == nil {
			c.installed.Store(true)
			_ = c.around.Ready(ctx) // fails only when ctx has ended
		}
		<-ctx.Done()
		return nil
	})
}

// successor returns what ends this coordinator when it has a successor.
func (c *Coordinator) successor() *succession.Succession {
	return succession.New(succession.Config{
		CertFile: c.config.TLSCertFile, CAFile: c.config.PoolCAFile, AddressesFile: c.config.PoolAddressesFile,
		Port: c.around.Port, Nodes: c.addresses,
		Certificate: func() (*tls.Certificate, error) {
			if c.config.KubeletClientCertificate == "" {
				return &tls.Certificate{}, nil
			}
			pair, err := tls.LoadX509KeyPair(c.config.KubeletClientCertificate, c.config.KubeletClientKey)
			return &pair, err
		},
		Led: c.elected.Led, Dial: c.around.Dial, Ends: c.config.Ends,
	})
}

// addresses returns the addresses of the pool's nodes, from the Nodes that hubs push. Unlike the lists that come from the cloud,
// these include nodes that joined while this coordinator's own node was cut off.
func (c *Coordinator) addresses(ctx context.Context) (all []netip.Addr, err error) {
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("read the pool's Nodes: %w", err)
	}
	for i := range nodes.Items {
		said := lanAddresses(&nodes.Items[i])
		all = append(all, said[:min(len(said), addressesOfNode)]...)
	}
	return all, nil
}
