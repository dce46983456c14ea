package conns

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// TestLocal: a program that holds connections open loses the oldest of them; the newest is served, and those of this process's
// own user stay.
func TestLocal(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 3
	l := Local(inner, most)
	count := 0
	l.own = func(c net.Conn) bool { // the first alone, though it is no other's than the rest
		count++
		return count == 1 && isOwn(c)
	}
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "h")
			accepted <- c
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		for c := range accepted {
			_ = c.Close()
		}
	})
	connect := func() (client, server net.Conn) {
		t.Helper()
		client = dial(t, "127.0.0.1", inner.Addr().String())
		if closed(t, client) {
			t.Fatal("a new connection is not served")
		}
		return client, <-accepted
	}
	own, _ := connect()
	var clients []net.Conn
	for range most {
		c, _ := connect()
		clients = append(clients, c)
	}
	last, server := connect()
	if !closed(t, clients[0]) {
		t.Error("the oldest is still open")
	}
	if err := server.Close(); err != nil { // gives its place back
		t.Fatal(err)
	}
	if !closed(t, last) {
		t.Error("closed, and still open")
	}
	next, _ := connect()
	for i, c := range []net.Conn{clients[1], clients[2], next, own} {
		if isOpen(t, c) != nil {
			t.Errorf("connection %d was closed: %v", i, isOpen(t, c))
		}
	}
}

// TestAnotherUsersFlood: whoever opens ever more connections closes only its own.
func TestAnotherUsersFlood(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Local(inner, 3)
	defer l.Close()
	user := "0"
	l.own = func(net.Conn) bool { return false }
	l.owner = func(net.Conn) string { return user }
	connect := func() net.Conn {
		client := dial(t, "127.0.0.1", inner.Addr().String())
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return client
	}
	probe := connect()
	user = "1000"
	var flood []net.Conn
	for range 10 {
		flood = append(flood, connect())
	}
	if err := isOpen(t, probe); err != nil {
		t.Errorf("the probe was closed: %v", err)
	}
	for i, c := range flood[:8] {
		if !closed(t, c) {
			t.Errorf("connection %d of the flood is open", i)
		}
	}
}

// isOpen returns an error if the other side has closed a connection.
func isOpen(t *testing.T, c net.Conn) error {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var ended error
	if err := raw.Read(func(fd uintptr) bool {
		ended = peek(fd)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return ended
}

// TestOwnerOf, in each of the ways.
func TestOwnerOf(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
		if err != nil {
			t.Logf("not tried: %v", err)
			continue
		}
		defer l.Close()
		target := l.Addr().String()
		if at == "[::]:0" { // reached by IPv4
			target = net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
		}
		client := dial(t, "", target)
		served, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer served.Close()
		local, remote := served.LocalAddr(), served.RemoteAddr()
		from, to := netip.MustParseAddrPort(remote.String()), netip.MustParseAddrPort(local.String())
		elsewhere := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), from.Port())
		me := strconv.Itoa(os.Geteuid())
		for how, ask := range map[string]func(from, to netip.AddrPort) (Socket, error){
			"asked": diagnosed, "listed": listed,
			"either": func(from, to netip.AddrPort) (Socket, error) {
				owner, err := OwnerOf(net.TCPAddrFromAddrPort(to), net.TCPAddrFromAddrPort(from))
				return Socket{UID: owner}, err
			},
		} {
			if of, err := ask(from, to); err != nil || of.UID != me {
				t.Errorf("%s, %s: made by %+v, %v", at, how, of, err)
			}
			if of, err := ask(elsewhere, to); !errors.Is(err, errNoSocket) {
				t.Errorf("%s, %s: from the same port of another address: made by %+v, %v", at, how, of, err)
			}
			if of, err := ask(to, netip.AddrPortFrom(from.Addr(), 1)); !errors.Is(err, errNoSocket) {
				t.Errorf("%s, %s: a listener makes a connection: %+v, %v", at, how, of, err)
			}
		}
		inode, err := os.Readlink(fmt.Sprintf("%s/%d", ownFiles, fdOf(t, client)))
		for how, ask := range map[string]func(from, to netip.AddrPort) (Socket, error){"asked": diagnosed, "listed": listed} {
			if of, wrong := ask(from, to); wrong != nil || err != nil || inode != fmt.Sprintf("socket:[%d]", of.Inode) {
				t.Errorf("%s, %s: it is %+v, %v; want %s, %v", at, how, of, wrong, inode, err)
			}
		}
	}
}

