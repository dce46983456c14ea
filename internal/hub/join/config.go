package join

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Where is the node that is worked on, and how.
type Where struct {
	// Root is the directory that has the node's files, if it is not the machine's own: then nothing is started, unless Start.
	Root  string
	Start bool
	// DryRun says what would be done, and does nothing.
	DryRun bool
}

func (w *Where) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&w.DryRun, "dry-run", false, "print what would be done, and do nothing")
	fs.StringVar(&w.Root, "root", "", "directory with the node's files; nothing is started or stopped (an image)")
	fs.BoolVar(&w.Start, "start", false, "with --root: start and stop programs nevertheless")
}

// root is Root in the form to which a path can be added.
func (w *Where) root() string { return strings.TrimSuffix(w.Root, "/") }

// starts reports whether services are started and stopped.
func (w *Where) starts() bool { return w.Root == "" || w.Start }

// Config says how a node is joined. AddFlags sets the defaults; empty means "as found on the node" where a flag says so.
type Config struct {
	Where
	Node, Pool, Servers, Coordinator string
	CAFile, TokenFile, CACertHash    string
	// ProxyURL, or the content of ProxyFile, is the URL of the proxy on the way to the cloud. Hosts in NoProxy are reached
	// without the proxy. ServerName is the name in the API servers' certificates.
	ProxyURL, ProxyFile, NoProxy, ServerName string
	proxy                                    string // what ProxyFile has
	// Settings are other settings of yurthub, NAME=VALUE.
	Settings []string
	// Binary is the program on the node.
	Binary string
	// ReleaseKey is a file with public keys of releases: what they have signed may be put in the program's place from the cloud.
	ReleaseKey string
	releaseKey string // what it has
	// ReleaseList is a release's list of files, which its key has signed: Binary must be in it.
	ReleaseList         string
	list, listSignature string // what it and the file beside it have
	// Agents has the node's agents go through yurthub, too: see agents.
	Agents bool
	// Wait is how many seconds yurthub may take until it works.
	Wait string
}

// AddFlags declares the settings as flags and sets their defaults.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Pool, "nodepool-name", "", "pool that the node belongs to")
	fs.StringVar(&c.Coordinator, "coordinator-server-addr", "",
		"the pool's coordinator, https://HOST:10270; default: the address that the cloud gives")
	fs.StringVar(&c.Servers, "server-addr", "", "the cloud's API servers, URL,…; default: as in /etc/kubernetes/kubelet.conf")
	fs.StringVar(&c.Node, "node-name", "", "the node's name; default: kubelet's --hostname-override, or the host's name")
	fs.StringVar(&c.CAFile, "ca-file", "",
		"file with the cloud's authority; default: as in kubelet.conf, or as discovered with the token")
	fs.StringVar(&c.TokenFile, "token-file", "",
		"file with a bootstrap token, on a node that kubeadm has not joined; - is standard input")
	fs.StringVar(&c.CACertHash, "discovery-token-ca-cert-hash", "",
		"sha256:HEX of the authority's public key, to verify it when it is discovered")
	fs.StringVar(&c.ServerName, "tls-server-name", "",
		"name in the API servers' certificates; default: as in kubelet.conf, or the host in --server-addr")
	fs.StringVar(&c.ProxyURL, "proxy-url", "",
		"the proxy on the way to the cloud, http, https or socks5://HOST:PORT; none: no proxy; default: as in kubelet.conf "+
			"or kubelet's environment")
	fs.StringVar(&c.ProxyFile, "proxy-file", "", "file with the proxy's URL, including user and password; it is copied")
	fs.StringVar(&c.NoProxy, "no-proxy", "",
		"hosts, domains and networks to reach without the proxy, NAME,…; default: as in kubelet's environment")
	fs.StringArrayVar(&c.Settings, "set", nil, "another setting of yurthub, NAME=VALUE, for its flag --NAME; may be repeated")
	fs.StringVar(&c.Binary, "binary", "/usr/local/bin/yurthub", "the program yurthub on the node")
	fs.StringVar(&c.ReleaseKey, "release-key", "",
		"file with the public keys of releases, in PEM: the cloud may then upgrade yurthub to releases signed by them, and to "+
			"nothing else; default: the former keys; without keys there are no upgrades")
	fs.StringVar(&c.ReleaseList, "release-list", "",
		"file SHA256SUMS of a release, with SHA256SUMS.sig beside it: the program must be in it, and it must be "+
			"signed with --release-key")
	fs.BoolVar(&c.Agents, "agents", true,
		"make kube-proxy, CoreDNS, flannel and all new Pods use yurthub, too, if it gets a certificate for that; restarts "+
			"the containers of those three once")
	fs.StringVar(&c.Wait, "wait", "120", "how many seconds to wait until yurthub works")
	c.addFlags(fs)
}

