package join

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/deploy/node"
)

// plan is what a node shall have.
type plan struct {
	node string
	wait time.Duration
	// noAgents is why the node's agents do not go through the hub; "" if they are to.
	noAgents string

	// Contents of files; an empty one is not to be there.
	settings, kubeconfig, dropin, unit, proxy string
	// upgrades has what the node needs to be upgraded from the cloud; nil: it is not to be.
	upgrades *upgrades
}

// decide says what a node shall have, or what is in the way.
func decide(c *Config, f *facts) (*plan, error) {
	p := &plan{}
	var err error
	if c.starts() && !f.systemd {
		return nil, otherwise(errNoSystemd)
	}
	if p.wait, err = c.wait(); err != nil {
		return nil, err
	}
	others, err := c.others()
	if err != nil {
		return nil, err
	}
	for _, check := range []func(*Config, *facts) error{binaryIsSeen, kubeletIsKubeadms, kubeletIsFree, nothingElse} {
		if err := check(c, f); err != nil {
			return nil, err
		}
	}
	if p.node, err = nodeName(c, f); err != nil {
		return nil, err
	}
	address := "https://" + net.JoinHostPort("127.0.0.1", cmp.Or(others["port"], "10261"))
	servers, err := access(c, f, address)
	if err != nil {
		return nil, err
	}
	out, err := way(c, f)
	if err != nil {
		return nil, err
	}
	if err := c.isPlain(p.node, servers, out); err != nil {
		return nil, err
	}
	if err := heldToRelease(c, f); err != nil {
		return nil, err
	}
	if out.proxy != "" {
		p.proxy = out.proxy + "\n"
	}
	serving := others[settingServing]
	if serving == "" {
		serving = servingCertificate(f)
	}
	agents, why := agentsWay(c, others)
	p.noAgents = why
	p.settings = settings(c, f, p.node, servers, serving, agents, out)
	p.kubeconfig = strings.ReplaceAll(kubeconfigText, "@ADDRESS@", address)
	p.dropin = dropinText
	p.unit = strings.Replace(node.Unit, "\nExecStart=/usr/local/bin/yurthub ", "\nExecStart="+c.Binary+" ", 1)
	p.upgrades = decideUpgrades(c, f)
	return p, nil
}

var errNoSystemd = errors.New("systemd does not run here, and kubelet is started by something else: see docs/install-node.md " +
	"for the settings")

// pageCompatibility is the page that says what works where, and why it works on some distributions only.
const pageCompatibility = "docs/compatibility.md"

// otherwise adds to an error about how kubelet is started where to read on.
func otherwise(err error) error {
	return fmt.Errorf("%w (what works where: %s)", err, pageCompatibility)
}

// unseen are directories that the unit hides from the service.
var unseen = []string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"}

func binaryIsSeen(c *Config, f *facts) error {
	if f.binary == "" {
		return fmt.Errorf("there is no yurthub at %s: put it there, or give --binary", c.Binary)
	}
	hidden := func(dir string) bool { return strings.HasPrefix(f.binary, dir) }
	if slices.ContainsFunc(unseen, hidden) {
		return fmt.Errorf("--binary %s: the service sees neither home directories nor temporary ones: put yurthub into "+
			"/usr/local/bin", c.Binary)
	}
	return nil
}

// kubeletIsKubeadms refuses a kubelet whose unit would not take notice of our drop-in.
func kubeletIsKubeadms(_ *Config, f *facts) error {
	found, how := false, false
	for _, path := range f.units {
		content, there := f.files[path]
		if !there || path == fileDropin {
			continue
		}
		name := filepath.Base(path)
		found = found || name == "kubelet.service"
		if strings.Contains(content, "127.0.0.1:10261") {
			return fmt.Errorf("kubelet is set to use another hub, by %s", path)
		}
		if !strings.Contains(content, "KUBELET_KUBECONFIG_ARGS") {
			continue
		}
		how = true
		if name != "kubelet.service" && name > nameDropin {
			return fmt.Errorf("%s comes after %s and would win: name it 15-….conf", path, fileDropin)
		}
	}
	switch {
	case !found:
		return otherwise(errors.New("there is no kubelet.service: install kubelet first, as kubeadm's packages do"))
	case !how:
		return otherwise(errors.New("kubelet.service does not use KUBELET_KUBECONFIG_ARGS, as kubeadm's does: see " +
			"docs/install-node.md for the settings"))
	}
	return nil
}

