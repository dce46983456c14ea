package machine

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// oneConn is a listener that accepts one connection, and then waits until it is closed.
type oneConn struct {
	net.Listener // nil
	conn         chan net.Conn
	closed       chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conn:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error { close(l.closed); return nil }

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// While hundreds of machines start, a sender gets to write its order only seconds after it has connected.
func TestAnOrderMayComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
		server := (&first{}).server()
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		sender, conn := net.Pipe()
		l.conn <- conn
		time.Sleep(orderTimeout - time.Second) // of the bubble's clock
		const order = "POST /processes HTTP/1.1\r\nHost: p1-n1\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
		if _, err := io.WriteString(sender, order); err != nil {
			t.Errorf("the order is not taken: %v", err)
		} else if answer, err := http.ReadResponse(bufio.NewReader(sender), nil); err != nil {
			t.Error(err)
		} else if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
			t.Errorf("the answer is %s", answer.Status)
		}
		_ = sender.Close()
		_ = server.Close()
		_ = <-ended
	})
}

// A program that gives up is started again, if its command says so; one that has done its work, or was killed, is not.
func TestAgain(t *testing.T) {
	const exit = 8 // a wait status has the exit status from this bit on, and below it the signal
	for name, test := range map[string]struct {
		ended syscall.WaitStatus
		again bool
		want  bool
	}{
		"it gives up":            {1 << exit, true, true},
		"it gives up, and may":   {1 << exit, false, false},
		"it has done its work":   {0, true, false},
		"it has crashed":         {2 << exit, true, false},
		"somebody has killed it": {syscall.WaitStatus(syscall.SIGKILL), true, false},
	} {
		if got := (Command{Again: test.again}).startsAgain(test.ended); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}

	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	f, log := &first{}, filepath.Join(t.TempDir(), "log")
	argv := []string{"/bin/sh", "-c", "echo on; test $(wc -l <$1) -ge 2 || exit 1", "p", log}
	if _, err := f.start(Command{Name: "p", Argv: argv, Log: log, Again: true}); err != nil {
		t.Fatal(err)
	}
	for ended := false; !ended; {
		select {
		case <-children:
			f.reap()
			ended = slices.ContainsFunc(f.list(), func(p Process) bool { return p.End == "exit status 0" })
		case <-time.After(time.Minute):
			t.Fatal("it was not started again")
		}
	}
	if content, err := os.ReadFile(log); err != nil || string(content) != "on\non\n" {
		t.Errorf("%q, %v", content, err)
	}
}
