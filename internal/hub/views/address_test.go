package views

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/live"
)

func nodeAt(addresses ...string) *corev1.Node {
	n := &corev1.Node{}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeExternalIP, Address: "203.0.113.1"},
	}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		addresses []string
		want      string
	}{
		{nil, ""},
		{[]string{"10.0.0.7"}, "10.0.0.7"},
		{[]string{"fd00::7", "10.0.0.7"}, "fd00::7"},
		{[]string{"n1", "127.0.0.1", "169.254.1.1", "fe80::1", "0.0.0.0", "10.0.0.7"}, "10.0.0.7"},
		{[]string{"::ffff:10.0.0.7"}, "10.0.0.7"},
	} {
		want, _ := netip.ParseAddr(tt.want)
		if got := addressOf(nodeAt(tt.addresses...)); got != want {
			t.Errorf("%q: %v, want %v", tt.addresses, got, want)
		}
	}
}

// entranceWorld is a node whose kubelet may go through the hub, and a cloud that may answer.
type entranceWorld struct {
	mu         sync.Mutex
	own, cloud *corev1.Node
	asked      int
}

func (w *entranceWorld) set(own, cloud *corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own, w.cloud = own, cloud
}

func (w *entranceWorld) questions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

func (w *entranceWorld) Own() (*corev1.Node, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.own, w.own != nil
}

func (w *entranceWorld) Ask(context.Context) (*corev1.Node, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.cloud == nil {
		return nil, errors.New("it can't be reached")
	}
	return w.cloud, nil
}

func TestFinder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := &entranceWorld{}, t.TempDir()
		start := func() (*finder, *live.Value[netip.Addr], func()) {
			found := live.NewValue(recallAddress(dir))
			f := newFinder(finderConfig{Dir: dir, Own: w.Own, Ask: w.Ask, Found: found})
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() {
				if err := f.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			return f, found, func() { cancel(); running.Wait() }
		}
		is := func(found *live.Value[netip.Addr], want string) {
			t.Helper()
			synctest.Wait()
			if got := found.Get(); got.IsValid() != (want != "") || want != "" && got.String() != want {
				t.Errorf("the address is %v, want %q", got, want)
			}
		}
		f, found, stop := start()
		is(found, "")
		w.set(nil, nodeAt("10.0.0.7"))
		time.Sleep(askMax)
		is(found, "10.0.0.7") // the cloud says it before kubelet goes through the hub
		asked := w.questions()
		w.set(nodeAt("10.0.0.8"), nodeAt("10.0.0.8"))
		f.Changed()
		is(found, "10.0.0.8")
		w.set(nodeAt(), nodeAt())
		f.Changed()
		is(found, "10.0.0.8") // a Node without addresses has not moved
		w.set(nodeAt("10.0.0.9"), nodeAt("10.0.0.9"))
		f.Changed()
		is(found, "10.0.0.9")
		time.Sleep(24 * time.Hour)
		if now := w.questions(); now != asked {
			t.Errorf("the cloud was asked %d times while kubelet says it", now-asked)
		}
		stop()

		w.set(nil, nil)
		_, found, stop = start()
		is(found, "10.0.0.9") // offline, from the disk
		w.set(nil, nodeAt("10.0.0.7"))
		time.Sleep(askEvery)
		is(found, "10.0.0.7")
		stop()

		if err := os.WriteFile(filepath.Join(dir, addressFile), []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := recallAddress(dir); got.IsValid() {
			t.Errorf("rubbish is taken for %v", got)
		}
	})
}
