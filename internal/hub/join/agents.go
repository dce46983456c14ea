package join

import (
	"cmp"
	"encoding/pem"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"yurtcoordinator/internal/hub/bypass"
	"yurtcoordinator/internal/run"
)

// agents are the programs that Join and Reset restart, so that they use the new path to the API server. A running container keeps
// its environment, which has the API server's address, and kube-proxy keeps what it has read from its kubeconfig. Owners of other
// programs must restart those themselves.
var agents = []string{"kube-proxy", "coredns", "flanneld"}

// Files with the address at which Pods are served, and with the authorities by which they verify the hub.
const (
	fileAddress = dirData + "/pki/node-address"
	fileServing = dirData + "/pki/hub.pem"
	dirPods     = "/var/lib/kubelet/pods"
)

const (
	settingBind, settingSecurePort, settingMaster = "secure-bind-address", "secure-port", "masterservice"
	ofNode                                        = "node"
)

const (
	// approvalFor is how long Join waits for the hub's serving certificate. A controller that approves certificates takes a
	// second. If there is no such controller, kubelet must not wait longer.
	approvalFor = 30 * time.Second
	// shownFor is how long kubelet may take to update a Pod's mounted files, which it does each minute. againFor is how long a
	// container may take to restart.
	shownFor, againFor = 2 * time.Minute, time.Minute
)

// agentsWay says whether this node's agents use the hub: the settings for that, or why not.
func agentsWay(c *Config, others map[string]string) (settings [][2]string, why string) {
	switch {
	case !c.Agents:
		return nil, "--agents=false"
	case c.Pool == "":
		return nil, "Pods verify a hub by its pool's authority: give --nodepool-name"
	case others[settingMaster] == "false":
		return nil, "--set masterservice=false"
	}
	for _, s := range [][2]string{{settingBind, ofNode}, {settingMaster, "true"}} {
		if _, given := others[s[0]]; !given {
			settings = append(settings, s)
		}
	}
	return settings, ""
}

// agentsReady reports whether agents can go through the hub. If not, it says why: then they go on as they do.
func (j *joiner) agentsReady() bool {
	switch {
	case j.noAgents != "":
		j.say("this node's agents, such as kube-proxy, bypass yurthub: %s", j.noAgents)
		return false
	case j.where.DryRun && j.where.starts():
		j.say("would: end the containers of %s that bypass yurthub, once it has a certificate for Pods",
			strings.Join(agents, ", "))
		return false
	case !j.where.starts() || j.err != nil:
		return false
	}
	var said string
	for until := time.Now().Add(min(approvalFor, j.wait)); ; {
		var err error
		if said, err = j.system.Check(j.ctx, j.binary(), "", "--config="+j.root+fileConfig, "--agents"); err == nil {
			return true
		}
		if !time.Now().Before(until) || run.Pause(j.ctx, pollPause) != nil {
			break
		}
	}
	j.say("this node's agents, such as kube-proxy, bypass yurthub for now; run join again when this is fixed:")
	for line := range strings.Lines(said) {
		if strings.Contains(line, "yurthub: Pods") || strings.Contains(line, "yurthub: serving") {
			j.say("  %s", strings.TrimSpace(line))
		}
	}
	return false
}

// podsAt returns the address at which the hub serves Pods, from the node's files; the zero AddrPort means none. It does not say
// whether Pods get that address, because a PoolSettings can decide that.
func (h *hand) podsAt() netip.AddrPort {
	settings, _ := h.content(fileConfig)
	value := func(name string) string {
		for line := range strings.Lines(settings) {
			if text, ok := strings.CutPrefix(line, name+": "); ok {
				return strings.Trim(strings.TrimSpace(text), `"`)
			}
		}
		return ""
	}
	address := value(settingBind)
	if address == ofNode {
		noted, _ := h.content(fileAddress)
		address = strings.TrimSpace(noted)
	}
	ip, err := netip.ParseAddr(address)
	port, errPort := strconv.ParseUint(cmp.Or(value(settingSecurePort), "10268"), 10, 16)
	if err != nil || errPort != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(port))
}

// authorities are those by which Pods verify the hub, in PEM.
func (h *hand) authorities() (all []string) {
	content, _ := h.content(fileServing)
	rest := []byte(content)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			all = append(all, string(pem.EncodeToMemory(block)))
		}
	}
	return all[min(1, len(all)):] // the first is the hub's own
}