// kubeletIsFree refuses arguments that would win over our drop-in's.
func kubeletIsFree(_ *Config, f *facts) error {
	for _, path := range argumentFiles {
		for _, flag := range []string{"--kubeconfig", "--rotate-certificates"} {
			if strings.Contains(f.files[path], flag) {
				return fmt.Errorf("%s sets %s, which would win: remove it", path, flag)
			}
		}
	}
	if !f.has(fileKubeletConfig) {
		return otherwise(fmt.Errorf("kubelet has no %s: run kubeadm join first, or put one there", fileKubeletConfig))
	}
	return nil
}

// nothingElse refuses a node with a hub, or with files in our places, that Join has not made.
func nothingElse(_ *Config, f *facts) error {
	others := append([]string{"/usr/lib/systemd/system/yurthub.service", "/lib/systemd/system/yurthub.service"}, f.otherPods()...)
	for _, path := range append(others, fileUnit) {
		if f.has(path) && (path != fileUnit || !f.ours(path)) {
			return fmt.Errorf("there is another yurthub on this node, %s: remove it first", path)
		}
	}
	for _, path := range []string{fileDropin, fileConfig} {
		if f.has(path) && !f.ours(path) {
			return fmt.Errorf("%s exists and was not made by join: remove it; see --set", path)
		}
	}
	return nil
}

var overrideArgument = regexp.MustCompile(`.*--hostname-override[= ]([^ "\n]*)`)

func nodeName(c *Config, f *facts) (string, error) {
	told := ""
	for _, path := range argumentFiles {
		if found := overrideArgument.FindStringSubmatch(f.files[path]); found != nil && told == "" {
			told = found[1]
		}
	}
	switch {
	case c.Node != "" && told != "" && told != c.Node:
		return "", fmt.Errorf("--node-name is %s, and kubelet's --hostname-override is %s", c.Node, told)
	case c.Node != "":
		return c.Node, nil
	case !c.starts():
		return "", errors.New("--root needs --node-name: the name of this machine is not the image's")
	}
	return cmp.Or(told, strings.ToLower(f.host)), nil
}

var serverLine = regexp.MustCompile(`(?m)^ *server: *"?([^" \n]*)"? *$`)

// access returns where the cloud is, and refuses a node that has nothing to prove itself with.
func access(c *Config, f *facts, hub string) (servers string, err error) {
	servers = c.Servers
	switch {
	case f.has(fileKubeadm):
		if servers == "" {
			var all []string
			for _, found := range serverLine.FindAllStringSubmatch(f.files[fileKubeadm], -1) {
				all = append(all, found[1])
			}
			slices.Sort(all)
			if all = slices.Compact(all); len(all) > 1 {
				return "", fmt.Errorf("%s has several servers: say which by --server-addr", fileKubeadm)
			}
			servers = strings.Join(all, "")
		}
		if strings.HasPrefix(servers, "http://") ||
			slices.Contains([]string{"https://127.0.0.1:10261", "https://localhost:10261", hub}, servers) {
			return "", fmt.Errorf("%s leads to %s, which is a hub already", fileKubeadm, servers)
		}
	case c.TokenFile == "" && f.files[fileToken] == "" && !f.joined:
		return "", fmt.Errorf("kubeadm has not joined this node (no %s): give --token-file, with a token of kubeadm token create",
			fileKubeadm)
	case c.CACertHash == "" && c.CAFile == "":
		return "", errors.New("give --discovery-token-ca-cert-hash or --ca-file: without them, whoever answers could pass for " +
			"the cloud")
	}
	if servers == "" {
		return "", fmt.Errorf("give --server-addr: %s names no server", fileKubeadm)
	}
	if c.Coordinator != "" && c.Pool == "" {
		return "", errors.New("give --nodepool-name: a coordinator belongs to a pool")
	}
	return servers, nil
}

