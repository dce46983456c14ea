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

// Verdict says on whose behalf a request is made.
type Verdict uint8

const (
	// Stranger: the request has no credentials. This is the zero Verdict, so that no identity is lent by mistake.
	Stranger Verdict = iota
	// Kubelet: the request has kubelet's token.
	Kubelet
	// Caller: the request has other credentials, valid or not.
	Caller
	// Misdirected: the request's Host names another host, as when the DNS name of a web page was pointed at this port.
	Misdirected
	// Misplaced: the request has kubelet's token at another port than kubelet's, or in another way than as its only bearer token.
	Misplaced
)

// String returns the name that metrics and logs use.
func (v Verdict) String() string {
	return [...]string{"no-credentials", "kubelet", "caller", "host", "misplaced-token"}[v]
}

// bearerProtocol is the prefix of the WebSocket subprotocol by which browsers pass a token to an API server.
const bearerProtocol = "base64url.bearer.authorization.k8s.io." //nolint:gosec // a protocol's name, no secret

// Judge returns on whose behalf a request at kubelet's port is made.
func (p *Proof) Judge(r *http.Request) Verdict {
	if !slices.Contains(p.hosts, r.Host) {
		return Misdirected
	}
	return p.Credentials(r)
}

// Credentials returns on whose behalf a request is made, whatever its Host; for ports that kubelet does not use.
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

// Bearer returns the bearer token of a request; empty if it has none, or several Authorization headers.
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

// hosts returns the values of Host that mean this port.
func hosts(address net.IP, port int) []string {
	number := strconv.Itoa(port)
	return []string{net.JoinHostPort(address.String(), number), net.JoinHostPort(localName, number)}
}
