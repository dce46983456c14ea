package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	clusterDomain = "cluster.local"
	// portDNS is where a node's CoreDNS answers, on its loopback and its LAN address.
	portDNS = 53
)

// corefile returns the configuration of a CoreDNS that runs on a node. The CoreDNS sees the cluster through the node's hub,
// with a token of its own. It has no cache, so an answer is what CoreDNS knows at that moment.
func (n node) corefile() string {
	return strings.NewReplacer(
		"$LAN", strings.Join(texts(n.lans(n.cfg.families())), " "), "$HUB", hubAddress, "$KUBECONFIG", n.kubeconfig(dnsUser),
		"$DOMAIN", clusterDomain,
	).Replace(`. {
    bind 127.0.0.1 $LAN
    errors
    health 127.0.0.1:8079
    ready 127.0.0.1:8181
    prometheus 127.0.0.1:9153
    kubernetes $DOMAIN in-addr.arpa ip6.arpa {
        endpoint $HUB
        kubeconfig $KUBECONFIG
        ttl 0
    }
}
`)
}

// kubeletDNS returns the setting by which kubelet tells Pods the address of their node's CoreDNS.
func (n node) kubeletDNS() string {
	if !n.cfg.CoreDNS || n.place == inCloud {
		return "clusterDNS: []"
	}
	return fmt.Sprintf("clusterDNS: [%q]", n.lan(n.cfg.families()[0]))
}

// dnsTimeout is how long an answer may take. CoreDNS answers from memory; while it starts it waits 5 s for its lists.
const dnsTimeout = 10 * time.Second

// Lookup asks a node's own CoreDNS for the addresses of a Service in the lab's IP families, over TCP, from within the node. A
// headless Service has its endpoints' addresses. The result is sorted. A name that does not exist is an error.
func (c *Client) Lookup(ctx context.Context, node, namespace, service string) ([]netip.Addr, error) {
	return c.LookupAt(ctx, node, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), portDNS), namespace, service)
}

// LookupAt does a Lookup at any DNS server that the node reaches.
func (c *Client) LookupAt(ctx context.Context, node string, server netip.AddrPort, namespace, service string,
) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	name := service + "." + namespace + ".svc." + clusterDomain + "."
	cfg, err := c.Config()
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, f := range cfg.families() {
		found, err := c.lookup(ctx, node, server, name, f.record)
		if err != nil {
			return nil, fmt.Errorf("CoreDNS at %s, from %s: %s: %w", server, node, name, errors.Join(err, context.Cause(ctx)))
		}
		addresses = append(addresses, found...)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses, nil
}

func (c *Client) lookup(ctx context.Context, node string, server netip.AddrPort, name string, record dnsmessage.Type,
) ([]netip.Addr, error) {
	conn, err := c.Dial(ctx, node, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return askDNS(conn, name, record)
}

// askDNS asks for the addresses (A or AAAA) of name over a TCP connection, where each message has its length before it (RFC 1035,
// 4.2.2).
func askDNS(conn io.ReadWriter, name string, record dnsmessage.Type) ([]netip.Addr, error) {
	const id = 1 // a connection carries one question
	query, err := dnsQuery(name, record, id)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	return dnsAnswer(answer, id)
}

func dnsQuery(name string, record dnsmessage.Type, id uint16) ([]byte, error) {
	qname, err := dnsmessage.NewName(name)
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header: dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{
			{Name: qname, Type: record, Class: dnsmessage.ClassINET},
		},
	}
	packed, err := m.AppendPack(make([]byte, 2, 512))
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint16(packed, uint16(len(packed)-2)) // a question has 300 bytes at most
	return packed, nil
}

func dnsAnswer(message []byte, id uint16) ([]netip.Addr, error) {
	var m dnsmessage.Message
	if err := m.Unpack(message); err != nil {
		return nil, err
	}
	switch {
	case m.ID != id || !m.Response:
		return nil, errors.New("the answer is to another question")
	case m.RCode != dnsmessage.RCodeSuccess:
		return nil, fmt.Errorf("the answer is %s", strings.TrimPrefix(m.RCode.String(), "RCode"))
	case m.Truncated:
		return nil, errors.New("the answer is cut off")
	}
	var addresses []netip.Addr
	for _, r := range m.Answers {
		switch a := r.Body.(type) {
		case *dnsmessage.AResource:
			addresses = append(addresses, netip.AddrFrom4(a.A))
		case *dnsmessage.AAAAResource:
			addresses = append(addresses, netip.AddrFrom16(a.AAAA))
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses, nil
}
