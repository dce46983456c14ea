package check

import (
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/health"
	"yurtcoordinator/internal/hub/identity"
)

const (
	// clockWarn and clockFail are how far the node's clock may be from a server's. Kubernetes' own signer dates certificates
	// back by 5 minutes, and tokens are as exact.
	clockWarn = 30 * time.Second
	clockFail = 5 * time.Minute

	// soon is how long before its end a certificate should have been renewed, or a tenth of its life if that is less.
	// The hub renews its own at 9/10 of their life at the latest.
	soon = 7 * 24 * time.Hour

	// cacheBytes is how large the hub's cache may grow; with less than spaceFail free the hub cannot work at all.
	cacheBytes = 256 << 20
	spaceFail  = 16 << 20
	// findingCloud is of the way to the cloud, and findingHubCloud of what the hub says of it: upgrades know them by these names.
	findingCloud, findingHubCloud = "cloud", "yurthub: cloud"
)

// longAgo is before any of this was written: a clock that shows such a time has lost its battery.
var longAgo = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// Judge says what the facts mean, in the order in which a person would look.
func Judge(f Facts) []Finding {
	var j judge
	if err := f.Settings.Validate(); err != nil {
		j.add(Fail, "settings", err.Error(), "correct the settings; yurthub does not start with these")
	}
	j.hub(f)
	for _, p := range f.Ports {
		j.port(p)
	}
	if !f.Hub.answers() || f.Hub.Status.Identity == nil {
		j.keys(f)
	}
	j.clock(f)
	j.servers(f)
	j.node(f)
	for _, d := range f.Dirs {
		j.dir(f, d)
	}
	j.kubelet(f)
	if f.Hub.answers() {
		j.serving(f)
		j.pods(f)
		j.past(f)
	}
	for _, name := range f.Unanswered {
		j.add(Fail, name, "the check took too long", "look for a disk or a file system that hangs")
	}
	return j.findings
}

type judge struct{ findings []Finding }

func (j *judge) add(l Level, what, why, do string) {
	j.findings = append(j.findings, Finding{l, what, line(why), line(do)})
}

func (j *judge) hub(f Facts) {
	const what = "yurthub"
	h, c := f.Hub, f.Settings
	switch {
	case h.Nobody && c.BeforeStart:
		j.add(OK, what, "no yurthub runs yet", "")
		return
	case h.Nobody:
		j.add(Fail, what, "no yurthub answers at "+c.healthURL(),
			"systemctl status yurthub; journalctl -u yurthub")
		return
	case h.Trouble != "":
		j.add(Fail, what, fmt.Sprintf("what answers at %s is no working yurthub: %s", c.healthURL(), h.Trouble),
			"end that program, or if it is yurthub, restart it: systemctl restart yurthub")
		return
	case h.Status.Node != c.Node:
		j.add(Fail, what, fmt.Sprintf("the running yurthub is for the node %s, but these settings are for %s",
			h.Status.Node, c.Node), "give the settings with which it runs, or restart it: systemctl restart yurthub")
		return
	}
	j.add(OK, what, "runs as node "+string(h.Status.Node), "")
	switch h.Status.Cloud {
	case "down":
		j.add(Fail, findingHubCloud, "the running yurthub says that its link to the cloud is down",
			"see the lines about the cloud below")
	case "relayed":
		j.add(Warn, findingHubCloud, "the running yurthub reaches the cloud over a neighbour's link: its own link is down",
			"see the lines about the cloud below")
	case "failing":
		j.add(Fail, findingHubCloud,
			"the running yurthub says that the cloud, or a balancer in front of it, answers core requests with 502, 503 or 504",
			"look at the API servers and the balancer in front of them; the node keeps working with what it has meanwhile")
	case "unknown":
		j.add(Fail, findingHubCloud, "the running yurthub does not know yet whether it reaches the cloud",
			"ask again in a few seconds")
	}
	j.hubCoordinators(h)
	j.hubDisk(h)
	j.hubSettings(h)
	if id := h.Status.Identity; id != nil {
		j.hubCertificate(f, "client", id.Client)
		j.hubCertificate(f, "serving", id.Serving)
	}
}

