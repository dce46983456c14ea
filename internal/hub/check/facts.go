package check

import (
	"io/fs"
	"time"

	"yurtcoordinator/internal/hub/bypass"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/identity"
)

// Facts are what was found.
type Facts struct {
	Settings Config
	// Now is the time by the node's clock. Root means that the check runs as root, so it sees all files, all processes and the
	// hub's status.
	Now  time.Time
	Root bool

	Hub   Hub
	Ports []Port
	// Keys are the node's certificates; nil means that they could not be looked at.
	Keys    *Keys
	Cloud   []Server
	Dirs    []Dir
	Kubelet Kubelet
	// Past are programs that have connections to API servers; those to the hub are among them.
	Past []bypass.Program

	// Unanswered names the probes that did not end in time.
	Unanswered []string
}

// Hub is what answers at the health port.
type Hub struct {
	// Trouble is why no hub answers; empty means that one does.
	Trouble string
	// Nobody: nothing listens there.
	Nobody bool
	Status front.HubStatus
}

func (h Hub) answers() bool { return !h.Nobody && h.Trouble == "" }

// Port is a port that the hub needs.
type Port struct {
	Flag    string
	Address string
	// Held says that a program listens at the port. Trouble is why no program could.
	Held    bool
	Trouble string
}

// Keys are the node's certificates, and what verifies the cloud.
type Keys struct {
	// Refused is why a hub would not start with these settings; empty means that it would.
	Refused string
	// Status is what the running hub says, or what the files say; see identity.Held.
	identity.Status
	// KeyFile is the file with the node's private key. Mode says who may read it; zero means that there is no such file.
	KeyFile string
	Mode    fs.FileMode
	// RootsFrom says where the cloud's authorities are kept.
	RootsFrom string
}

// undiscovered says that the hub will ask the cloud for its authority when it starts.
func (k *Keys) undiscovered() bool {
	return k != nil && k.Authorities != nil && len(k.Authorities.Trusted) == 0 && k.Authorities.Problem == ""
}

// Server is how far the node gets with an API server of the cloud.
type Server struct {
	Address string
	// Proxy is the proxy on the way there, without its password; empty means that there is none.
	Proxy string
	// Why says what keeps the node from using the server, and Do what to do about it; empty means that nothing does.
	Why, Do string
	// Unknown says that the server answers, and there is no authority to verify it with.
	Unknown bool
	// Date is the time by the server's clock, At the same moment by the node's clock; both are zero if the server did not say.
	Date, At time.Time
	// Verified says that the server's certificate is good, so its answers can be trusted.
	Verified bool
	// Node is what the cloud says about the node's Node object.
	Node Node
}

// Node is a Node object.
type Node struct {
	// Asked says that the server gave an answer. Found says that it has the object.
	Asked, Found bool
	Pool         string
	Ready        string // True, False, Unknown; empty: not said
}

// Dir is a directory that the hub needs.
type Dir struct {
	Flag, Path string
	// Trouble is why it can't be used; empty means that it can. Free is the space left in bytes.
	Trouble string
	Free    int64
}

// Kubelet is the node's kubelet.
type Kubelet struct {
	// Running: its process was found.
	Running bool
	// Config is the kubeconfig on its command line, Trouble what is wrong with that, and Server the address in it.
	Config, Trouble, Server string
	// Rotates says that kubelet renews client certificates by itself, and then ignores the token in its kubeconfig.
	Rotates bool
	// Health is what kubelet itself reports to be wrong; empty means nothing, or no report.
	Health string
}
