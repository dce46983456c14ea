package network

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// two gives a test two hosts, a client's and a server's that echoes what it hears, and ends them.
func two(t *testing.T, do func(t *testing.T, n *Network, client, server *Process)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n := New(rand.NewPCG(1, 2))
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.Run(ctx)
		}()
		client, server := n.Host("client", "10.0.0.1").Process(), n.Host("server", "10.0.0.2").Process()
		l, err := server.Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		go echo(l)
		do(t, n, client, server)
		client.Kill()
		server.Kill()
		time.Sleep(time.Second)
		cancel()
		<-done
	})
}

func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c) // a test asks the client
		}()
	}
}

func dial(t *testing.T, h *Process) net.Conn {
	t.Helper()
	c, err := h.Dial(t.Context(), "tcp", "10.0.0.2:80")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// says writes and waits for the echo, and returns how long that took.
func says(c net.Conn, what string, patience time.Duration) (time.Duration, error) {
	began := time.Now()
	if _, err := c.Write([]byte(what)); err != nil {
		return time.Since(began), err
	}
	if err := c.SetReadDeadline(began.Add(patience)); err != nil {
		return 0, err
	}
	got := make([]byte, len(what))
	if _, err := io.ReadFull(c, got); err != nil {
		return time.Since(began), err
	}
	if string(got) != what {
		return 0, errors.New("said " + what + ", heard " + string(got))
	}
	return time.Since(began), nil
}

func both(n *Network, p Path) {
	n.Set("client", "server", p)
	n.Set("server", "client", p)
}

// TestPaths: how long an echo takes over a connection, or how it fails, while a path is as it is.
func TestPaths(t *testing.T) {
	long := string(make([]byte, 100_000))
	for name, c := range map[string]struct {
		path  Path
		what  string
		takes time.Duration
		err   error
	}{
		"open":                     {Path{}, "hello", 0, nil},
		"far":                      {Path{Delay: 300 * time.Millisecond}, "hello", 600 * time.Millisecond, nil},
		"thin, 40 bytes of header": {Path{Rate: 1000}, "0123456789", 100 * time.Millisecond, nil},
		"long over a thin line":    {Path{Rate: 16_000}, long, 12510 * time.Millisecond, nil},
		"silent":                   {Path{Silent: true}, "hello", time.Minute, os.ErrDeadlineExceeded},
		"refuses":                  {Path{Refuses: true}, "hello", 0, syscall.ECONNRESET},
		"small segments only":      {Path{Most: 1300}, long, time.Minute, os.ErrDeadlineExceeded},
		"… and what is small":      {Path{Most: 1300}, "hello", 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			two(t, func(t *testing.T, n *Network, client, server *Process) {
				conn := dial(t, client)
				both(n, c.path)
				takes, err := says(conn, c.what, time.Minute)
				if takes.Round(10*time.Millisecond) != c.takes || !errors.Is(err, c.err) {
					t.Errorf("it takes %v and ends with %v, want %v and %v", takes, err, c.takes, c.err)
				}
				both(n, Path{})
			})
		})
	}
}

// TestHeals: what was sent into a silent line arrives once TCP sends it again, which is later the longer it was silent.
func TestHeals(t *testing.T) {
	two(t, func(t *testing.T, n *Network, client, server *Process) {
		conn := dial(t, client)
		both(n, Path{Silent: true})
		time.AfterFunc(5*time.Second, func() { both(n, Path{}) })
		// Sent after 0, 0.2, 0.6, 1.4, 3 and 6.2 seconds.
		if takes, err := says(conn, "hello", time.Minute); err != nil || takes != 6200*time.Millisecond {
			t.Errorf("it takes %v: %v", takes, err)
		}
		both(n, Path{Silent: true})
		if _, err := says(conn, "hello", time.Hour); !errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("after an hour of silence: %v", err)
		}
		if client.Conns() != 0 || server.Conns() != 1 {
			t.Errorf("%d and %d connections; the server can't know", client.Conns(), server.Conns())
		}
	})
}