// hubCoordinators says which of the pool's coordinators the hub reaches. Without one it is a plain proxy: that is a warning,
// and no failure.
func (j *judge) hubCoordinators(h Hub) {
	all := h.Status.Coordinators
	if len(all) == 0 {
		all = []health.CoordinatorStatus{{Address: h.Status.CoordinatorAddress, Link: h.Status.Coordinator}}
	}
	for _, c := range all {
		switch c.Link {
		case "up":
			j.add(OK, "yurthub: coordinator", "the running yurthub reaches it at "+c.Address, "")
		case "down":
			j.add(Warn, "yurthub: coordinator", "the running yurthub does not reach it at "+orNone(c.Address),
				"see that it runs (kubectl yurt status), and that TCP 10270 is open to it; journalctl -u yurthub says why")
		}
	}
}

func (j *judge) hubDisk(h Hub) {
	d := h.Status.Disk
	if d == nil {
		return
	}
	if d.Error != "" {
		j.add(Fail, "yurthub: disk", "the running yurthub cannot write its data, so this node would not "+
			"start again while cut off: "+d.Error, "make space on the disk, or have it repaired; yurthub tries again by itself")
	} else {
		j.add(OK, "yurthub: disk", fmt.Sprintf("%s kept, %d KiB", edge.Count(len(h.Status.Kept), "selection is",
			"selections are"), d.Bytes>>10), "")
	}
	if d.Corrupt != "" {
		j.add(Warn, "yurthub: disk", "when it started, the running yurthub found damage on the disk: "+d.Corrupt,
			"have the disk looked at; the cache fills again by itself")
	}
}

func (j *judge) hubSettings(h Hub) {
	const what = "yurthub: settings of the pool"
	s := h.Status.Settings
	if s == nil {
		return
	}
	runs := fmt.Sprintf("it runs with generation %d", s.Running)
	if s.Running == 0 {
		runs = "it runs with none"
	}
	switch s.State {
	case "refused":
		j.add(Fail, what, fmt.Sprintf("the running yurthub cannot use generation %d, and %s: %s", s.Generation, runs, s.Why),
			"correct the PoolSettings, or this node's settings")
	case "restart":
		j.add(Warn, what,
			fmt.Sprintf("of generation %d, %s take effect when yurthub restarts; %s", s.Generation, s.Why, runs),
			"systemctl restart yurthub; kubelet and Pods keep running meanwhile")
	default:
		j.add(OK, what, runs, "")
		if s.Why != "" {
			j.add(Warn, what, s.Why, "install the version of yurthub that goes with coordinator-controller")
		}
	}
	if len(s.Own) > 0 {
		j.add(OK, what, "this node has its own --"+strings.Join(s.Own, ", --")+", whatever the pool says", "")
	}
}

func (j *judge) hubCertificate(f Facts, kind string, c identity.State) {
	what := "yurthub: " + kind + " certificate"
	if c.Problem == "" {
		if !c.NotAfter.IsZero() {
			j.add(OK, what, "good until "+date(c.NotAfter)+"; yurthub renews it by itself", "")
		}
		return
	}
	level, do := Warn, "it tries again by itself; journalctl -u yurthub"
	if kind == "client" && !f.Now.Before(c.NotAfter) {
		level, do = Fail, bootstrapAdvice(f.Settings)
	}
	switch {
	case c.Waiting != "" && kind == "serving":
		do = "in the cloud: kubectl describe csr " + c.Waiting + " says why; coordinator-controller must be as new as yurthub"
	case c.Waiting != "":
		do = "in the cloud: kubectl certificate approve " + c.Waiting
	}
	j.add(level, what, "the running yurthub says: "+c.Problem, do)
}