// fdOf returns the number of a connection's file.
func fdOf(t *testing.T, c net.Conn) (number uintptr) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { number = fd })
	}
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// connectTo names where TestConnects connects to, in the environment.
const connectTo = "CONNS_CONNECT_TO"

// TestOwn: only a connection that this process has made is its own, and not that of another process of the same user.
func TestOwn(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accept := func() net.Conn {
		t.Helper()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	client := dial(t, "", l.Addr().String())
	if c := accept(); !isOwn(c) {
		t.Errorf("%s is not its own", client.LocalAddr())
	}
	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConnects$")
	other.Env = append(os.Environ(), connectTo+"="+l.Addr().String())
	keep, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	c := accept()
	if owner, err := OwnerOf(c.LocalAddr(), c.RemoteAddr()); err != nil || owner != strconv.Itoa(os.Geteuid()) {
		t.Errorf("the other process is of the user %q, %v", owner, err)
	}
	if isOwn(c) {
		t.Error("another process' connection counts as its own")
	}
	if err := errors.Join(keep.Close(), other.Wait()); err != nil {
		t.Error(err)
	}
}

// TestConnects is the other process of TestOwn: it keeps a connection until its input ends.
func TestConnects(t *testing.T) {
	at := os.Getenv(connectTo)
	if at == "" {
		t.Skip("TestOwn runs it")
	}
	dial(t, "", at)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestSocketIn(t *testing.T) {
	if at, ok := end("0100007F:0016"); !ok || at.String() != "127.0.0.1:22" {
		t.Skip("the list below is of a little-endian machine")
	}
	const list = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2815 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0000000000000000 100 0 0 10 0
   1: 0100007F:2815 0100007F:E8C2 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:E8C2 0100007F:2815 01 00000000:00000000 00:00000000 00000000 65534        0 3 1 0000000000000000 20 4 30 10 -1
   3: 0200007F:E8C2 0100007F:2815 01 00000000:00000000 00:00000000 00000000   100        0 3 1 0000000000000000 20 4 30 10 -1
   4: 0000000000000000FFFF00000100007F:E8C3 0000000000000000FFFF00000100007F:2815 01 0:0 0:0 0 7 0 4
   5: 00000000000000000000000001000000:E8C4 00000000000000000000000001000000:2815 01 0:0 0:0 0 8 0 4
   6: short`
	for _, tt := range []struct{ from, to, want string }{
		{"127.0.0.1:59586", "127.0.0.1:10261", "65534"},
		{"127.0.0.2:59586", "127.0.0.1:10261", "100"},
		{"127.0.0.3:59586", "127.0.0.1:10261", ""},
		{"127.0.0.1:10261", "127.0.0.1:59586", "0"},
		{"127.0.0.1:59586", "127.0.0.1:59586", ""},
		{"127.0.0.1:59587", "[::ffff:127.0.0.1]:10261", "7"},
		{"[::1]:59588", "[::1]:10261", "8"},
		{"[::2]:59588", "[::1]:10261", ""},
	} {
		got, found := socketIn([]byte(list), netip.MustParseAddrPort(tt.from), netip.MustParseAddrPort(tt.to))
		if got.UID != tt.want || found != (tt.want != "") || found == (got.Inode == 0) {
			t.Errorf("%s to %s: %+v, want the user %q", tt.from, tt.to, got, tt.want)
		}
	}
}

func FuzzSockets(f *testing.F) {
	f.Add([]byte("0: 0700000A:C350 0100000A:192B 01 0:0 0:0 0 0 0 100\n"))
	f.Add([]byte("0: A B 01 a b c d e 5\n"))
	f.Fuzz(func(t *testing.T, table []byte) {
		for _, s := range Sockets(table) {
			if !s.Local.IsValid() || !s.Remote.IsValid() {
				t.Errorf("%+v", s)
			}
		}
	})
}
