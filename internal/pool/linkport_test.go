package pool

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

func withLinks(c *Config) { c.linksAnywhere = true }

// links asks a coordinator for links as a client, and reads the answer into told.
func (c *coordinator) links(t testing.TB, client *http.Client, method, query string, told any) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+c.address+edge.PathLinks+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(told); err != nil {
		t.Fatalf("%s: %v", response.Status, err)
	}
	return response.StatusCode
}

// link makes a link, by alice.
func (c *coordinator) link(t testing.TB) (made edge.NewPageLink) {
	t.Helper()
	code := c.links(t, c.http(t, c.certificate(t, pooltest.Operator())), http.MethodPost, "?for=1h", &made)
	if code != http.StatusCreated || made.Issuer != "alice" || len(made.At) != 1 {
		t.Fatalf("%d, %+v", code, made)
	}
	return made
}

// phone is a browser without a certificate.
func (c *coordinator) phone(t testing.TB) *http.Client {
	t.Helper()
	client := c.http(t)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client.Jar = jar
	return client
}

// closed waits until a port is.
func closed(t *testing.T, what, address string) {
	t.Helper()
	allowed(t, what, eventually(t.Context(), func() error {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		if err != nil {
			return err
		}
		_ = conn.Close()
		return errors.New("the port for links is open")
	}))
}

// TestAPhoneSeesThePageByALink, while that lives, and nothing else.
func TestAPhoneSeesThePageByALink(t *testing.T) {
	t.Parallel()
	c := start(t, withLinks)
	one := c.hub(t, "n1")
	one.Ask()
	one.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n1", 5)))
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "till", 10)))
	made := c.link(t)
	at := made.At[0]
	looks := func(client *http.Client, path string) (int, string) {
		t.Helper()
		code, body, err := getAt(t, client, at, path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return code, body
	}
	ana := c.phone(t)
	code, body := looks(ana, "/ui/?link="+made.Secret)
	if code != http.StatusOK || !strings.Contains(shown(t, body), "till Running") || strings.Contains(body, made.Secret) {
		t.Errorf("with the link: %d %s", code, body)
	}
	for path, want := range map[string]int{
		"/ui/": http.StatusOK, "/ui/live": http.StatusOK, "/ui/page.js": http.StatusOK, "/ui/page.css": http.StatusOK,
		"/api/v1/pods": http.StatusNotFound, "/api/v1/namespaces/default/pods/till/log": http.StatusNotFound,
		"/metrics": http.StatusNotFound, edge.PathLinks: http.StatusNotFound, edge.PathMirror: http.StatusNotFound,
		"/ui/../api/v1/pods": http.StatusNotFound, "/": http.StatusNotFound, "/livez": http.StatusNotFound,
	} {
		if code, body := looks(ana, path); code != want {
			t.Errorf("%s with the link: %d %.200s, want %d", path, code, body, want)
		}
	}
	stranger := c.phone(t)
	for _, path := range []string{
		"/ui/", "/ui/live", "/ui/page.js", "/ui/?link=" + strings.Repeat("A", 43), "/ui/?link=" + made.Secret[:42],
	} {
		if code, body := looks(stranger, path); code != http.StatusForbidden {
			t.Errorf("%s without the link: %d %.200s", path, code, body)
		}
	}
	other := start(t, withLinks)
	elsewhere := other.link(t)
	if code, _ := looks(stranger, "/ui/?link="+elsewhere.Secret); code != http.StatusForbidden {
		t.Errorf("another pool's link, or one from before a restart: %d", code)
	}
	// The port for everybody else demands a certificate as ever.
	c.shutOut(t, "a phone with a link", certificateRequired)

	var was edge.PageLinks
	if code := c.links(t, c.http(t, c.certificate(t, pooltest.Debugger())), http.MethodDelete, "", &was); code != http.StatusOK ||
		len(was.Links) != 1 || was.Links[0].Issuer != "alice" {
		t.Errorf("%d, %+v withdrawn", code, was)
	}
	closed(t, "after the last link's withdrawal", at)
	for verb, code := range map[string]int32{"post": http.StatusCreated, "delete": http.StatusOK} {
		line := c.audited(t, verb, func(e auditv1.Event) bool {
			return e.Verb == verb && strings.HasPrefix(e.RequestURI, edge.PathLinks) && e.ResponseStatus.Code == code
		})
		if text, err := json.Marshal(line); err != nil || strings.Contains(string(text), made.Secret) {
			t.Errorf("the audit log has a link's secret, %v: %s", err, text)
		}
	}
	again := c.link(t)
	if code, _, err := getAt(t, c.phone(t), again.At[0], "/ui/?link="+again.Secret); err != nil || code != http.StatusOK {
		t.Errorf("a new link, after the port was closed: %d, %v", code, err)
	}
}