// port judges a port that the hub would need.
func (j *judge) port(p Port) {
	what := "--" + p.Flag
	_, number, _ := net.SplitHostPort(p.Address)
	switch {
	case p.Trouble != "":
		j.add(Fail, what, fmt.Sprintf("nobody can listen at %s: %s", p.Address, p.Trouble), "give an address of this node")
	case p.Held:
		j.add(Fail, what, p.Address+" is held by a program that does not answer as yurthub",
			fmt.Sprintf("ss -ltnp sport = :%s names it: end it, or give another --%s", number, p.Flag))
	default:
		j.add(OK, what, p.Address+" is free", "")
	}
}

// clock compares the node's clock with each server's, even if the server's certificate is not good: to a clock that is fifty
// years off, no certificate is.
func (j *judge) clock(f Facts) {
	const what, do = "clock", "set the clock, and have it kept: timedatectl set-ntp true, or chrony"
	if f.Now.Before(longAgo) {
		j.add(Fail, what, "the clock says "+date(f.Now)+", so that no certificate is valid: it has lost its battery, "+
			"or was never set", do)
		return
	}
	level, why := OK, ""
	for _, s := range f.Cloud {
		if s.Date.IsZero() {
			continue
		}
		skew := s.At.Sub(s.Date)
		text, l := fmt.Sprintf("agrees with that of the cloud, to %s", skew.Abs().Round(time.Second)), OK
		if skew.Abs() > clockWarn {
			direction := "ahead of"
			if skew < 0 {
				direction = "behind"
			}
			text, l = fmt.Sprintf("is %s %s that of the cloud", skew.Abs().Round(time.Second), direction), Warn
			if !s.Verified {
				text += " (by the word of a server that could not be verified)"
			}
		}
		if skew.Abs() > clockFail {
			l = Fail
		}
		if why == "" || l > level {
			level, why = l, text
		}
	}
	switch {
	case why == "":
	case level == OK:
		j.add(OK, what, why, "")
	default:
		j.add(level, what, why, do)
	}
}

// servers judges the cloud's servers. One that works is enough, because a hub tries all.
func (j *judge) servers(f Facts) {
	worst := Fail
	if slices.ContainsFunc(f.Cloud, func(s Server) bool { return s.Why == "" }) {
		worst = Warn
	}
	for _, s := range f.Cloud {
		switch {
		case s.Why == "" && s.Proxy != "":
			j.add(OK, findingCloud, s.Address+" is reached through the proxy "+s.Proxy, "")
		case s.Why == "":
			j.add(OK, findingCloud, s.Address+" is reached", "")
		case s.Unknown && f.Settings.BeforeStart && f.discovers() && len(f.Settings.Identity.CACertHashes) > 0:
			j.add(OK, findingCloud, s.Address+" answers; yurthub verifies it by the authority that it discovers", "")
		default:
			j.add(worst, findingCloud, s.Why, s.Do)
		}
	}
}

func (j *judge) node(f Facts) {
	i := slices.IndexFunc(f.Cloud, func(s Server) bool { return s.Node.Asked })
	if i < 0 {
		return
	}
	n, c := f.Cloud[i].Node, f.Settings
	const what = "node"
	switch {
	case !n.Found:
		j.add(Warn, what, fmt.Sprintf("the cloud has no Node %s", c.Node),
			"kubelet creates it when it runs; if kubelet runs, the Node has another name: kubectl get nodes")
		return
	case c.Pool != "" && n.Pool == "":
		j.add(Fail, what, fmt.Sprintf("the Node %s belongs to no pool, and --nodepool-name is %s", c.Node, c.Pool),
			fmt.Sprintf("in the cloud: kubectl label node %s %s=%s", c.Node, edge.LabelNodePool, c.Pool))
		return
	case c.Pool != "" && n.Pool != string(c.Pool):
		j.add(Fail, what, fmt.Sprintf("the Node %s belongs to the pool %s, and --nodepool-name is %s", c.Node, n.Pool, c.Pool),
			"correct --nodepool-name, or the Node's label "+edge.LabelNodePool)
		return
	}
	if n.Ready != "True" {
		j.add(Warn, what, fmt.Sprintf("the Node %s is not Ready (%s)", c.Node, orNone(n.Ready)),
			fmt.Sprintf("in the cloud: kubectl describe node %s; here: systemctl status kubelet", c.Node))
		return
	}
	j.add(OK, what, fmt.Sprintf("the Node %s is Ready%s", c.Node, inPool(n.Pool)), "")
}

