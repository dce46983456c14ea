package machine

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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
	for name, test := range map[string]struct {
		does  string // after it has written a line to its log, $1
		again bool
		runs  int
	}{
		"it gives up once":       {"test $(wc -l <$1) -ge 2 || exit 1", true, 2},
		"it gives up, and may":   {"exit 1", false, 1},
		"it has done its work":   {"exit 0", true, 1},
		"it has crashed":         {"exit 2", true, 1},
		"somebody has killed it": {"kill -KILL $$", true, 1},
	} {
		f, log := &first{}, filepath.Join(t.TempDir(), "log")
		argv := []string{"/bin/sh", "-c", "echo on; " + test.does, "p", log}
		does := Command{Name: "p", Argv: argv, Log: log, Again: test.again}
		if _, err := f.start(does); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			f.reap()
		}
		if content, err := os.ReadFile(log); err != nil || strings.Count(string(content), "on\n") != test.runs {
			t.Errorf("%s: %q, %v", name, content, err)
		}
	}
}
