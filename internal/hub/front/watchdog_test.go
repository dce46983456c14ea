package front

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSystemdIsTold: over systemd's socket, of the ports first, and then that the hub lives.
func TestSystemdIsTold(t *testing.T) {
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	socket, err := net.ListenUnixgram("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	t.Setenv("NOTIFY_SOCKET", at.Name)
	t.Setenv("WATCHDOG_USEC", "400000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Watchdog{Ask: func(context.Context) error { return nil }}.Run(ctx) }()
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

// TestAHubThatHangsSaysNothing checks that the hub reports to systemd four times per timeout while it starts and while it
// answers, and not at all while it hangs.
func TestAHubThatHangsSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		hangs.Store(true)
		begun := make(chan struct{})
		var mu sync.Mutex
		var told []string
		w := Watchdog{Begun: []<-chan struct{}{begun}, Ask: func(ctx context.Context) error {
			if !hangs.Load() {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}, within: 20 * time.Second, tell: func(state string) error {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, state)
			return nil
		}}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.run(ctx) }()
		pass := func(d time.Duration) []string {
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			said := slices.Clone(told)
			told = nil
			return said
		}
		if said := pass(21 * time.Second); len(said) != 6 || said[0] != "READY=1" || said[5] != "WATCHDOG=1" {
			t.Errorf("while it begins it says %v", said)
		}
		close(begun)
		if said := pass(time.Minute); len(said) != 0 {
			t.Errorf("while it hangs it says %v", said)
		}
		hangs.Store(false)
		pass(20 * time.Second)
		if said := pass(time.Minute); len(said) != 12 {
			t.Errorf("while it answers it says %v", said)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