// TestWhoMakesLinks: operators, and nobody else.
func TestWhoMakesLinks(t *testing.T) {
	t.Parallel()
	c := start(t, withLinks)
	scraper, node := c.http(t, c.certificate(t, pooltest.Scraper())), c.http(t, c.certificate(t, pooltest.Node("n1")))
	for who, client := range map[string]*http.Client{"a collector": scraper, "a node": node} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			if code := c.ask(t, client, method, edge.PathLinks+"?for=1h", nil); code != http.StatusForbidden {
				t.Errorf("%s, %s: %d", who, method, code)
			}
		}
	}
	operator := c.http(t, c.certificate(t, pooltest.Operator()))
	if code := c.ask(t, operator, http.MethodPut, edge.PathLinks, nil); code != http.StatusForbidden {
		t.Errorf("PUT: %d", code)
	}
	var told edge.PageLinks
	if code := c.links(t, operator, http.MethodGet, "", &told); code != http.StatusOK || len(told.Links) != 0 {
		t.Errorf("%d, %+v", code, told)
	}
	var why struct{ Message string }
	if code := c.links(t, operator, http.MethodPost, "?for=25h", &why); code != http.StatusBadRequest ||
		!strings.Contains(why.Message, "24h") {
		t.Errorf("%d %q", code, why.Message)
	}
	for range edge.MaxLinks {
		c.link(t)
	}
	if code := c.links(t, operator, http.MethodPost, "?for=1h", &why); code != http.StatusConflict ||
		!strings.Contains(why.Message, "--withdraw") {
		t.Errorf("one too many: %d %q", code, why.Message)
	}
}

// TestADeniedPersonsLinksEnd, and with the last one the port closes.
func TestADeniedPersonsLinksEnd(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "denied")
	tell(t, file, "")
	c := start(t, func(config *Config) { config.DeniedUsersFile, config.linksAnywhere = file, true })
	made := c.link(t)
	tell(t, file, "alice\n")
	closed(t, "after its issuer was denied", made.At[0])
}

// TestThePortForLinksIsBounded in headers, in connections and in what it speaks.
func TestThePortForLinksIsBounded(t *testing.T) {
	t.Parallel()
	c := start(t, withLinks)
	at := c.link(t).At[0]
	asks := func(header string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+at+"/ui/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Long", header)
		response, err := c.http(t).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.ProtoMajor != 1 {
			t.Errorf("it speaks %s", response.Proto)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	if code := asks(strings.Repeat("x", 7<<10)); code != http.StatusForbidden {
		t.Errorf("7 KB of headers: %d", code)
	}
	if code := asks(strings.Repeat("x", 8<<10)); code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("more than 8 KB of headers: %d", code)
	}
	var held []net.Conn
	defer func() {
		for _, conn := range held {
			_ = conn.Close()
		}
	}()
	dialer := tls.Dialer{Config: c.tls()}
	for range 2 * maxLinkedOfOne {
		conn, err := dialer.DialContext(t.Context(), "tcp", at)
		if err == nil {
			held = append(held, conn)
		}
	}
	open := 0
	for _, conn := range slices.Backward(held) { // once the last one is served, all that must give way have
		if _, err := io.WriteString(conn, "GET /ui/ HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			continue
		}
		if n, err := conn.Read(make([]byte, 1)); n == 1 && err == nil {
			open++
		}
	}
	if open == 0 || open > maxLinkedOfOne {
		t.Errorf("%d connections of one address are served, want %d at most", open, maxLinkedOfOne)
	}
}

// TestNoLogHasALink: who opens a link at the coordinator's own port, and is refused there, leaves a line without its secret.
func TestNoLogHasALink(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	secret := strings.Repeat("s3cret", 8)
	viewer := c.http(t, c.certificate(t, pooltest.Viewer()))
	for _, query := range []string{"?link=" + secret, "?limit=1&%6cink=" + secret, "?link=" + secret + ";x&limit=1"} {
		if code, body := c.get(t, viewer, "/api/v1/secrets"+query); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", query, code, body)
		}
		if code, _ := c.get(t, viewer, "/ui/"+query); code != http.StatusOK {
			t.Errorf("the page: %d", code)
		}
	}
	for _, uri := range []string{"/api/v1/secrets", "/api/v1/secrets?limit=1"} {
		c.audited(t, "the refusal of "+uri, func(e auditv1.Event) bool {
			return e.ResponseStatus.Code == http.StatusForbidden && e.RequestURI == uri
		})
	}
	content, err := os.ReadFile(c.audit)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), secret) {
		t.Errorf("it has the secret: %s", content)
	}
}