// settings is the content of yurthub's file of settings.
func settings(c *Config, f *facts, name, servers, serving string, agents [][2]string, out outside) string {
	kubeconfig, coordinator, proxy := "", "", ""
	if out.proxy != "" {
		proxy = fileProxy
	}
	told := func(s string) bool { return strings.HasPrefix(s, settingServing+"=") }
	if slices.ContainsFunc(c.Settings, told) {
		serving = "" // it is among the other settings
	}
	if f.has(fileKubeadm) {
		kubeconfig = fileKubeadm
	}
	if c.Pool != "" {
		coordinator = "true"
	}
	var b strings.Builder
	b.WriteString(mark + "\n# Changes are made by running join again, with --set. What all nodes of a pool are to have is said " +
		"once, by a PoolSettings in the cloud.\n")
	for _, s := range append([][2]string{
		{"node-name", name}, {"server-addr", servers}, {"bootstrap-file", fileToken}, {"kubelet-kubeconfig", kubeconfig},
		{"ca-file", c.CAFile}, {"discovery-token-ca-cert-hash", c.CACertHash}, {"nodepool-name", c.Pool},
		{"coordinator-server-addr", c.Coordinator}, {"enable-coordinator", coordinator}, {settingServing, serving},
		{"tls-server-name", out.serverName}, {"proxy-file", proxy}, {"no-proxy", out.except},
	}, agents...) {
		if s[1] != "" {
			fmt.Fprintf(&b, "%s: %q\n", s[0], s[1])
		}
	}
	for _, s := range c.Settings {
		name, value, _ := strings.Cut(s, "=")
		fmt.Fprintf(&b, "%s: %q\n", name, value)
	}
	return b.String()
}

const kubeconfigText = mark + `
apiVersion: v1
kind: Config
current-context: yurthub
clusters: [{name: yurthub, cluster: {server: "@ADDRESS@", certificate-authority: /var/lib/yurthub/pki/local.crt}}]
contexts: [{name: yurthub, context: {cluster: yurthub, user: kubelet}}]
users: [{name: kubelet, user: {tokenFile: /var/lib/yurthub/pki/kubelet.token}}]
`

// dropinText is a systemd drop-in that makes kubelet use the hub. A kubelet that rotates its client certificate ignores the token
// in its kubeconfig. So the drop-in turns rotation off, and the hub renews the certificate instead. kubelet starts after the hub,
// and a hub that is ready has made the files that the kubeconfig names.
const dropinText = mark + `
[Unit]
Wants=yurthub.service
After=yurthub.service

[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--kubeconfig=` + fileKubeconfig + ` --rotate-certificates=false"
`

// settingServing is where yurthub finds the certificate that kubelet serves with.
const settingServing = "kubelet-serving-certificate"

// servingFlags are flags of kubelet that win over its settings, which yurthub reads itself.
var (
	certFlag      = regexp.MustCompile(`(?m)^[^#\n]*--tls-cert-file[= ]"?([^" \n]+)`)
	certDirFlag   = regexp.MustCompile(`(?m)^[^#\n]*--cert-dir[= ]"?([^" \n]+)`)
	bootstrapFlag = regexp.MustCompile(`(?m)^[^#\n]*--rotate-server-certificates(=true)?["\s]`)
)

// servingCertificate returns the path of kubelet's serving certificate, or of the directory that has it, according to kubelet's
// flags. It returns "" if no flag names either.
func servingCertificate(f *facts) string {
	say := func(flag *regexp.Regexp) []string {
		for _, path := range slices.Concat(argumentFiles, f.units) {
			if found := flag.FindStringSubmatch(f.files[path] + "\n"); found != nil {
				return found
			}
		}
		return nil
	}
	if found := say(certFlag); found != nil {
		return found[1]
	}
	dir := ""
	if found := say(certDirFlag); found != nil {
		dir = filepath.Clean(found[1])
	}
	if say(bootstrapFlag) != nil {
		return cmp.Or(dir, dirKubeletPKI) + "/kubelet-server-current.pem"
	}
	return dir
}
