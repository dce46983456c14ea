package bench

import (
	"slices"
	"time"
)

// Spec tells Load the node's name and its servers' addresses. It holds private keys.
type Spec struct {
	Node string `json:"node"`
	// AsNode and AsAdmin lead straight to the cloud's API server, with the node's certificate and an administrator's.
	AsNode  Access `json:"asNode"`
	AsAdmin Access `json:"asAdmin"`
	// AsKubelet leads to the node's hub, with kubelet's token. HubHealth is the address of its health, http://HOST:PORT.
	AsKubelet Access `json:"asKubelet"`
	HubHealth string `json:"hubHealth"`
	// Proxy is the file of Caddy's program, which Load runs beside the hub.
	Proxy string `json:"proxy"`
	// Profile also takes profiles of the hub.
	Profile bool `json:"profile,omitempty"`
	// Leader is the pool's leader. If it is set, Load measures only Shared. Nodes are the pool's nodes.
	Leader string   `json:"leader,omitempty"`
	Nodes  []string `json:"nodes,omitempty"`

	// asProxy leads to the plain proxy once that runs.
	asProxy Access
}

// Access is an API server, and a client certificate in PEM or a token.
type Access struct {
	Server string `json:"server"`
	CA     []byte `json:"ca"`
	Cert   []byte `json:"cert,omitempty"`
	Key    []byte `json:"key,omitempty"`
	Token  string `json:"token,omitempty"`
}

// Way is how a node's program asks the cloud.
type Way string

// Ways.
const (
	// HTTP2 and HTTP1 lead straight to the API server, over TLS.
	HTTP2 Way = "HTTP/2"
	HTTP1 Way = "HTTP/1.1"
	// Hub leads through the hub: HTTP/1.1 over TLS on the loopback interface, with kubelet's token.
	Hub Way = "hub"
	// Proxy leads through a plain proxy, the floor. It is as for the hub, but any client acts as the node.
	Proxy Way = "proxy"
)

// Encoding is how objects travel.
type Encoding string

// Encodings, by the names that figures use.
const (
	JSON     Encoding = "json"
	Protobuf Encoding = "protobuf"
)

func (e Encoding) mediaType() string {
	if e == Protobuf {
		return "application/vnd.kubernetes.protobuf"
	}
	return "application/json"
}

// Round is what one way did in one round.
type Round struct {
	Requests int           `json:"requests"`
	Bytes    int64         `json:"bytes"` // of bodies
	Elapsed  time.Duration `json:"elapsed"`
	Latency  Quantiles     `json:"latency"`
	// Hub, Proxy, Server and Client are the processor time that the hub, the plain proxy, the API server and the load took.
	// Only GetMany has them.
	Hub    time.Duration `json:"hub,omitempty"`
	Proxy  time.Duration `json:"proxy,omitempty"`
	Server time.Duration `json:"server,omitempty"`
	Client time.Duration `json:"client,omitempty"`
}

func (r Round) perSecond() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }
func (r Round) p50() float64       { return milliseconds(r.Latency.P50) }
func (r Round) p99() float64       { return milliseconds(r.Latency.P99) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Trial is the same load over several ways, in rounds: Trial[way][i] all belong to round i.
type Trial map[Way][]Round

// Quantiles are two quantiles of a latency.
type Quantiles struct {
	P50 time.Duration `json:"p50"`
	P99 time.Duration `json:"p99"`
}

// quantiles sorts all and picks from it. For nothing it returns the zero Quantiles.
func quantiles(all []time.Duration) Quantiles {
	if len(all) == 0 {
		return Quantiles{}
	}
	slices.Sort(all)
	return Quantiles{P50: all[(len(all)-1)/2], P99: all[(len(all)-1)*99/100]}
}

// Memory is a process's memory in bytes. RSS is its resident part; Anonymous is the share of RSS that maps no file.
type Memory struct {
	RSS       int64 `json:"rss"`
	Anonymous int64 `json:"anonymous"`
}

// Measured is Load's result.
type Measured struct {
	// GetOne and GetMany read the node's own Node repeatedly, on 1 connection and on manyConnections.
	GetOne  map[Encoding]Trial `json:"getOne"`
	GetMany map[Encoding]Trial `json:"getMany"`
	// Heartbeat renews the node's own Lease.
	Heartbeat       Trial  `json:"heartbeat"`
	HubIdle         Memory `json:"hubIdle"`
	HubLoaded       Memory `json:"hubLoaded"`
	CoordinatorIdle Memory `json:"coordinatorIdle"`
	Shared          Shared `json:"shared"`
	// Profiles of the hub, by file name.
	Profiles map[string][]byte `json:"profiles,omitempty"`
}
