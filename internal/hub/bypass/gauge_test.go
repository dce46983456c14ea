package bypass

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestConnectionsPastTheHub: another program's connections count, and the hub's own do not. The kernel has two sockets for a
// connection within this machine; the one here belongs to this process.
func TestConnectionsPastTheHub(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	server := netip.MustParseAddrPort(l.Addr().String())
	proc := t.TempDir()
	// A /proc in which this process has no sockets: then its connections are another's.
	if err := os.Symlink("/proc/self", proc+"/self"); err != nil {
		t.Fatal(err)
	}
	user := strconv.Itoa(os.Getuid())
	for path, want := range map[string]int{"/proc": 0, proc: 1} {
		g := &Gauge{about: prometheus.NewDesc("past", "", []string{"user"}, nil), proc: path,
			servers: func() []netip.AddrPort { return []netip.AddrPort{server} }}
		said := "# HELP past \n# TYPE past gauge\npast{user=\"0\"} 0\n"
		if want > 0 {
			said = strings.TrimSuffix(said, "past{user=\"0\"} 0\n")
			if user != "0" {
				said += "past{user=\"0\"} 0\n"
			}
			said += "past{user=\"" + user + "\"} " + strconv.Itoa(want) + "\n"
		}
		if err := testutil.CollectAndCompare(g, strings.NewReader(said)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestByAddress: a server by its address, with its port or https's; one with a name is nowhere.
func TestByAddress(t *testing.T) {
	var servers []*url.URL
	for _, text := range []string{
		"https://10.0.0.1:6443/path", "https://10.0.0.2", "https://[fd00::1]:6443", "https://[::ffff:10.0.0.3]:6443",
		"https://cloud.example:6443", "https://10.0.0.4:99999",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, u)
	}
	var want []netip.AddrPort
	for _, text := range []string{"10.0.0.1:6443", "10.0.0.2:443", "[fd00::1]:6443", "10.0.0.3:6443"} {
		want = append(want, netip.MustParseAddrPort(text))
	}
	if got := ByAddress(servers...); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