// Removal says how yurthub is taken off a node.
type Removal struct {
	Where
	// KeepData keeps what the hub knows, and its certificate.
	KeepData bool
}

// AddFlags declares the settings as flags and sets their defaults.
func (r *Removal) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&r.KeepData, "keep-data", false, "keep "+dirData+": the hub's data and its certificate")
	r.addFlags(fs)
}

// Settings that --set refuses.
var (
	ownFlag = words("node-name nodepool-name server-addr ca-file cert-dir bootstrap-file coordinator-server-addr config " +
		"discovery-token-ca-cert-hash enable-coordinator proxy-file no-proxy tls-server-name")
	decided = words("disk-cache-path cert-file key-file kubelet-kubeconfig")

	settingName = regexp.MustCompile(`^[a-z][a-z-]*$`)
	// plain is what means itself in a file of settings and in a unit.
	plain = regexp.MustCompile(`^[\]\[A-Za-z0-9:/.,_@%+=*-]*$`)
)

func words(list string) map[string]bool {
	all := map[string]bool{}
	for _, w := range strings.Fields(list) {
		all[w] = true
	}
	return all
}

// others are the other settings as a map, which the address of the hub is read from.
func (c *Config) others() (map[string]string, error) {
	all := map[string]string{}
	for _, pair := range c.Settings {
		name, value, ok := strings.Cut(pair, "=")
		switch {
		case !ok || !settingName.MatchString(name):
			return nil, fmt.Errorf("--set %s: want NAME=VALUE", pair)
		case ownFlag[name]:
			return nil, fmt.Errorf("--set %s: there is a flag for it, or it can't be set", name)
		case decided[name]:
			return nil, fmt.Errorf("--set %s: join decides that", name)
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("--set %s: is given twice", name)
		}
		all[name] = value
	}
	return all, nil
}

func (c *Config) wait() (time.Duration, error) {
	seconds, err := strconv.ParseUint(c.Wait, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("--wait %s: want a number of seconds", c.Wait)
	}
	return time.Duration(seconds) * time.Second, nil
}

// isPlain refuses values that would mean something else where they are written.
func (c *Config) isPlain(node, servers string, out outside) error {
	type pair struct{ flag, value string }
	pairs := []pair{
		{"node-name", node}, {"nodepool-name", c.Pool}, {"server-addr", servers}, {"coordinator-server-addr", c.Coordinator},
		{"ca-file", c.CAFile}, {"discovery-token-ca-cert-hash", c.CACertHash}, {"binary", c.Binary},
		{"no-proxy", out.except}, {"tls-server-name", out.serverName},
	}
	for _, s := range c.Settings {
		pairs = append(pairs, pair{"set", s})
	}
	for _, p := range pairs {
		if !plain.MatchString(p.value) {
			return fmt.Errorf("--%s %s: only letters, digits and ][:/.,_@%%+=*- can be in it", p.flag, p.value)
		}
	}
	return nil
}
