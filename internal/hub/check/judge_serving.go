package check

import "fmt"

const approve = "in the cloud: give the chart controller.kubeletServing.cidrs with this node's address, or kubectl get csr and " +
	"kubectl certificate approve"

// serving says whether the pool's coordinator can know kubelet, for logs, exec and top on site.
func (j *judge) serving(f Facts) {
	const what = "kubelet's serving certificate"
	k, s := f.Kubelet, f.Kubelet.Serving
	if !k.Running || len(f.Settings.Coordinators) == 0 && f.Settings.Pool == "" {
		return // nothing serves, or nobody on site asks
	}
	switch {
	case s.File.Path == "":
		j.add(Warn, what, "kubelet's settings can't be read: "+s.File.Trouble, "run this as root; see kubelet's --config")
		return
	case s.Bootstrapped && s.File.Missing:
		j.add(Warn, what, "kubelet has serverTLSBootstrap, and nobody has approved its request: it serves neither logs "+
			"nor commands",
			approve)
		return
	case s.Bootstrapped && !s.NotAfter.IsZero() && f.Now.After(s.NotAfter):
		j.add(Warn, what, fmt.Sprintf("kubelet has serverTLSBootstrap, and its certificate ended at %s: it serves "+
			"neither logs nor commands", date(s.NotAfter)), approve)
		return
	case !s.File.fine():
		j.add(Warn, what, fmt.Sprintf("%s: %s", s.File.Path, reason(s.File)), "journalctl -u kubelet")
		return
	case s.Bootstrapped && s.NotAfter.Sub(f.Now) < s.NotAfter.Sub(s.NotBefore)/10: // kubelet has asked since then
		j.add(Warn, what, fmt.Sprintf("kubelet has serverTLSBootstrap, its certificate ends at %s, and nobody has approved its "+
			"request for the next", date(s.NotAfter)), approve)
		return
	}
	if hub := f.Hub.Status.Kubelet; hub != nil && hub.Digest != s.Digest {
		found := "another"
		if hub.Problem != "" {
			found = "none (" + hub.Problem + ")"
		}
		j.add(Warn, what, fmt.Sprintf("kubelet serves with %s, and the running yurthub has found %s: the coordinator "+
			"does not know kubelet by it", s.File.Path, found), "run join again; or set yurthub's --kubelet-config and "+
			"--kubelet-serving-certificate")
		return
	}
	by := "its own"
	if s.Signed {
		by = "the cloud's authority's"
	}
	j.add(OK, what, fmt.Sprintf("%s is %s; the coordinator takes exactly it", s.File.Path, by), "")
}