func inPool(pool string) string {
	if pool == "" {
		return ""
	}
	return ", in the pool " + pool
}

func (j *judge) dir(f Facts, d Dir) {
	what := "--" + d.Flag
	switch {
	case d.Trouble != "":
		j.add(Fail, what, fmt.Sprintf("%s cannot be used: %s", d.Path, d.Trouble),
			"run this as root; if it is, see df, df -i, mount and dmesg")
	case d.Free < spaceFail:
		j.add(Fail, what, fmt.Sprintf("%d MiB are free for %s", d.Free>>20, d.Path), "make space")
	case d.Free < cacheBytes && d.Flag == flagCache && !f.Hub.answers(): // a running hub may have taken its part
		j.add(Warn, what, fmt.Sprintf("%d MiB are free for %s, and up to %d MiB may be needed", d.Free>>20, d.Path,
			cacheBytes>>20), "make space")
	default:
		j.add(OK, what, fmt.Sprintf("%s can be used, %d MiB are free", d.Path, d.Free>>20), "")
	}
}

func (j *judge) kubelet(f Facts) {
	k, want := f.Kubelet, f.Settings.hubURL()
	const what = "kubelet"
	worst := Warn
	if f.Settings.Joined {
		worst = Fail
	}
	switch {
	case k.Config.Path == "":
		j.add(worst, what, "no kubelet runs", "systemctl status kubelet; journalctl -u kubelet")
		return
	case !k.Config.fine():
		j.add(worst, what, fmt.Sprintf("kubelet's kubeconfig %s: %s", k.Config.Path, reason(k.Config)),
			"journalctl -u kubelet; if this node was joined, run join again")
		return
	case k.Server != want && f.Settings.BeforeStart:
		j.add(OK, what, "does not go through yurthub yet", "")
	case k.Server != want:
		j.add(worst, what, fmt.Sprintf("kubelet goes to %s and not through yurthub at %s (%s)", orNone(k.Server), want,
			k.Config.Path),
			"start kubelet with a kubeconfig for yurthub; join does that")
	case k.Rotates:
		// join looks before it restarts a kubelet that does so.
		j.add(worst, what, "kubelet rotates its client certificate, so it leaves out the token that proves its identity",
			"start kubelet with --rotate-certificates=false; join does that")
	default:
		j.add(OK, what, "goes through yurthub", "")
	}
	switch {
	case !k.Running:
		j.add(worst, what, "no kubelet runs", "systemctl status kubelet; journalctl -u kubelet")
	case k.NoHealth:
	case k.Health != "":
		j.add(Warn, what, "kubelet reports that it is not healthy: "+k.Health, "journalctl -u kubelet")
	}
}

func reason(f File) string {
	if f.Missing {
		return "it is not there"
	}
	return f.Trouble
}

func orNone(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// open says how far a file's mode lets others read a secret.
func open(mode fs.FileMode) (Level, string) {
	switch {
	case mode.Perm()&0o027 != 0:
		return Fail, fmt.Sprintf("%s lets others at the node's key", mode.Perm())
	case mode.Perm()&0o040 != 0:
		return Warn, fmt.Sprintf("%s lets a group read the node's key", mode.Perm())
	}
	return OK, ""
}
