package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/lab"
)

// shortLived has the certificates of coordinators and operators last for a minute: each is replaced after 40 s.
func shortLived(c lab.Config) lab.Config {
	c.ChartValues = []string{"controller.extraArgs={--coordinator-certificate-life=1m,--operator-certificate-life=1m}"}
	return c
}

// asker asks a coordinator, each time over a connection of its own, and keeps the certificates that it was shown.
type asker struct {
	access func() (*rest.Config, error)

	mu     sync.Mutex
	asked  int
	failed []error
	shown  map[string]bool // serial numbers
}

// ask lists the heartbeats once.
func (a *asker) ask(ctx context.Context) error {
	access, err := a.access()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(access)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		access.Host+"/apis/coordination.k8s.io/v1/namespaces/"+corev1.NamespaceNodeLease+"/leases", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	a.see(response.TLS)
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

func (a *asker) see(state *tls.ConnectionState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shown[state.PeerCertificates[0].SerialNumber.String()] = true
}

// run asks until ctx ends.
func (a *asker) run(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := a.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		a.mu.Lock()
		a.asked++
		if err != nil {
			a.failed = append(a.failed, fmt.Errorf("after %d requests: %w", a.asked, err))
		}
		a.mu.Unlock()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func certRotation(t *T) {
	t.settled(30 * time.Second)
	ctx, stop := context.WithCancel(t.ctx)
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	operators := map[string]bool{}
	var seen sync.Mutex
	asOperator := &asker{shown: map[string]bool{}, access: func() (*rest.Config, error) {
		access, err := t.lab.CoordinatorConfig(1, lab.Operator)
		if err == nil {
			seen.Lock()
			operators[string(access.CertData)] = true
			seen.Unlock()
		}
		return access, err
	}}
	running.Go(func() { asOperator.run(ctx, 200*time.Millisecond) })
	ended := make(chan string, 1)
	w, err := t.coordinator(lab.Operator).CoordinationV1().Leases(corev1.NamespaceNodeLease).Watch(ctx, metav1.ListOptions{})
	t.must(err)
	running.Go(func() {
		defer w.Stop()
		changes := 0
		for {
			select {
			case _, ok := <-w.ResultChan():
				if changes++; !ok {
					ended <- fmt.Sprintf("after %d changes", changes)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})

	const rotations = 4
	began := time.Now()
	t.eventually((rotations+1)*45*time.Second, fmt.Sprintf("%d certificates have been shown", rotations), func() error {
		for name, h := range t.hubs() {
			if h.Coordinator != "up" {
				t.fail("the hub of %s says of its coordinator: %s", name, h.Coordinator)
			}
		}
		select {
		case how := <-ended:
			t.fail("a watch ended %s", how)
		default:
		}
		asOperator.mu.Lock()
		defer asOperator.mu.Unlock()
		if len(asOperator.failed) > 0 {
			t.fail("of %d requests failed: %w", asOperator.asked, errors.Join(asOperator.failed...))
		}
		if n := len(asOperator.shown); n < rotations {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	seen.Lock()
	defer seen.Unlock()
	if len(operators) < rotations-1 {
		t.fail("operators had %d certificates while the coordinator had %d", len(operators), rotations)
	}
	t.figure("rotations", rotations)
	t.figure("rotations_took_s", time.Since(began).Seconds())
	asOperator.mu.Lock()
	t.figure("requests", float64(asOperator.asked))
	asOperator.mu.Unlock()
	for _, name := range t.nodeNames() {
		t.must(t.seen.neverNotReady(name, t.start))
	}
	if restarts := t.coordinatorPod().Status.ContainerStatuses[0].RestartCount; restarts != 0 {
		t.fail("the coordinator was restarted %d times", restarts)
	}
	path, err := t.lab.Log("cloud", string(lab.CoordinatorController))
	t.must(err)
	log, err := os.ReadFile(path)
	t.must(err)
	if !bytes.Contains(log, []byte("Starting a controller")) || bytes.Contains(log, []byte("PRIVATE KEY")) {
		t.fail("the log of coordinator-controller is not its log, or has a key in it")
	}
}
