package hub

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/lab/pki"
)

// TestSystemdIsTold: over systemd's socket, of the ports first, and then that the hub lives.
func TestSystemdIsTold(t *testing.T) {
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	socket, err := net.ListenUnixgram("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", at.Name)
	t.Setenv("WATCHDOG_USEC", "400000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	h, err := New(flags(t, "--node-name=n1", "--server-addr=https://10.0.0.1:6443", "--ca-file=ca", "--cert-file=c", "--key-file=k",
		"--disk-cache-path=", "--cert-dir="+t.TempDir()), ends.Ends{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.beWatched(ctx) }()
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		said := make([]byte, 64)
		n, err := socket.Read(said)
		if string(said[:n]) != want || err != nil {
			t.Errorf("systemd is told %q, %v, want %q", said[:n], err, want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// hanging hangs while it is told to.
type hanging struct {
	http.Handler
	hangs atomic.Bool
}

func (h *hanging) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.hangs.Load() {
		<-r.Context().Done()
		return
	}
	h.Handler.ServeHTTP(w, r)
}

// TestAHubThatHangsSaysNothing: a word for as long as the hub answers, whatever its links are, and at no cost to the line; none while
// what serves kubelet's Lease hangs.
func TestAHubThatHangsSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lan := &memory{at: map[string]*bufconn.Listener{}}
		ca, err := pki.Create(t.TempDir(), "ca", nil)
		if err != nil {
			t.Fatal(err)
		}
		node, err := ca.Issue(pki.Request{Name: "n1", CommonName: "system:node:n1", Client: true})
		if err != nil {
			t.Fatal(err)
		}
		stopCloud := serve(t, lan, ca, "10.0.0.1:6443", &oneLease{path: edge.NodeName("n1").LeasePath()})
		h, err := New(flags(t, "--node-name=n1", "--server-addr=https://10.0.0.1:6443", "--ca-file="+ca.Files().Cert,
			"--cert-file="+node.Cert, "--key-file="+node.Key, "--disk-cache-path=", "--cert-dir="+t.TempDir()),
			ends.Ends{Net: ends.Net{
				Dial: lan.dial, DialNear: lan.dial, Listen: lan.listen, Addresses: func() ([]net.Addr, error) { return nil, nil },
			}})
		if err != nil {
			t.Fatal(err)
		}
		lease := &hanging{Handler: h.serves.OwnLease}
		h.serves.OwnLease, h.serves.Metrics = lease, nil
		h.front = front.New(h.serves)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- h.Run(ctx) }()
		answers, end := h.asKubelet()
		var told []string
		go func() {
			ended <- watchdog{20 * time.Second, answers, func(s string) error { told = append(told, s); return nil }}.run(ctx)
		}()
		pass := func(d time.Duration) []string {
			time.Sleep(d)
			synctest.Wait()
			said := slices.Clone(told)
			told = nil
			return said
		}
		if said := pass(21 * time.Second); len(said) != 6 || said[0] != "READY=1" || said[5] != "WATCHDOG=1" {
			t.Errorf("while all is well it says %v", said)
		}
		before := h.cloud.Carried()["heartbeat"]
		if said := pass(time.Minute); len(said) != 12 || h.cloud.Carried()["heartbeat"] != before {
			t.Errorf("in a minute it says %v, and its questions go to the cloud: %v, before %v", said, h.cloud.Carried(), before)
		}
		stopCloud()
		if said := pass(time.Minute); len(said) != 12 {
			t.Errorf("without a cloud it says %v", said)
		}
		lease.hangs.Store(true)
		pass(5 * time.Second)
		if said := pass(time.Minute); len(said) != 0 {
			t.Errorf("while it hangs it says %v", said)
		}
		lease.hangs.Store(false)
		if said := pass(time.Minute); len(said) < 10 {
			t.Errorf("it hangs no more, and says %v", said)
		}
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		end()
	})
}
