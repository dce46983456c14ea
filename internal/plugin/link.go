package plugin

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/rest"
	"rsc.io/qr"

	"yurtcoordinator/internal/edge"
)

// linkLife is how long a link lives unless --for says otherwise: a working day.
const linkLife = 8 * time.Hour

// maxLinkAnswer bounds what is read of a coordinator's answer, in bytes.
const maxLinkAnswer = 64 << 10

// secretOf is what a link's secret may be: nothing else gets onto the terminal, or into a browser's address line.
var secretOf = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// makeLink has a pool's coordinator make a link to its page, and shows it.
func makeLink(ctx context.Context, out io.Writer, access *rest.Config, pool string, life time.Duration) error {
	var made edge.NewPageLink
	secured, server, err := askForLinks(ctx, access, http.MethodPost, url.Values{edge.QueryFor: {life.String()}}, &made)
	if err != nil {
		return err
	}
	links, err := linksOf(made, server)
	if err != nil {
		return err
	}
	code, err := qr.Encode(links[0], qr.L)
	if err != nil {
		return fmt.Errorf("draw %s: %w", links[0], err)
	}
	fmt.Fprintf(out, "A link to the page of pool %s, for a browser on its LAN, until %s (%s):\n\n%s\n", pool,
		made.Until.Local().Format("2006-01-02 15:04"), duration.HumanDuration(time.Until(made.Until).Round(time.Minute)),
		drawn(code.Size, code.Black, coloured(out)))
	for _, link := range links {
		fmt.Fprintf(out, "  %s\n", link)
	}
	fmt.Fprintf(out, "\n"+
		"The browser will warn that it does not know who signed the page. Look at the certificate that it shows, and go on\n"+
		"only if its SHA-256 fingerprint is one of these. Otherwise somebody else on the LAN serves the page:\n\n%s\n"+
		"Whoever has the link sees the page. To end all links of the pool:\n\n  kubectl yurt ui %s --withdraw\n",
		fingerprints(secured), pool)
	return nil
}

// withdrawLinks ends all links to a pool's page.
func withdrawLinks(ctx context.Context, out io.Writer, access *rest.Config, pool string) error {
	var was edge.PageLinks
	if _, _, err := askForLinks(ctx, access, http.MethodDelete, nil, &was); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s to the page of pool %s withdrawn\n", edge.Count(len(was.Links), "link", "links"), pool)
	for _, l := range was.Links {
		fmt.Fprintf(out, "  of %s, until %s\n", l.Issuer, l.Until.Local().Format("2006-01-02 15:04"))
	}
	return nil
}

// askForLinks asks a coordinator about links, and decodes the answer into told. It returns how the connection was secured, and
// the host of the coordinator.
func askForLinks(
	ctx context.Context, access *rest.Config, method string, query url.Values, told any,
) (*tls.ConnectionState, string, error) {
	access = rest.CopyConfig(access)
	access.Timeout = pageTimeout
	server, _, err := rest.DefaultServerUrlFor(access)
	if err != nil {
		return nil, "", err
	}
	client, err := rest.HTTPClientFor(access)
	if err != nil {
		return nil, "", err
	}
	at := server.JoinPath(edge.PathLinks)
	at.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
	if err != nil {
		return nil, "", err
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, "", fmt.Errorf("%w\n(is this machine on the pool's LAN? Any node of the pool leads there: "+
			"--context=yurt-coordinator-POOL/any)", err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxLinkAnswer))
	if err != nil {
		return nil, "", err
	}
	if response.StatusCode >= http.StatusBadRequest {
		var why struct{ Message string }
		if json.Unmarshal(content, &why) != nil || why.Message == "" {
			why.Message = response.Status
		}
		if response.StatusCode == http.StatusNotFound {
			why.Message += " (is it a coordinator, of this version?)"
		}
		return nil, "", fmt.Errorf("%s: %s", server.Host, why.Message)
	}
	if err := json.Unmarshal(content, told); err != nil {
		return nil, "", fmt.Errorf("%s does not answer as a coordinator: %w", server.Host, err)
	}
	return response.TLS, server.Hostname(), nil
}

// linksOf returns the addresses that lead to the page with a link. A coordinator that names only a port is at the given host.
func linksOf(made edge.NewPageLink, host string) (all []string, err error) {
	if !secretOf.MatchString(made.Secret) {
		return nil, errors.New("the coordinator has answered without a link")
	}
	for _, at := range made.At {
		on, port, err := net.SplitHostPort(at)
		if err != nil {
			return nil, fmt.Errorf("the coordinator's address for links: %w", err)
		}
		if on == "" {
			at = net.JoinHostPort(host, port)
		} else if _, err := netip.ParseAddrPort(at); err != nil {
			return nil, fmt.Errorf("the coordinator's address for links: %w", err)
		}
		u := url.URL{Scheme: "https", Host: at, Path: edge.PathPage + "/", RawQuery: edge.QuerySecret + "=" + made.Secret}
		all = append(all, u.String())
	}
	if len(all) == 0 {
		return nil, errors.New("the coordinator does not say where its links lead")
	}
	return all, nil
}

// fingerprints tells by which certificates a browser can know the coordinator: its own, and its authority's if it was verified.
func fingerprints(secured *tls.ConnectionState) string {
	if secured == nil || len(secured.PeerCertificates) == 0 {
		return "  unknown: the connection to the coordinator is not secured\n"
	}
	said := "  the coordinator's    " + fingerprint(secured.PeerCertificates[0].Raw) + "\n"
	if len(secured.VerifiedChains) > 0 {
		chain := secured.VerifiedChains[0]
		said += "  the pool authority's " + fingerprint(chain[len(chain)-1].Raw) + "\n"
	} else {
		said += "  (not verified: the kubeconfig names no authority)\n"
	}
	return said
}

// fingerprint is the SHA-256 of a certificate, as browsers show it.
func fingerprint(certificate []byte) string {
	digest := sha256.Sum256(certificate)
	return strings.ReplaceAll(fmt.Sprintf("% X", digest[:]), " ", ":")
}

// quiet is the width of the margin that a QR code needs, in modules.
const quiet = 4

// Colours of a drawing: black on white, whatever the terminal's own are.
const paper = "\x1b[30;107m"

// drawn returns a QR code as text. size is the number of modules on each side. A character shows two modules, one above the
// other. Without colour, the text is for a terminal that shows light text on a dark ground.
func drawn(size int, black func(x, y int) bool, colour bool) string {
	dark := func(x, y int) bool { return x >= 0 && y >= 0 && x < size && y < size && black(x, y) }
	ink := dark
	if !colour { // the text's colour is the paper
		ink = func(x, y int) bool { return !dark(x, y) }
	}
	var out strings.Builder
	for y := -quiet; y < size+quiet; y += 2 {
		if colour {
			out.WriteString(paper)
		}
		for x := -quiet; x < size+quiet; x++ {
			switch upper, lower := ink(x, y), ink(x, y+1); {
			case upper && lower:
				out.WriteRune('█')
			case upper:
				out.WriteRune('▀')
			case lower:
				out.WriteRune('▄')
			default:
				out.WriteRune(' ')
			}
		}
		if colour {
			out.WriteString(reset)
		}
		out.WriteByte('\n')
	}
	return out.String()
}
