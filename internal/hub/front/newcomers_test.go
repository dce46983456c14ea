package front

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
)

// byToken takes whoever shows "kubelet" for it.
type byToken struct{}

func (byToken) Judge(r *http.Request) Verdict {
	verdict := (&Proof{}).Credentials(r)
	if verdict == Caller && Bearer(r) == "kubelet" {
		return Kubelet
	}
	return verdict
}

func (b byToken) Credentials(r *http.Request) Verdict { return b.Judge(r) }

// At kubelet's port only authenticated clients keep connections: with kubelet's token, or with one that the cloud knows. A client
// with no token, a malformed one or a made-up one makes room for the next.
func TestWhoHasNotProvedWhoHeIsMakesRoom(t *testing.T) {
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		if token := Bearer(r); token != "" && token != "agent" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	const most = 4
	var refused atomic.Int64
	server, err := Listen(ends.Net{}, "127.0.0.1:0", ServerConfig{
		Handler: newFront(Config{Cloud: u, Proof: byToken{}}), HTTP1: true, Newcomers: most,
		TLS:     &tls.Config{Certificates: []tls.Certificate{serverPair(t)}},
		Refused: func(netip.AddrPort, conns.Reason, error) { refused.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	background(t, server.Run)
	address := server.listener.Addr().String()
	connect := func() net.Conn {
		raw, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn, credentials string) string {
		head := "GET /version HTTP/1.1\r\nHost: hub\r\n"
		if credentials != "" {
			head += "Authorization: " + credentials + "\r\n"
		}
		if _, err := io.WriteString(c, head+"\r\n"); err != nil {
			return "closed"
		}
		answer := make([]byte, 4096)
		n, err := c.Read(answer)
		if err != nil {
			return "closed"
		}
		return strings.Fields(string(answer[:n]))[1]
	}
	all := map[string]net.Conn{}
	for credentials, want := range map[string]string{
		"Bearer kubelet": "200", "Bearer agent": "200", "Bearer made-up": "401", "": "401", "Basic YTpi": "200",
	} {
		all[credentials] = connect()
		if got := ask(all[credentials], credentials); got != want {
			t.Errorf("%q: %s, want %s", credentials, got, want)
		}
	}
	for i := range 3 * most { // in the handshake, and after it
		raw, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = raw.Close() })
		if last := connect(); ask(last, "Bearer made-up") != "401" {
			t.Fatalf("newcomer %d is not served", i)
		}
	}
	for credentials, want := range map[string]string{
		"Bearer kubelet": "200", "Bearer agent": "200", "Bearer made-up": "closed", "": "closed", "Basic YTpi": "closed",
	} {
		if got := ask(all[credentials], credentials); got != want {
			t.Errorf("afterwards %q: %s, want %s", credentials, got, want)
		}
	}
	if n := refused.Load(); n < 6*most+3-most {
		t.Errorf("told of %d", n)
	}
}

// One of the host's programs has a fourth of the places, whatever tokens it makes up; kubelet needs none of them.
func TestAProgramLeavesRoomForOthers(t *testing.T) {
	f := newFront(Config{Cloud: nowhere{}, Proof: byToken{}, MaxReadOnly: 100, Replicas: byName("replica")})
	newcomer := func(owner string, proved bool) func(token string) int {
		c := &conns.Newcomer{Owner: owner}
		if proved {
			c.Prove()
		}
		return func(token string) int {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/endpoints", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			f.ServeHTTP(w, r.WithContext(conns.WithNewcomer(r.Context(), c)))
			return w.Code
		}
	}
	taken := 0
	for f.shares.enter(portion{"uid 1000", readOnly}, f.limits[others][readOnly].max) {
		taken++
	}
	if taken != 25 {
		t.Errorf("a user has %d of 100 places", taken)
	}
	for n := range 3 {
		if got := newcomer("1000", false)(fmt.Sprint("made-up-", n)); got != http.StatusTooManyRequests {
			t.Errorf("one too many of a user: %d", got)
		}
	}
	for who, got := range map[string]int{
		"another user": newcomer("0", false)("agent"), "a known token": newcomer("1000", true)("agent"),
		"kubelet": newcomer("1000", false)("kubelet"),
	} {
		if got == http.StatusTooManyRequests {
			t.Errorf("%s finds no place", who)
		}
	}
}
