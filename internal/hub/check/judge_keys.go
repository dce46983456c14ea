package check

import (
	"fmt"
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
)

func (j *judge) keys(f Facts) {
	k, c := f.Keys, f.Settings
	j.authority(f)
	usable := j.means(f)
	const what = "certificate"
	if c.OwnCertificate() && k.Cert.Missing {
		switch {
		case usable && c.BeforeStart:
			j.add(OK, what, "there is none yet; yurthub will ask for one", "")
		case usable:
			j.add(Fail, what, "the node has none yet, and yurthub asks for one", "wait; if it stays so: journalctl -u yurthub")
		default:
			j.add(Fail, what, "the node has none, and nothing to get one with", bootstrapAdvice(c))
		}
		return
	}
	for _, file := range []File{k.Cert, k.Key} {
		if !file.fine() {
			j.add(Fail, what, file.Path+": "+reason(file), "run this as root; if it is, put the file there")
			return
		}
		if k.Cert.Path == k.Key.Path {
			break
		}
	}
	if level, why := open(k.Key.Mode); level != OK {
		j.add(level, what, fmt.Sprintf("%s is %s", k.Key.Path, why), "chmod 0600 "+k.Key.Path)
	}
	do := "renew this certificate with the program that maintains it"
	if c.OwnCertificate() {
		do = "yurthub renews it by itself when it reaches the cloud"
		if !usable {
			do = bootstrapAdvice(c)
		}
	}
	j.pair(f, what, k.Cert.Path, k.Pair, do, Fail)
}

func bootstrapAdvice(c Config) string {
	path := c.Identity.BootstrapFile
	if path == "" {
		return "give --bootstrap-file, with a token from kubeadm token create in it"
	}
	return "in the cloud: kubeadm token create; put the token into " + path
}

// pair judges a certificate that was read.
func (j *judge) pair(f Facts, what, path string, p Pair, do string, worst Level) {
	user, now := f.Settings.Node.User(), f.Now
	left := p.NotAfter.Sub(now)
	switch {
	case p.CommonName != user:
		j.add(Fail, what, fmt.Sprintf("%s is for %q, and this node is %q", path, p.CommonName, user),
			"correct --node-name, which must be the name of the Node, or the file")
	case !slices.Contains(p.Organizations, edge.GroupNodes):
		j.add(worst, what, fmt.Sprintf("%s is not for the group %s", path, edge.GroupNodes),
			"give a node's certificate; this is not one")
	case !p.ForClients:
		j.add(worst, what, path+" is not for clients", "give the node's client certificate; this one is for a server")
	case now.Before(p.NotBefore):
		j.add(worst, what, fmt.Sprintf("%s begins at %s, and the clock says %s", path, date(p.NotBefore), date(now)),
			"set the clock")
	case left <= 0:
		j.add(worst, what, fmt.Sprintf("%s expired at %s, and the clock says %s", path, date(p.NotAfter), date(now)), do)
	case left < min(soon, p.NotAfter.Sub(p.NotBefore)/10):
		j.add(Warn, what, fmt.Sprintf("%s expires in %s, at %s", path, left.Round(time.Minute), date(p.NotAfter)), do)
	default:
		j.add(OK, what, fmt.Sprintf("%s is that of %s, until %s", path, user, date(p.NotAfter)), "")
	}
}

// means judges the means by which the hub can get a certificate, and reports whether it has any.
func (j *judge) means(f Facts) (usable bool) {
	k, c := f.Keys, f.Settings
	if !c.OwnCertificate() {
		return false
	}
	if b := k.Bootstrap; b.fine() && b.Path != "" {
		usable = true
	} else if b.Trouble != "" {
		j.add(Warn, "bootstrap", b.Path+": "+b.Trouble, bootstrapAdvice(c))
	}
	if k.Kubelet.Path == "" {
		return usable
	}
	const what = "kubelet's certificate"
	switch {
	case !k.Kubelet.fine():
		j.add(Warn, what, k.Kubelet.Path+": "+reason(k.Kubelet), "needed only until the hub has its own, and if that expires")
	case !k.KubeletPair.Present:
	default:
		j.pair(f, what, k.Kubelet.Path, k.KubeletPair, "yurthub renews it when it reaches the cloud", Warn)
		usable = usable || !f.Now.After(k.KubeletPair.NotAfter)
	}
	return usable
}

// discovers reports whether the cloud's authority is not known, and a hub finds it out with its token when it starts.
func (f Facts) discovers() bool {
	k := f.Keys
	return k.CA.Path == "" && f.Settings.OwnCertificate() && k.Bootstrap.fine() && k.Bootstrap.Path != ""
}

func (j *judge) authority(f Facts) {
	k, c := f.Keys, f.Settings
	const what = "authority"
	switch {
	case f.discovers():
		if len(c.Identity.CACertHashes) == 0 {
			j.add(Warn, what, "the cloud's authority is not known yet, and no hash is given to recognize it",
				"give --discovery-token-ca-cert-hash; kubeadm token create --print-join-command prints it")
			return
		}
		j.add(OK, what, "not known yet; yurthub discovers it with the bootstrap token", "")
	case k.CA.Path == "":
		j.add(Fail, what, "there is no authority to verify the cloud with",
			"give --ca-file, with /etc/kubernetes/pki/ca.crt of the cloud")
	case !k.CA.fine():
		j.add(Fail, what, k.CA.Path+": "+reason(k.CA), "give the cloud's /etc/kubernetes/pki/ca.crt as --ca-file")
	case !f.Now.Before(k.CAExpiry):
		j.add(Fail, what, fmt.Sprintf("%s expired at %s, and the clock says %s", k.CA.Path, date(k.CAExpiry), date(f.Now)),
			"get the cloud's present one")
	default:
		j.add(OK, what, k.CA.Path+" is good until "+date(k.CAExpiry), "")
	}
}
