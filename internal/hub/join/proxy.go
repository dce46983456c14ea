package join

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// fileProxy has the URL of the proxy on the way to the cloud, which may have a password.
const fileProxy = dirEtc + "/proxy"

// noProxy is the value of --proxy-url that means no proxy, not even the one that kubelet uses.
const noProxy = "none"

// outside is what a node needs to get to the cloud besides its address.
type outside struct {
	// proxy is the content of fileProxy; empty means that there is no proxy.
	proxy string
	// except are the hosts that are reached without it, and serverName is the name in the servers' certificates.
	except, serverName string
}

var (
	proxyURLLine   = regexp.MustCompile(`(?m)^ *proxy-url: *["']?([^"' \n]+)["']? *$`)
	serverNameLine = regexp.MustCompile(`(?m)^ *tls-server-name: *["']?([^"' \n]+)["']? *$`)
	environment    = regexp.MustCompile(`(?m)^Environment=(.*)$`)
	environFile    = regexp.MustCompile(`(?m)^EnvironmentFile=-?(/\S+)$`)
	assignment     = regexp.MustCompile(`"([A-Za-z_]+)=([^"]*)"|'([A-Za-z_]+)=([^']*)'|([A-Za-z_]+)=(\S*)`)
	proxyText      = regexp.MustCompile(`^((https?|socks5h?)://)?[^\s/"\\]+/?$`)
)

// way decides how the node gets to the cloud: as the command line says, else as kubelet does, else as the former join did.
func way(c *Config, f *facts) (outside, error) {
	var out outside
	told := func(line *regexp.Regexp) string {
		if found := line.FindStringSubmatch(f.files[fileKubeadm]); found != nil {
			return found[1]
		}
		return ""
	}
	out.serverName = cmp.Or(c.ServerName, told(serverNameLine))
	kubelets := kubeletEnvironment(f)
	inEnvironment := cmp.Or(kubelets["HTTPS_PROXY"], kubelets["https_proxy"])
	switch {
	case c.ProxyURL == noProxy:
	case c.ProxyURL != "" && c.proxy != "":
		return out, errors.New("--proxy-url and --proxy-file: give one of them")
	case strings.Contains(c.ProxyURL, "@"):
		return out, errors.New("--proxy-url has a user: others on this machine see command lines; put the URL into a file and " +
			"give --proxy-file")
	case c.ProxyURL != "" || c.proxy != "":
		out.proxy = c.ProxyURL + c.proxy
	case told(proxyURLLine) != "":
		out.proxy = told(proxyURLLine)
	case inEnvironment != "":
		// As the environment is read: never to the machine itself.
		out.proxy, out.except = inEnvironment, cmp.Or(kubelets["NO_PROXY"], cmp.Or(kubelets["no_proxy"], "localhost,127.0.0.1"))
	default:
		out.proxy = strings.TrimSpace(f.files[fileProxy])
		if out.proxy != "" {
			out.except = formerExcept(f.files[fileConfig])
		}
	}
	if c.NoProxy != "" {
		out.except = c.NoProxy
	}
	if out.proxy == "" {
		out.except = ""
	}
	out.except = strings.Join(strings.FieldsFunc(out.except, func(r rune) bool { return r == ',' || r == ' ' }), ",")
	if out.proxy != "" && !proxyText.MatchString(out.proxy) {
		return out, errors.New("the proxy on the way to the cloud has no usable URL: want http, https or " +
			"socks5://[USER:PASSWORD@]HOST[:PORT]; see --proxy-url and --proxy-file")
	}
	return out, nil
}

var exceptSetting = regexp.MustCompile(`(?m)^no-proxy: "([^"]*)"$`)

func formerExcept(settings string) string {
	if found := exceptSetting.FindStringSubmatch(settings); found != nil {
		return found[1]
	}
	return ""
}

// kubeletEnvironment returns what systemd puts into kubelet's environment, by its unit, drop-ins and the files that these name.
func kubeletEnvironment(f *facts) map[string]string {
	all := map[string]string{}
	set := func(text string) {
		for _, m := range assignment.FindAllStringSubmatch(text, -1) {
			if name := m[1] + m[3] + m[5]; all[name] == "" {
				all[name] = m[2] + m[4] + m[6]
			}
		}
	}
	for _, path := range environmentFiles(f) { // they win over the units' own
		for line := range strings.Lines(f.files[path]) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
				if name, value, ok := strings.Cut(line, "="); ok && all[name] == "" {
					all[name] = strings.Trim(value, `"'`)
				}
			}
		}
	}
	for _, path := range f.units {
		for _, found := range environment.FindAllStringSubmatch(f.files[path], -1) {
			set(strings.ReplaceAll(found[1], "%%", "%")) // % has a meaning in units
		}
	}
	return all
}

// environmentFiles returns the files that kubelet's units read their environment from.
func environmentFiles(f *facts) (paths []string) {
	for _, unit := range f.units {
		for _, found := range environFile.FindAllStringSubmatch(f.files[unit], -1) {
			if !slices.Contains(paths, found[1]) {
				paths = append(paths, found[1])
			}
		}
	}
	return paths
}

// readProxy reads the file of --proxy-file.
func (c *Config) readProxy() error {
	if c.ProxyFile == "" {
		return nil
	}
	content, err := readText(c.ProxyFile)
	if err != nil {
		return fmt.Errorf("--proxy-file: %w", err)
	}
	if c.proxy = strings.TrimSpace(content); c.proxy == "" {
		return fmt.Errorf("--proxy-file %s: it is empty", c.ProxyFile)
	}
	return nil
}
