package check

import (
	"io/fs"
	"time"

	"yurtcoordinator/internal/hub/bypass"
)

// Facts are what was found.
type Facts struct {
	Settings Config
	// Now is the time by the node's clock.
	Now time.Time

	Hub         Hub
	Ports       []Port
	Keys        Keys
	Cloud       []Server
	Coordinator []Server // one of each slot
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
	Status HubStatus
}

// HubStatus is the part of /status that Judge looks at.
type HubStatus struct {
	Node        string `json:"node"`
	Cloud       string `json:"cloud"`
	Coordinator string `json:"coordinator"`
	Kept        []struct {
		Selection string `json:"selection"`
	} `json:"kept"`
	Disk *struct {
		Bytes   int64  `json:"bytes"`
		Error   string `json:"error"`
		Corrupt string `json:"corrupt"`
	} `json:"disk"`
	Settings *struct {
		Generation int64    `json:"generation"`
		Running    int64    `json:"running"`
		State      string   `json:"state"`
		Why        string   `json:"why"`
		Own        []string `json:"own"`
	} `json:"settings"`
	Identity *struct {
		Client  HubCertificate `json:"client"`
		Serving HubCertificate `json:"serving"`
	} `json:"identity"`
	// Pods says where Pods are served; nil: they are not.
	Pods *struct {
		Address string `json:"address"`
		Told    bool   `json:"told"`
		Problem string `json:"problem"`
	} `json:"pods"`
	// Kubelet is what the hub has found of kubelet's serving certificate; nil: it has not looked, having no coordinator.
	Kubelet *HubKubelet `json:"kubelet"`
}

// HubKubelet is what a hub has found of kubelet's serving certificate.
type HubKubelet struct {
	Digest  string `json:"sha256"`
	File    string `json:"file"`
	Problem string `json:"problem"`
}

// HubCertificate is what a hub says about one of its certificates.
type HubCertificate struct {
	NotAfter time.Time `json:"notAfter"`
	Problem  string    `json:"problem"`
	Waiting  string    `json:"waiting"`
}

// Port is a port that the hub needs.
type Port struct {
	Flag    string
	Address string
	// Held: somebody listens there. Holder names the program, such as "nginx (process 812)", if that can be seen.
	Held   bool
	Holder string
	// Trouble is why nobody could listen there.
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
	// CA verifies the cloud: a file of the hub's, or a kubeconfig that has it. Pinned: one of its certificates has one of the
	// given hashes; CAHash is the hash of that one, or of the first. CAExpiry is when the longest-lived one expires.
	CA       File
	Pinned   bool
	CAHash   string
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

// Server is how far the node gets with an API server.
type Server struct {
	Name    string // cloud, coordinator
	Address string
	// Proxy is the proxy on the way there, without its password; empty: there is none.
	Proxy string
	// Problem is what stopped it; Detail is its error, in one line.
	Problem Problem
	Detail  string
	// Date is the time by the server's clock, At the same moment by the node's clock; both are zero if the server did
	// not say.
	Date, At time.Time
	// Verified: the server's certificate is good, so its answers can be trusted.
	Verified bool
	// Peer describes the server's certificate, which is good from PeerFrom to PeerEnd.
	Peer              string
	PeerFrom, PeerEnd time.Time
	// User is who the node is to the server; empty if the server did not say. With names the file of the certificate
	// that was shown.
	User   string
	Groups []string
	With   string
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

// Problem is what keeps the node from using a server.
type Problem string

// Problems, in the order in which a probe can meet them. The zero Problem means none.
const (
	BadAddress       Problem = "bad address"
	NoName           Problem = "name not known"
	NoNameServer     Problem = "no answer from name servers"
	Refused          Problem = "connection refused"
	NoRoute          Problem = "no route"
	NoConnection     Problem = "no connection"
	NoProxy          Problem = "no usable proxy"
	ProxyUnreached   Problem = "proxy not reached"
	ProxyDenies      Problem = "proxy refuses"
	ProxyStuck       Problem = "proxy does not reach it"
	NoHandshake      Problem = "no TLS handshake"
	NoAuthority      Problem = "no authority to verify it with"
	UnknownAuthority Problem = "other authority"
	WrongName        Problem = "other name"
	Expired          Problem = "certificate expired"
	NotYetValid      Problem = "certificate not yet valid"
	BadCertificate   Problem = "certificate not valid"
	RefusedPair      Problem = "node's certificate refused in the handshake"
	NoAnswer         Problem = "no answer"
	NotReady         Problem = "not ready"
	Unauthorized     Problem = "node's certificate not accepted"
	OtherUser        Problem = "taken for somebody else"
)

// Dir is a directory that the hub needs.
type Dir struct {
	Flag, Path string
	Missing    bool
	// At is Path or, if that does not exist, the nearest directory above it that does. The fields below are about At.
	At       string
	Trouble  string
	Mode     fs.FileMode // of Path
	ReadOnly bool
	Writable bool
	// Free is the space left in bytes, Used the size of the directory's files, Inodes how many more files can be made;
	// -1: not limited.
	Free, Used, Inodes int64
	// Locked: another process has locked it. Holder names that process, if it can be seen.
	Locked bool
	Holder string
	// Corrupt: a damaged file was moved aside.
	Corrupt bool
}

// Kubelet is the node's kubelet.
type Kubelet struct {
	// Running: its process was found.
	Running bool
	Config  File
	// Server is the address in its kubeconfig. Unproved says why, with that, it and the hub do not know each other; empty: they
	// do.
	Server   string
	Unproved string
	// Rotates: it asks for client certificates by itself, and then leaves out the token in its kubeconfig.
	Rotates bool
	// Health is what is wrong by its own word; empty: nothing. NoHealth: nothing listens at its health port.
	Health   string
	NoHealth bool
	// Serving is the certificate that it serves with.
	Serving Serving
}

// Serving is the certificate that kubelet serves with, by kubelet's own command line and settings.
type Serving struct {
	// File is where it is, or would be. Without a path, kubelet's settings can't be read, and Trouble says why.
	File File
	// Bootstrapped: the cluster signs it, or is to (serverTLSBootstrap).
	Bootstrapped bool
	// Digest is its SHA-256 in hex; empty: it was not read. Signed: one of the cloud's authorities has signed it.
	Digest              string
	Signed              bool
	NotBefore, NotAfter time.Time
}