// TestForgotten: a connection over what forgets it after idle time is dead both ways, and nobody is told.
func TestForgotten(t *testing.T) {
	two(t, func(t *testing.T, n *Network, client, server *Process) {
		both(n, Path{Forgets: time.Minute})
		conn := dial(t, client)
		for range 5 {
			time.Sleep(59 * time.Second)
			if _, err := says(conn, "hello", time.Second); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(61 * time.Second)
		if _, err := says(conn, "hello", time.Minute); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if _, err := says(dial(t, client), "hello", time.Second); err != nil {
			t.Errorf("a new one: %v", err)
		}
	})
}

// TestOptions: a connection is given up after the time that its program names, and one that is quiet is asked for a sign of life.
func TestOptions(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		says    bool
		within  time.Duration
	}{
		"what is sent is not acknowledged": {Options{Unacknowledged: 12 * time.Second}, true, 12 * time.Second},
		"it is quiet": {
			Options{Unacknowledged: 3 * time.Second, KeepAlive: time.Second}, false, 5 * time.Second,
		},
	} {
		two(t, func(t *testing.T, n *Network, client, _ *Process) {
			conn, err := client.Dialer(c.options)(t.Context(), "tcp", "10.0.0.2:80")
			if err != nil {
				t.Fatal(err)
			}
			both(n, Path{Forgets: 2 * time.Second})
			time.Sleep(time.Minute) // of the bubble's clock
			if _, err := says(conn, "hello", time.Second); (err == nil) != (c.options.KeepAlive > 0) {
				t.Errorf("%s: after a minute without a word: %v", name, err)
			}
			if conn, err = client.Dialer(c.options)(t.Context(), "tcp", "10.0.0.2:80"); err != nil {
				t.Fatal(err)
			}
			both(n, Path{Silent: true})
			began := time.Now()
			if c.says {
				_, err = says(conn, "hello", time.Hour)
			} else {
				_, err = conn.Read(make([]byte, 1))
			}
			if took := time.Since(began); !errors.Is(err, syscall.ETIMEDOUT) || took > c.within {
				t.Errorf("%s: after %v: %v", name, took, err)
			}
		})
	}
}

// TestDial: what becomes of an attempt to connect.
func TestDial(t *testing.T) {
	for name, c := range map[string]struct {
		before func(n *Network, server *Process)
		takes  time.Duration
		err    error
	}{
		"open":       {func(*Network, *Process) {}, 0, nil},
		"far":        {func(n *Network, _ *Process) { both(n, Path{Delay: time.Second}) }, 2 * time.Second, nil},
		"no process": {func(_ *Network, s *Process) { s.Kill() }, 0, syscall.ECONNREFUSED},
		"no power":   {func(_ *Network, s *Process) { s.host.Off() }, time.Minute, context.DeadlineExceeded},
		"suspended":  {func(_ *Network, s *Process) { s.host.Shut(true) }, time.Minute, context.DeadlineExceeded},
		"silent":     {func(n *Network, _ *Process) { both(n, Path{Silent: true}) }, time.Minute, context.DeadlineExceeded},
		"no way back": {func(n *Network, _ *Process) { n.Set("server", "client", Path{Silent: true}) }, time.Minute,
			context.DeadlineExceeded},
		"refuses": {func(n *Network, _ *Process) { both(n, Path{Refuses: true}) }, 0, syscall.ECONNREFUSED},
		"healed after 2": {func(n *Network, _ *Process) {
			both(n, Path{Silent: true})
			time.AfterFunc(2*time.Second, func() { both(n, Path{}) })
		}, 3 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			two(t, func(t *testing.T, n *Network, client, server *Process) {
				c.before(n, server)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				conn, err := client.Dial(ctx, "tcp", "10.0.0.2:80")
				if takes := time.Since(began); takes != c.takes || !errors.Is(err, c.err) {
					t.Errorf("%v: %v", takes, err)
				}
				if err == nil {
					conn.Close()
				}
				both(n, Path{})
			})
		})
	}
}

// TestDeaths: what the other end hears of a machine that dies.
func TestDeaths(t *testing.T) {
	two(t, func(t *testing.T, n *Network, client, server *Process) {
		conn := dial(t, client)
		server.Kill()
		if _, err := says(conn, "hello", time.Minute); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("killed: %v", err)
		}
		again := server.host.Process()
		l, err := again.Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		go echo(l)
		conn = dial(t, client)
		server.host.Off()
		if _, err := says(conn, "hello", time.Minute); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("without power: %v", err)
		}
		server.host.On()
		if takes, err := says(conn, "hello", 3*time.Minute); !errors.Is(err, syscall.ECONNRESET) || takes > 2*time.Minute {
			t.Errorf("with power again, after %v: %v", takes, err)
		}
	})
}

