package kit

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"yurtcoordinator/internal/edge"
)

// HubCertificate waits until the node's hub has a certificate by its pool's authority, and returns it without the authority.
func (node Node) HubCertificate() *tls.Certificate {
	var pair tls.Certificate
	node.t.Eventually(60*time.Second, "the hub of "+node.name+" has a certificate by its pool's authority", func() error {
		content, err := os.ReadFile(filepath.Join(node.HubKeys(), "hub.pem"))
		if err == nil {
			pair, err = tls.X509KeyPair(content, content)
		}
		return err
	})
	pair.Certificate = pair.Certificate[:1]
	return &pair
}

// Tunnel asks the node's hub from another machine for a tunnel over its line, and returns the first line of the answer. It shows
// the certificate pair; nil means none.
func (node Node) Tunnel(from string, pair *tls.Certificate, target string) (net.Conn, string, error) {
	t := node.t
	raw, err := t.Lab.Dial(t.Ctx, from, net.JoinHostPort(node.Address(), strconv.Itoa(edge.PortHubRelay)))
	t.Must(err)
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // who attacks does not care whom
	if pair != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	conn := tls.Client(raw, config)
	_ = raw.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = io.WriteString(conn, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	line := ""
	for one := make([]byte, 1); err == nil && !strings.HasSuffix(line, "\r\n\r\n"); { // and nothing of what follows
		if _, err = conn.Read(one); err == nil {
			line += string(one)
		}
	}
	line, _, _ = strings.Cut(line, "\r\n")
	if err != nil {
		_ = conn.Close()
		return nil, line, err
	}
	_ = raw.SetDeadline(time.Time{})
	return conn, line, nil
}
