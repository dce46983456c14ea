package upstream

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"yurtcoordinator/internal/ends"
)

// TestKnocksAtASocket: the kernel of the other end acknowledges, though nobody reads there.
func TestKnocksAtASocket(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := Dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	raw, err := dialled.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	k := newKnocker(raw, ends.Clock{})
	idle := func() {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; {
			if now, known := k.tcp.state(); known && now.trip > 0 && now.retransmit > 0 && now.acknowledged >= knockIdle {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the kernel does not know how long the connection was quiet")
			}
			<-time.After(10 * time.Millisecond)
		}
	}
	idle()
	if _, asked := k.knock(t.Context()); asked {
		t.Error("knocked before anything was pinged")
	}
	k.pinged(time.Millisecond, false)
	for range 2 {
		idle()
		if came, asked := k.knock(t.Context()); !came || !asked {
			t.Errorf("came %t, asked %t; want an acknowledgement", came, asked)
		}
		if now, _ := k.tcp.state(); now.acknowledged >= knockIdle {
			t.Errorf("the last acknowledgement is %v old", now.acknowledged)
		}
	}
	if err := dialled.Close(); err != nil {
		t.Fatal(err)
	}
	if _, known := k.tcp.state(); known {
		t.Error("something is known of a closed connection")
	}
}

// TestDialsGiveUp: the kernel is told how long a connection may be without an acknowledgement, far and near.
func TestDialsGiveUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, tt := range map[string]struct {
		dial          func(ctx context.Context, network, address string) (net.Conn, error)
		timeout, idle time.Duration
	}{
		"far":  {Dial, unackedTimeout, keepAliveIdle},
		"near": {DialNear, nearTimeout, time.Second},
	} {
		conn, err := tt.dial(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := conn.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		option := func(which int) (value int) {
			var failure error
			err := raw.Control(func(fd uintptr) { value, failure = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, which) })
			if err != nil || failure != nil {
				t.Fatal(err, failure)
			}
			return value
		}
		timeout := time.Duration(option(unix.TCP_USER_TIMEOUT)) * time.Millisecond
		if idle := time.Duration(option(unix.TCP_KEEPIDLE)) * time.Second; timeout != tt.timeout || idle != tt.idle {
			t.Errorf("%s: given up after %v, asked after %v", name, timeout, idle)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
