package conns

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
)

// TestNewcomers: a user who holds unauthenticated connections loses the oldest of them, to more of his own and to those of
// other users. A late user is served. An authenticated connection stays, and so do those of another user who has few.
func TestNewcomers(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 4
	var mu sync.Mutex
	var told []Reason
	l := NewNewcomers(inner, most, func(_ netip.AddrPort, why Reason, _ error) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, why)
	})
	owners := make(chan string, 1)
	l.owner = func(c net.Conn) string {
		if got := ownerOf(c); got == "" {
			t.Error("the owner of a connection is not known")
		}
		return <-owners
	}
	accepted := make(chan *Newcomer)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "h")
			newcomer, ok := c.(*Newcomer)
			if !ok {
				t.Errorf("accepted %T", c)
				return
			}
			accepted <- newcomer
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		for c := range accepted {
			_ = c.Close()
		}
	})
	connect := func(owner string) (net.Conn, *Newcomer) {
		t.Helper()
		owners <- owner
		client := dial(t, "127.0.0.1", inner.Addr().String())
		if closed(t, client) {
			t.Fatalf("a new connection of %s is not served", owner)
		}
		server := <-accepted
		if server.Owner != owner || server.Proved() {
			t.Errorf("%+v of %s", server, owner)
		}
		return client, server
	}
	kubelet, proved := connect("0")
	proved.Prove()
	proved.Prove()
	agent, _ := connect("5")
	var thief []net.Conn
	for range 3 * most {
		c, _ := connect("1000")
		thief = append(thief, c)
	}
	late, server := connect("0")
	for i, c := range thief {
		gone := isOpen(t, c) != nil
		if want := i < len(thief)-(most-2); gone != want { // besides the agent's and the late one
			t.Errorf("connection %d of 1000 is closed: %t", i, gone)
		}
	}
	for name, c := range map[string]net.Conn{"kubelet's": kubelet, "the agent's": agent, "the late one": late} {
		if err := isOpen(t, c); err != nil {
			t.Errorf("%s was closed: %v", name, err)
		}
	}
	mu.Lock()
	if want := slices.Repeat([]Reason{TooMany}, 3*most-(most-2)); fmt.Sprint(told) != fmt.Sprint(want) {
		t.Errorf("told %v", told)
	}
	mu.Unlock()
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if l.all.total != most-1 {
		t.Errorf("%d newcomers, want %d", l.all.total, most-1)
	}
}
