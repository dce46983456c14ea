package check

import (
	"io/fs"
	"time"
)

// Facts are what was found.
type Facts struct {
	Settings Config
	// Now is what the node takes the time to be.
	Now time.Time

	Hub         Hub
	Ports       []Port
	Keys        Keys
	Cloud       []Server
	Coordinator []Server // one, or none
	// Dirs are the directories that the hub needs: of its cache, of its certificates.
	Dirs    []Dir
	Kubelet Kubelet

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

// HubStatus is of /status what is judged here.
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
	Identity *struct {
		Client  HubCertificate `json:"client"`
		Serving HubCertificate `json:"serving"`
	} `json:"identity"`
}

// HubCertificate is what a hub says of one of its certificates.
type HubCertificate struct {
	NotAfter time.Time `json:"notAfter"`
	Problem  string    `json:"problem"`
	Waiting  string    `json:"waiting"`
}

// Port is a port that the hub needs.
type Port struct {
	Flag    string
	Address string
	// Held: somebody listens there. Holder is who, as "nginx (process 812)", where that can be seen.
	Held   bool
	Holder string
	// Trouble is why nobody could listen there.
	Trouble string
}

// File is what can be said of a file without its content.
type File struct {
	Path    string
	Missing bool
	// Trouble is why it cannot be read, or what is wrong with what is in it; empty: nothing.
	Trouble string
	Mode    fs.FileMode
}

func (f File) fine() bool { return !f.Missing && f.Trouble == "" }

// Keys are the node's certificate and what it can get one with.
type Keys struct {
	Cert, Key File
	Pair      Pair
	// CA verifies the cloud: a file of the hub's, or a kubeconfig that has it. Pinned: one of its certificates has one of the
	// hashes given; CAHash is the hash of that one, or of the first. CAExpiry is of the one that lasts longest.
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

// Server is how far one gets with an API server.
type Server struct {
	Name    string // cloud, coordinator
	Address string
	// Problem is what stopped it; Detail is its error, in one line.
	Problem Problem
	Detail  string
	// Date is what the server says the time is, At when, by the node's clock. Zero: it did not.
	Date, At time.Time
	// Verified: the server's certificate is good, and so what it says is its word.
	Verified bool
	// Peer describes the server's certificate, and until when it is good.
	Peer              string
	PeerFrom, PeerEnd time.Time
	// User is who the node is to the server; empty if it could not or did not say. With names the file of the certificate
	// that it was asked with.
	User   string
	Groups []string
	With   string
	// Node is what the cloud has of the node's Node object.
	Node Node
}

// Node is a Node object.
type Node struct {
	// Asked: the server gave an answer. Found: it has the object.
	Asked, Found bool
	Pool         string
	Ready        string // True, False, Unknown; empty: not said
}

// Problem is what is in the way to a server.
type Problem string

// Problems, in the order in which they can be met. The zero Problem is none.
const (
	BadAddress       Problem = "bad address"
	NoName           Problem = "name not known"
	NoNameServer     Problem = "no answer from name servers"
	Refused          Problem = "connection refused"
	NoRoute          Problem = "no route"
	NoConnection     Problem = "no connection"
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
	// At is the nearest directory that is there, for which the following holds; Path itself if that is.
	At       string
	Trouble  string
	Mode     fs.FileMode // of Path
	ReadOnly bool
	Writable bool
	// Free is the space left in bytes, Used what the directory has, Inodes how many files can be made; -1: not limited.
	Free, Used, Inodes int64
	// Locked: another process has it. Holder is which, where that can be seen.
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
	// Server is where its kubeconfig leads.
	Server string
	// Health is what its health says that is not good; empty: fine. NoHealth: nothing listens there.
	Health   string
	NoHealth bool
}