// turn ends those of the node's agents that use the wrong path, and waits until kubelet has started them again. If through is
// true, the right path is through the hub, otherwise straight to the cloud. Before it ends an agent, turn waits until kubelet has
// updated the agent's mounted files. It prints what does not work. If it can't end an agent, h.err gets the error.
func (h *hand) turn(hub netip.AddrPort, through bool) {
	if h.err != nil || h.where.DryRun || !h.where.starts() || !hub.IsValid() {
		return
	}
	authorities := h.authorities()
	astray := func(p bypass.Program) bool {
		return !p.Static && p.Told.IsValid() && (p.Told == hub) != through
	}
	until, ended := time.Now().Add(shownFor), map[string]bool{}
	for _, p := range h.system.Programs() {
		if !slices.Contains(agents, p.Name) || !astray(p) {
			continue
		}
		shown := h.comes(until, func() bool { return h.given(p.Pod, hub, authorities, through) })
		if !shown {
			h.say("%s: kubelet has not given it what it needs to change; it may need a restart", p.Name)
		}
		if shown || !through { // the hub that it goes through ends now
			ended[p.Name] = true
			h.act(fmt.Sprintf("end %s (process %d)", p.Name, p.PID), func() error { return h.system.End(h.ctx, p.PID) })
		}
	}
	running := func(name string) (wrong, right bool) {
		for _, p := range h.system.Programs() {
			if p.Name == name && !p.Static && p.Told.IsValid() {
				wrong, right = wrong || astray(p), right || !astray(p)
			}
		}
		return wrong, right
	}
	until = time.Now().Add(againFor)
	for _, name := range agents {
		if !ended[name] {
			continue
		}
		if h.comes(until, func() bool { wrong, right := running(name); return right && !wrong }) {
			h.say("%s goes %s", name, map[bool]string{true: "through yurthub", false: "straight to the cloud"}[through])
		} else {
			h.say("%s was ended and does not run again yet: kubelet starts it", name)
		}
	}
}

// given reports whether kubelet has updated a Pod's mounted files: all must lead to the hub if through is true, and none if it is
// false. It looks at the authorities by which the Pod verifies the API server, and at kube-proxy's kubeconfig. It ignores files
// that are not where kubelet usually keeps them.
func (h *hand) given(pod string, hub netip.AddrPort, authorities []string, through bool) bool {
	for pattern, wants := range map[string][]string{
		"kubernetes.io~projected/*/ca.crt":                   authorities,
		"kubernetes.io~configmap/kube-proxy/kubeconfig.conf": {hub.String()},
	} {
		found, err := filepath.Glob(h.root + dirPods + "/" + pod + "/volumes/" + pattern)
		if err != nil || len(wants) == 0 {
			continue
		}
		for _, path := range found {
			content, err := os.ReadFile(path)
			lacks := slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(string(content), want) })
			if err == nil && lacks == through {
				return false
			}
		}
	}
	return true
}

// comes waits until ok returns true, at most until a time, and reports whether it does.
func (h *hand) comes(until time.Time, ok func() bool) bool {
	for {
		if ok() {
			return true
		}
		if !time.Now().Before(until) || run.Pause(h.ctx, time.Second) != nil {
			return false
		}
	}
}

// sayTold names the Pods, other than agents, whose environment points to the hub that is being removed.
func (h *hand) sayTold(hub netip.AddrPort) {
	if h.where.DryRun || !h.where.starts() || !hub.IsValid() {
		return
	}
	pods := map[string]bool{}
	for _, p := range h.system.Programs() {
		if p.Told == hub && !slices.Contains(agents, p.Name) {
			pods[h.nameOf(p.Pod)] = true
		}
	}
	if len(pods) > 0 {
		h.say("these Pods use yurthub as the API server; restart them if they use the API: %s",
			strings.Join(slices.Sorted(maps.Keys(pods)), " "))
	}
}

// nameOf is a Pod's NAMESPACE/NAME, by its directory of logs; its UID if there is none.
func (h *hand) nameOf(pod string) string {
	found, _ := filepath.Glob(h.root + "/var/log/pods/*_*_" + pod)
	for _, path := range found {
		if parts := strings.SplitN(filepath.Base(path), "_", 3); len(parts) == 3 {
			return parts[0] + "/" + parts[1]
		}
	}
	return pod
}
