package check

import (
	"io/fs"
	"time"

	"yurtcoordinator/internal/hub/bypass"
	"yurtcoordinator/internal/hub/health"
)

// Facts are what was found.
type Facts struct {
	Settings Config
	// Now is the time by the node's clock.
	Now time.Time

	Hub   Hub
	Ports []Port
	Keys  Keys
	Cloud []Server
	// Dirs are the directories that the hub needs: of its cache, of its certificates.
	Dirs    []Dir
	Kubelet Kubelet

	// Past are programs that have connections to API servers; those to the hub are among them. SeesAll: none can hide.
	Past    []bypass.Program
	SeesAll bool

	// Unanswered names the probes that did not end in time.
	Unanswered []string
}

// Hub is what answers at the health port.
type Hub struct {
	// Trouble is why no hub answers; empty: one does.
	Trouble string
	// Nobody: nothing listens there.
	Nobody bool
	Status health.Status
}

func (h Hub) answers() bool { return !h.Nobody && h.Trouble == "" }

// Port is a port that the hub needs.
type Port struct {
	Flag    string
	Address string
	// Held: somebody listens there. Trouble is why nobody could.
	Held    bool
	Trouble string
}

// File is what can be said about a file without its content.
type File struct {
	Path    string
	Missing bool
	// Trouble is why it cannot be read, or what is wrong with its content; empty: nothing.
	Trouble string
	Mode    fs.FileMode
}

func (f File) fine() bool { return !f.Missing && f.Trouble == "" }

// Keys are the node's certificate and the means to get one.
type Keys struct {
	Cert, Key File
	Pair      Pair
	// CA verifies the cloud: a file of the hub's, or a kubeconfig that has it. CAExpiry is when its longest-lived certificate
	// expires.
	CA       File
	CAExpiry time.Time
	// Kubelet is the kubelet's certificate, Bootstrap the file of the bootstrap token; with empty paths there is none.
	Kubelet     File
	KubeletPair Pair
	Bootstrap   File
}

// Pair is a certificate with its key.
type Pair struct {
	// Present: certificate and key were read, and belong together.
	Present       bool
	CommonName    string
	Organizations []string
	NotBefore     time.Time
	NotAfter      time.Time
	ForClients    bool
}

// Server is how far the node gets with an API server of the cloud.
type Server struct {
	Address string
	// Proxy is the proxy on the way there, without its password; empty: there is none.
	Proxy string
	// Why says what keeps the node from using it, and Do what to do about it; empty: nothing does.
	Why, Do string
	// Unknown: it answers, and there is no authority to verify it with.
	Unknown bool
	// Date is the time by the server's clock, At the same moment by the node's clock; both are zero if the server did
	// not say.
	Date, At time.Time
	// Verified: the server's certificate is good, so its answers can be trusted.
	Verified bool
	// Node is what the cloud says about the node's Node object.
	Node Node
}

// Node is a Node object.
type Node struct {
	// Asked: the server gave an answer. Found: it has the object.
	Asked, Found bool
	Pool         string
	Ready        string // True, False, Unknown; empty: not said
}

// Dir is a directory that the hub needs.
type Dir struct {
	Flag, Path string
	// Trouble is why it can't be used; empty: it can. Free is the space left in bytes.
	Trouble string
	Free    int64
}

// Kubelet is the node's kubelet.
type Kubelet struct {
	// Running: its process was found.
	Running bool
	// Config is the kubeconfig on its command line, Server the address in it.
	Config File
	Server string
	// Rotates: it asks for client certificates by itself, and then leaves out the token in its kubeconfig.
	Rotates bool
	// Health is what is wrong by its own word; empty: nothing. NoHealth: nothing listens at its health port.
	Health   string
	NoHealth bool
}
