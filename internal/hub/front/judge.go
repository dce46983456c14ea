package front

import (
	"encoding/base64"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// localName is the name by which a host calls itself.
const localName = "localhost"

// Verdict is on whose behalf a request is made.
type Verdict uint8

const (
	// Stranger: it brings no credentials. The zero Verdict, so that nothing is lent by mistake.
	Stranger Verdict = iota
	// Kubelet has shown its token.
	Kubelet
	// Caller: it brings other credentials, good or bad.
	Caller
	// Misdirected: it was meant for another host, as a web page is that has its name point here.
	Misdirected
	// Misplaced: it has kubelet's token where it would travel on with the request.
	Misplaced
)

// String returns the name that metrics and logs use.
func (v Verdict) String() string {
	return [...]string{"no-credentials", "kubelet", "caller", "host", "misplaced-token"}[v]
}

// bearerProtocol begins the WebSocket subprotocol by which browsers hand an API server a token.
const bearerProtocol = "base64url.bearer.authorization.k8s.io." //nolint:gosec // a protocol's name, no secret

// Judge says on whose behalf a request at kubelet's port is made.
func (p *Proof) Judge(r *http.Request) Verdict {
	if !slices.Contains(p.hosts, r.Host) {
		return Misdirected
	}
	return p.Credentials(r)
}

// Credentials says on whose behalf a request is made, whatever its Host: for ports at which there is no kubelet.
func (p *Proof) Credentials(r *http.Request) Verdict {
	shown, ours := 0, false
	for _, value := range r.Header["Authorization"] {
		if strings.TrimSpace(value) != "" {
			shown, ours = shown+1, ours || p.within(value)
		}
	}
	for _, value := range r.Header["Sec-Websocket-Protocol"] {
		for protocol := range strings.SplitSeq(value, ",") {
			if coded, ok := strings.CutPrefix(strings.TrimSpace(protocol), bearerProtocol); ok {
				token, _ := base64.RawURLEncoding.DecodeString(coded) // what cannot be decoded is not ours
				shown, ours = shown+1, ours || p.within(string(token))
			}
		}
	}
	switch {
	case shown == 0:
		return Stranger
	case !ours:
		return Caller
	case shown == 1 && p.is(Bearer(r)):
		return Kubelet
	default:
		return Misplaced
	}
}

// Bearer returns the token that a request carries; empty if it carries none, or more than one thing.
func Bearer(r *http.Request) string {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// within reports whether the token is one of the words of a text.
func (p *Proof) within(text string) bool {
	between := func(r rune) bool { return r <= ' ' || r == ',' || r == ';' || r == '"' }
	return slices.ContainsFunc(strings.FieldsFunc(text, between), p.is)
}

// hosts are the values of Host by which a port can be meant.
func hosts(address net.IP, port int) []string {
	number := strconv.Itoa(port)
	return []string{net.JoinHostPort(address.String(), number), net.JoinHostPort(localName, number)}
}
