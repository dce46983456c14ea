package check

import (
	"fmt"
	"io/fs"
	"net"
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/identity"
)

const (
	// clockWarn and clockFail are the differences between the node's clock and a server's above which the check warns or fails.
	// Kubernetes' own signer dates certificates back by 5 minutes.
	clockWarn = 30 * time.Second
	clockFail = 5 * time.Minute

	// soon is the remaining life below which the check warns about a certificate. A tenth of the certificate's whole life counts
	// instead if it is less, because the hub renews its own certificates at 9/10 of their life at the latest.
	soon = 7 * 24 * time.Hour

	// cacheBytes is how large the hub's cache may grow; with less than spaceFail free the hub cannot work at all.
	cacheBytes = 256 << 20
	spaceFail  = 16 << 20
	// findingCloud names the finding about the way to the cloud, findingHubCloud the one about the running hub's link. An upgrade
	// looks for both names.
	findingCloud, findingHubCloud = "cloud", "yurthub: cloud"

	findingSettings, findingClient = "settings", "yurthub: client certificate"
	findingPast                    = "programs past yurthub"

	flagCache, flagCerts = "disk-cache-path", "cert-dir"
	correct              = "correct the settings; yurthub does not start with these"
)

// longAgo is a time before this program existed: a clock that shows an earlier time has lost its battery.
var longAgo = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// Judge turns facts into findings, in the order in which a person would look.
func Judge(f Facts) []Finding {
	var j judge
	if err := f.Settings.Validate(); err != nil {
		j.add(Fail, findingSettings, err.Error(), correct)
	}
	j.hub(f)
	for _, p := range f.Ports {
		j.port(p)
	}
	j.keys(f)
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

// asRoot is what to do about something that others than root may see wrongly.
func (f Facts) asRoot(do string) string {
	if f.Root {
		return do
	}
	return "run this as root"
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

// keys judges the node's certificates, and what verifies the cloud.
func (j *judge) keys(f Facts) {
	k := f.Keys
	switch {
	case k == nil:
		return
	case k.Refused != "":
		j.add(Fail, findingSettings, k.Refused, correct)
		return
	}
	j.authority(f)
	if level, why := open(k.Mode); level != OK {
		j.add(level, findingClient, fmt.Sprintf("%s is %s", k.KeyFile, why), "chmod 0600 "+k.KeyFile)
	}
	j.client(f)
	j.certificate(f, "yurthub: serving certificate", k.Serving, Warn, renewing(f.Settings))
}

func (j *judge) authority(f Facts) {
	const what = "authority"
	k, until := f.Keys, time.Time{}
	for _, a := range k.Authorities.Trusted {
		if a.NotAfter.After(until) {
			until = a.NotAfter
		}
	}
	switch {
	case k.undiscovered():
		j.add(OK, what, "not known yet; yurthub discovers it with the bootstrap token", "")
	case until.IsZero():
		j.add(Fail, what, k.Authorities.Problem, f.asRoot("give --ca-file, with /etc/kubernetes/pki/ca.crt of the cloud"))
	case !f.Now.Before(until):
		j.add(Fail, what, fmt.Sprintf("%s expired at %s, and the clock says %s", k.RootsFrom, date(until), date(f.Now)),
			"get the cloud's present one")
	default:
		j.add(OK, what, k.RootsFrom+" is good until "+date(until), "")
	}
}

// client judges the certificate by which the cloud knows the node.
func (j *judge) client(f Facts) {
	s, c := f.Keys.Client, f.Settings
	switch {
	case s.Problem != "" || !s.NotAfter.IsZero():
		do := renewing(c)
		switch {
		case s.Problem != "" && c.OwnCertificate():
			do = f.asRoot(bootstrapAdvice(c))
		case s.Problem != "":
			do = f.asRoot("correct --cert-file, --key-file or --node-name, or put good files there")
		}
		j.certificate(f, findingClient, s, Fail, do)
	case c.BeforeStart:
		j.add(OK, findingClient, "there is none yet; yurthub will ask for one", "")
	default:
		j.add(Fail, findingClient, "the node has none yet, and yurthub asks for one",
			"wait; if it stays so: journalctl -u yurthub")
	}
}

// certificate judges a certificate, or the problem of getting one. worst is the level if the node has no certificate that is good
// now, and do is the usual advice.
func (j *judge) certificate(f Facts, what string, s identity.State, worst Level, do string) {
	now, left := f.Now, s.NotAfter.Sub(f.Now)
	switch {
	case s.Problem != "":
		level := worst
		if left > 0 {
			level, do = Warn, "it tries again by itself; journalctl -u yurthub"
		}
		switch {
		case s.Waiting != "" && what == findingClient:
			do = "in the cloud: kubectl certificate approve " + s.Waiting
		case s.Waiting != "":
			do = "in the cloud: kubectl describe csr " + s.Waiting + " says why; coordinator-controller must be as new as yurthub"
		}
		j.add(level, what, s.Problem, do)
	case s.NotAfter.IsZero():
	case now.Before(s.NotBefore):
		j.add(worst, what, fmt.Sprintf("it begins at %s, and the clock says %s", date(s.NotBefore), date(now)), "set the clock")
	case left <= 0:
		j.add(worst, what, fmt.Sprintf("it expired at %s, and the clock says %s", date(s.NotAfter), date(now)), do)
	case left < min(soon, s.NotAfter.Sub(s.NotBefore)/10):
		j.add(Warn, what, fmt.Sprintf("it expires in %s, at %s", left.Round(time.Minute), date(s.NotAfter)), do)
	case f.Settings.OwnCertificate():
		j.add(OK, what, "good until "+date(s.NotAfter)+"; yurthub renews it by itself", "")
	default:
		j.add(OK, what, "good until "+date(s.NotAfter), "")
	}
}

func renewing(c Config) string {
	if c.OwnCertificate() {
		return "yurthub renews it by itself when it reaches the cloud"
	}
	return "renew this certificate with the program that maintains it"
}

func bootstrapAdvice(c Config) string {
	path := c.Identity.BootstrapFile
	if path == "" {
		return "give --bootstrap-file, with a token from kubeadm token create in it"
	}
	return "in the cloud: kubeadm token create; put the token into " + path
}

// clock compares the node's clock with each server's. A server's time counts even if its certificate can't be verified, because
// no certificate can be verified with a clock that is fifty years off.
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
		case s.Unknown && f.Settings.BeforeStart && f.Keys.undiscovered():
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
			f.asRoot("see df, df -i, mount and dmesg"))
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
	const what, look = "kubelet", "systemctl status kubelet; journalctl -u kubelet"
	worst := Warn
	if f.Settings.Joined {
		worst = Fail
	}
	switch {
	case !k.Running || k.Config == "":
		j.add(worst, what, "no kubelet runs", look)
		return
	case k.Trouble != "":
		j.add(worst, what, fmt.Sprintf("kubelet's kubeconfig %s: %s", k.Config, k.Trouble),
			"journalctl -u kubelet; if this node was joined, run join again")
		return
	case k.Server != want && f.Settings.BeforeStart:
		j.add(OK, what, "does not go through yurthub yet", "")
	case k.Server != want:
		j.add(worst, what, fmt.Sprintf("kubelet goes to %s and not through yurthub at %s (%s)", orNone(k.Server), want, k.Config),
			"start kubelet with a kubeconfig for yurthub; join does that")
	case k.Rotates:
		// join looks before it restarts a kubelet that does so.
		j.add(worst, what, "kubelet rotates its client certificate, so it leaves out the token that proves its identity",
			"start kubelet with --rotate-certificates=false; join does that")
	default:
		j.add(OK, what, "goes through yurthub", "")
	}
	if k.Health != "" {
		j.add(Warn, what, "kubelet reports that it is not healthy: "+k.Health, "journalctl -u kubelet")
	}
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