// TestDropped: Close drops what has not arrived if the owner wants it to, and resets the connection.
func TestDropped(t *testing.T) {
	two(t, func(t *testing.T, n *Network, client, server *Process) {
		conn := dial(t, client)
		both(n, Path{Delay: time.Second})
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(conn.(interface{ SetLinger(sec int) error }).SetLinger(0), conn.Close()); err != nil {
			t.Error(err)
		}
		if open := client.Conns(); open != 0 {
			t.Errorf("%d connections still send", open)
		}
		both(n, Path{})
	})
}

// TestRebooted: a question for a sign of life meets a machine that has power again, and knows nothing of the connection.
func TestRebooted(t *testing.T) {
	two(t, func(t *testing.T, n *Network, client, server *Process) {
		dials := client.Dialer(Options{Unacknowledged: 30 * time.Second, KeepAlive: time.Second})
		conn, err := dials(t.Context(), "tcp", "10.0.0.2:80")
		if err != nil {
			t.Fatal(err)
		}
		server.host.Off()
		time.Sleep(5 * time.Second)
		server.host.On()
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) || time.Since(began) > 2*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestSuspended: a machine that was suspended goes on with its connections.
func TestSuspended(t *testing.T) {
	two(t, func(t *testing.T, n *Network, client, server *Process) {
		conn := dial(t, client)
		server.host.Shut(true)
		time.AfterFunc(10*time.Second, func() { server.host.Shut(false) })
		if takes, err := says(conn, "hello", time.Minute); err != nil || takes < 10*time.Second || takes > 15*time.Second {
			t.Errorf("%v: %v", takes, err)
		}
	})
}

// TestSuspendedProgram: the kernel of a suspended machine knows which of its programs have ended.
func TestSuspendedProgram(t *testing.T) {
	two(t, func(t *testing.T, n *Network, client, server *Process) {
		beside := server.host.Process()
		conn, err := beside.Dial(t.Context(), "tcp", server.host.ip+":80")
		if err != nil {
			t.Fatal(err)
		}
		server.host.Shut(true)
		server.Kill()
		time.Sleep(time.Second)
		server.host.Shut(false)
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a program beside the one that ended reads %v", err)
		}
	})
}

// TestClose: what was written before Close arrives, even if the line was silent then; and each end forgets the connection.
func TestClose(t *testing.T) {
	two(t, func(t *testing.T, n *Network, client, server *Process) {
		l, err := server.Listen("tcp", ":81")
		if err != nil {
			t.Fatal(err)
		}
		heard := make(chan string)
		go func() {
			c, _ := l.Accept()
			all, err := io.ReadAll(c)
			if err != nil {
				t.Error(err)
			}
			c.Close()
			heard <- string(all)
		}()
		c, err := client.Dial(t.Context(), "tcp", "10.0.0.2:81")
		if err != nil {
			t.Fatal(err)
		}
		both(n, Path{Silent: true})
		if _, err := c.Write([]byte("good bye")); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		both(n, Path{})
		if got := <-heard; got != "good bye" {
			t.Errorf("heard %q", got)
		}
		time.Sleep(time.Second)
		if client.Conns() != 0 || server.Conns() != 0 {
			t.Errorf("%d and %d connections are left", client.Conns(), server.Conns())
		}
	})
}

// TestLoss: a lossy line is slow, and loses nothing.
func TestLoss(t *testing.T) {
	two(t, func(t *testing.T, n *Network, client, server *Process) {
		conn := dial(t, client)
		both(n, Path{Loss: 0.3, Delay: 50 * time.Millisecond, Jitter: 50 * time.Millisecond})
		began := time.Now()
		for range 100 {
			if _, err := says(conn, "hello", time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if takes := time.Since(began); takes < 20*time.Second || takes > 2*time.Minute {
			t.Errorf("100 echoes take %v", takes)
		}
	})
}
