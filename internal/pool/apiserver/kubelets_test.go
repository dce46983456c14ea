package apiserver

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestWhereAKubeletCanBe(t *testing.T) {
	v4, v6 := Kubelets{Self: netip.MustParseAddr("192.0.2.1")}, Kubelets{Self: netip.MustParseAddr("fd00::1")}
	all, lo := Kubelets{Self: netip.MustParseAddr("0.0.0.0")}, Kubelets{Self: netip.MustParseAddr("127.0.0.1")}
	both := Kubelets{Self: v4.Self, More: func() []netip.Addr { return []netip.Addr{v6.Self} }}
	for at, want := range map[string]map[*Kubelets]string{
		"192.0.2.7:10250":          {&v4: "", &v6: "other IP family", &all: "", &both: "", {}: ""},
		"10.1.2.3:10250":           {&v4: ""},
		"[fd00::7]:10250":          {&v4: "other IP family", &v6: "", &all: "", &both: ""},
		"[::ffff:192.0.2.7]:10250": {&v4: "", &v6: "other IP family"},
		"192.0.2.7:22":             {&v4: "port 22, only at 10250", {Anywhere: true}: ""},
		"192.0.2.7:10255":          {&v4: "port 10255"},
		"127.0.0.1:10250":          {&v4: "no address on a LAN", &all: "no address on a LAN", &lo: "", {Anywhere: true}: ""},
		"[::1]:10250":              {&v6: "no address on a LAN", &both: "no address on a LAN"},
		"[::ffff:127.0.0.1]:10250": {&v4: "no address on a LAN"},
		"169.254.169.254:10250":    {&v4: "no address on a LAN"},
		"[fe80::1]:10250":          {&v6: "no address on a LAN"},
		"224.0.0.1:10250":          {&v4: "no address on a LAN"},
		"255.255.255.255:10250":    {&v4: "no address on a LAN"},
		"0.0.0.0:10250":            {&v4: "no address on a LAN"},
		"[::]:10250":               {&v6: "no address on a LAN"},
	} {
		for k, why := range want {
			err := k.may(netip.MustParseAddrPort(at))
			if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
				t.Errorf("%s, from %s: %v, want %q", at, k.Self, err, why)
			}
		}
	}
}

// TestKubeletsAreDialledByAddress: no name is resolved, and nobody is connected to who can't be a kubelet.
func TestKubeletsAreDialledByAddress(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	k := Kubelets{Self: netip.MustParseAddr("192.0.2.1")}
	for address, why := range map[string]string{
		"localhost:10250": "no IP address", listener.Addr().String(): "only at 10250",
	} {
		if conn, err := k.dial(t.Context(), "tcp", address); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, %v, want %q", address, conn, err, why)
		}
	}
	k.Anywhere = true
	conn, err := k.dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
