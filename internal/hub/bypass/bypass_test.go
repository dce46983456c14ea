package bypass

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"
)

// host is a machine as its /proc shows it.
type host struct {
	t    *testing.T
	proc string
}

func (h host) write(pid int, name, content string) {
	h.t.Helper()
	path := filepath.Join(h.proc, strconv.Itoa(pid), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// process adds one in a network, with sockets.
func (h host) process(pid int, name, cgroup, environment, network string, inodes ...int) {
	h.t.Helper()
	h.write(pid, "comm", name+"\n")
	h.write(pid, "cgroup", cgroup)
	h.write(pid, "environ", environment)
	link := func(to, at string) {
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			h.t.Fatal(err)
		}
		if err := os.Symlink(to, at); err != nil {
			h.t.Fatal(err)
		}
	}
	dir := filepath.Join(h.proc, strconv.Itoa(pid))
	link("net:["+network+"]", filepath.Join(dir, "ns", "net"))
	link("/dev/null", filepath.Join(dir, "fd", "0"))
	for i, inode := range inodes {
		link(fmt.Sprintf("socket:[%d]", inode), filepath.Join(dir, "fd", strconv.Itoa(3+i)))
	}
}

const (
	uid    = "0b5c1c8e-7a5e-4d1b-9a53-6f3c2d1e0f00"
	header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
)

func row(local, remote, state string, user, inode int) string {
	return fmt.Sprintf("   0: %s %s %s 00000000:00000000 00:00000000 00000000 %5d        0 %d 1 0000 20 4 30 10 -1\n",
		local, remote, state, user, inode)
}

func told(host, port string) string {
	return "PATH=/bin\x00KUBERNETES_SERVICE_HOST=" + host + "\x00KUBERNETES_SERVICE_PORT=" + port + "\x00HOME=/"
}

func newHost(t *testing.T) host {
	t.Helper()
	h := host{t, t.TempDir()}
	h.write(1, "comm", "systemd\n") // one that cannot be looked into
	h.process(10, "yurthub", "0::/system.slice/yurthub.service", "", "1", 100)
	h.process(11, "kube-proxy", "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"+
		"0b5c1c8e_7a5e_4d1b_9a53_6f3c2d1e0f00.slice/cri-containerd-aa.scope", told("10.96.0.1", "443"), "1", 101)
	h.process(12, "flanneld", "4:memory:/kubepods/burstable/pod"+uid[:35]+"1/aa\n0::/", told("10.96.0.1", "443"), "1", 102)
	h.process(13, "coredns", "0::/kubepods/burstable/pod"+uid[:35]+"2/aa", told("10.0.0.7", "10268"), "2", 103)
	h.process(14, "etcd", "0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/aa", told("10.96.0.1", "443"), "1", 104)
	h.process(15, "shell", "0::/user.slice", "", "1", 105, 106)
	h.process(16, "operator", "0::/kubepods/besteffort/pod"+uid[:35]+"3/aa", told("10.96.0.1", "443"), "3", 107)
	h.write(10, "net/tcp", header+
		row("0700000A:C350", "0100000A:192B", "01", 0, 100)+ // the hub's
		row("0700000A:C351", "0100000A:192B", "01", 0, 101)+ // kube-proxy's, to 10.0.0.1:6443
		row("0700000A:C352", "0100600A:01BB", "02", 0, 102)+ // flanneld's, to 10.96.0.1:443, which does not answer
		row("0700000A:C353", "0100000A:0016", "01", 0, 105)+ // to 10.0.0.1:22
		row("0700000A:192B", "0300000A:C350", "0A", 0, 106)) // listens
	const mapped = "0000000000000000FFFF0000"
	h.write(10, "net/tcp6", header+row(mapped+"0700000A:C354", mapped+"0100000A:192B", "01", 0, 106))
	h.write(13, "net/tcp", header+row("0901F40A:C350", "0700000A:281C", "01", 1, 103)) // CoreDNS', to the hub
	h.write(16, "net/tcp", header+row("0A01F40A:C350", "0100600A:01BB", "01", 1, 107))
	return h
}

func TestPast(t *testing.T) {
	if !littleEndian() {
		t.Fatal("the tables of this test are those of a little-endian machine")
	}
	h := newHost(t)
	cloud, service := netip.MustParseAddrPort("10.0.0.1:6443"), netip.MustParseAddrPort("10.96.0.1:443")
	hub := netip.MustParseAddrPort("10.0.0.7:10268")
	want := []Program{
		{11, "kube-proxy", uid, false, service, []netip.AddrPort{cloud}},
		{12, "flanneld", uid[:35] + "1", false, service, []netip.AddrPort{service}},
		{15, "shell", "", false, netip.AddrPort{}, []netip.AddrPort{cloud}},
		{16, "operator", uid[:35] + "3", false, service, []netip.AddrPort{service}},
	}
	if got := Past(h.proc, []netip.AddrPort{cloud}, hub); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	if got := Past(h.proc, nil, hub); len(got) != 2 || got[0].Name != "flanneld" || got[1].Name != "operator" {
		t.Errorf("by where they were told alone: %+v", got)
	}
}

func TestInPods(t *testing.T) {
	var got []string
	for _, p := range InPods(newHost(t).proc) {
		got = append(got, fmt.Sprint(p.PID, " ", p.Name, " ", p.Static, " ", p.Told))
	}
	want := []string{
		"11 kube-proxy false 10.96.0.1:443", "12 flanneld false 10.96.0.1:443", "13 coredns false 10.0.0.7:10268",
		"14 etcd true 10.96.0.1:443", "16 operator false 10.96.0.1:443",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

// littleEndian reports whether 127.0.0.1 is 0100007F to this kernel.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }

// TestThisMachine reads a real /proc.
func TestThisMachine(t *testing.T) {
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
	past := Past("/proc", []netip.AddrPort{server}, netip.AddrPort{}) // of other programs, too: a lab may run here
	if !slices.ContainsFunc(past, func(p Program) bool { return p.PID == os.Getpid() && slices.Contains(p.Past, server) }) {
		t.Errorf("%+v", past)
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
