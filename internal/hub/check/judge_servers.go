package check

import (
	"fmt"
	"net/url"
)

// servers judges the servers of one kind. One that works is enough, because a hub tries all. Without its coordinator a hub is
// a plain proxy, which is worth a warning but is no failure.
func (j *judge) servers(f Facts, all []Server) {
	worst := Fail
	for _, s := range all {
		if s.Problem == "" || s.Name == nameCoordinator {
			worst = Warn
		}
	}
	for _, s := range all {
		if s.Problem == "" {
			why := s.Address + " is reached"
			if s.Proxy != "" {
				why += " through the proxy " + s.Proxy
			}
			if s.User != "" {
				why += fmt.Sprintf(", and knows this node as %s", s.User)
			}
			j.add(OK, s.Name, why, "")
			continue
		}
		if s.Problem == NoAuthority && f.Settings.BeforeStart && f.discovers() && len(f.Settings.CACertHashes) > 0 {
			j.add(OK, s.Name, s.Address+" answers; yurthub verifies it by the authority that it discovers", "")
			continue
		}
		why, do := explain(f, s)
		j.add(worst, s.Name, why, do)
	}
}

// discovers reports whether the cloud's authority is not known, and a hub finds it out with its token when it starts.
func (f Facts) discovers() bool {
	k := f.Keys
	return k.CA.Path == "" && f.Settings.ownCertificate() && k.Bootstrap.fine() && k.Bootstrap.Path != ""
}

// explain says in plain words what keeps the node from using a server.
func explain(f Facts, s Server) (why, do string) {
	host, port := s.Address, ""
	if u, err := url.Parse(s.Address); err == nil && u.Host != "" {
		host, port = u.Hostname(), u.Port()
	}
	ca := f.Keys.CA.Path
	if s.Name == nameCoordinator && f.Settings.CoordinatorCAFile != "" {
		ca = f.Settings.CoordinatorCAFile
	}
	if s.Name == nameCoordinator && len(f.Settings.CoordinatorCA) > 0 {
		ca = "what the cloud says of the coordinator"
	}
	switch s.Problem {
	case BadAddress:
		return fmt.Sprintf("%q is not an address: %s", s.Address, s.Detail), "give https://HOST:PORT"
	case NoName:
		return fmt.Sprintf("the name %s of %s is not known: %s", host, s.Address, s.Detail),
			"correct the name, or have it entered into DNS; or give an IP address"
	case NoNameServer:
		return fmt.Sprintf("no name server resolves %s of %s: %s", host, s.Address, s.Detail),
			"see /etc/resolv.conf, and whether this node reaches the name servers in it"
	case Refused:
		return fmt.Sprintf("%s refuses connections: the host is there, but nothing listens on that port, or a "+
				"firewall says no", s.Address),
			"see that the API server runs, and the firewalls for port " + port
	case NoRoute:
		return fmt.Sprintf("there is no way to %s: %s", s.Address, s.Detail), "ip route get " + host +
			"; see cables, routes and interfaces"
	case NoConnection:
		return fmt.Sprintf("%s does not answer when connected to: %s", s.Address, s.Detail),
			"the link is down, or a firewall swallows packets: ping " + host
	case NoProxy, ProxyUnreached, ProxyDenies, ProxyStuck:
		return explainProxy(s)
	case NoHandshake:
		return fmt.Sprintf("%s takes connections but does not speak TLS: %s", s.Address, s.Detail),
			"see whether that is the API server's port, and what stands in between"
	case NoAuthority:
		return fmt.Sprintf("%s answers, but its certificate (%s) cannot be verified yet: its authority is not known",
				s.Address, s.Peer),
			"give --ca-file, or let yurthub discover it with --bootstrap-file and --discovery-token-ca-cert-hash"
	case UnknownAuthority:
		return fmt.Sprintf("the certificate of %s (%s) is not signed by the authority in %s", s.Address, s.Peer, ca),
			"get the present authority of the cloud; if that is right, something in between poses as the server"
	case WrongName:
		return fmt.Sprintf("the certificate of %s is not for %s: %s", s.Address, host, s.Detail),
			"give an address that is in the certificate, or have this one added (kubeadm: certSANs)"
	case Expired:
		return fmt.Sprintf("the certificate of %s (%s) expired at %s, and the clock says %s", s.Address, s.Peer,
				date(s.PeerEnd), date(f.Now)),
			"set the clock if it is wrong; else renew the server's certificate (kubeadm certs renew)"
	case NotYetValid:
		return fmt.Sprintf("the certificate of %s (%s) begins at %s, and the clock says %s", s.Address, s.Peer,
				date(s.PeerFrom), date(f.Now)),
			"set this node's clock"
	}
	return explainAnswer(f, s)
}

// explainProxy does what explain does, for a proxy on the way.
func explainProxy(s Server) (why, do string) {
	switch s.Problem {
	case NoProxy:
		return fmt.Sprintf("the way to %s leads through a proxy, and what is said of that is of no use: %s", s.Address, s.Detail),
			"correct --proxy-file, or HTTPS_PROXY"
	case ProxyUnreached:
		return fmt.Sprintf("the proxy %s on the way to %s cannot be reached: %s", s.Proxy, s.Address, s.Detail),
			"see that the proxy runs, and the way there; or correct --proxy-file, or HTTPS_PROXY"
	case ProxyDenies:
		return fmt.Sprintf("the proxy %s does not let this node reach %s: %s", s.Proxy, s.Address, s.Detail),
			"correct the user and the password in --proxy-file, or have the proxy allow this server"
	}
	return fmt.Sprintf("the proxy %s does not reach %s: %s", s.Proxy, s.Address, s.Detail),
		"the proxy runs: see its own way to the cloud, and its log"
}

// explainAnswer does what explain does, for a server with a good certificate.
func explainAnswer(f Facts, s Server) (why, do string) {
	switch s.Problem {
	case RefusedPair:
		return fmt.Sprintf("%s does not take the certificate in %s: %s", s.Address, s.With, s.Detail),
			"it is from another cluster, or expired: see its line above"
	case NoAnswer:
		return fmt.Sprintf("%s does not answer requests: %s", s.Address, s.Detail),
			"see the API server's log, and what stands in between"
	case NotReady:
		return fmt.Sprintf("%s answers, but is not ready: %s", s.Address, s.Detail), "see the API server's log"
	case Unauthorized:
		return fmt.Sprintf("%s does not recognize this node by %s: %s", s.Address, s.With, s.Detail),
			"the certificate is expired, or from another cluster: see its line above"
	case OtherUser:
		return fmt.Sprintf("%s takes this node for %q, not for %s (by %s)", s.Address, s.User, f.Settings.Node.User(), s.With),
			"correct --node-name, or the certificate"
	default:
		return fmt.Sprintf("%s: %s: %s", s.Address, s.Problem, s.Detail), "see the API server's certificate"
	}
}
