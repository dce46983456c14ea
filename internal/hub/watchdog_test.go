package hub

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/sim/pki"
)

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

// TestAHubAsksItself: it answers whatever its links are, at no cost to the line, but for while what serves kubelet's Lease hangs.
func TestAHubAsksItself(t *testing.T) {
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
			ends.Ends{Net: ends.Net{Dial: lan.dial, DialNear: lan.dial, Listen: lan.listen}})
		if err != nil {
			t.Fatal(err)
		}
		lease := &hanging{Handler: h.serves.OwnLease}
		h.serves.OwnLease, h.serves.Metrics = lease, nil
		h.front = front.New(h.serves)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		asks := h.proof.Asks(lan.dial, edge.NodeName("n1").LeasePath()+"?resourceVersion=0")
		ask := func() error {
			time.Sleep(10 * time.Second)
			asking, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return asks(asking)
		}
		if err := ask(); err != nil {
			t.Error(err)
		}
		before := h.cloud.Carried()["heartbeat"]
		if err := ask(); err != nil || h.cloud.Carried()["heartbeat"] != before {
			t.Errorf("%v; questions go to the cloud: %v, before %v", err, h.cloud.Carried(), before)
		}
		stopCloud()
		if err := ask(); err != nil {
			t.Errorf("without a cloud: %v", err)
		}
		lease.hangs.Store(true)
		if err := ask(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it hangs, and answers: %v", err)
		}
		lease.hangs.Store(false)
		if err := ask(); err != nil {
			t.Errorf("it hangs no more: %v", err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
