package cloud

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var rotationScenarios = []kit.Scenario{{
	Name: "ca-rotation", Lab: shortAuthority(kit.OnePool.AsInstalled()), Run: caRotation,
	Doc: "A pool's certificate authority is replaced under load. No request fails, no watch ends, and no hub leaves the " +
		"coordinator.",
}}

// shortAuthority makes a pool's authority last for three minutes. After two minutes it gets a successor, which begins to sign
// half a minute later.
func shortAuthority(c lab.Config) lab.Config {
	c.ChartValues = []string{"controller.extraArgs={--coordinator-certificate-life=1m,--operator-certificate-life=1m," +
		"--pool-authority-life=3m,--pool-authority-settle=30s}"}
	return c
}

// asker asks a coordinator, each time over a new connection, and collects the certificates that it is shown.
type asker struct {
	access func() (*rest.Config, error)

	mu     sync.Mutex
	asked  int
	failed []error
	shown  map[string]bool // serial numbers
	// signers are the authorities that signed those, by their keys' identifiers.
	signers map[string]bool
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
	request.Close = true // a coordinator takes so many connections from one address, and each request makes one
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	a.see(response.TLS)
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	_, err = io.Copy(io.Discard, response.Body) // or the connection would be in use, and stay
	return err
}

func (a *asker) see(state *tls.ConnectionState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shown[state.PeerCertificates[0].SerialNumber.String()] = true
	a.signers[string(state.PeerCertificates[0].AuthorityKeyId)] = true
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

// rotating is load on a coordinator while its certificates are replaced.
type rotating struct {
	*kit.T
	asker
	began time.Time
	ended chan string // how a watch ended

	seen      sync.Mutex
	operators map[string]bool // their certificates
	// authorities are the latest bundle by which operators verify the coordinator.
	authorities []*x509.Certificate
}

// rotate begins the load, which ends with the scenario.
func rotate(t *kit.T) *rotating {
	r := &rotating{T: t, began: time.Now(), ended: make(chan string, 1), operators: map[string]bool{}}
	r.asker = asker{shown: map[string]bool{}, signers: map[string]bool{}, access: r.accessOfNow}
	t.Background.Go(func() { r.run(t.Ctx, 200*time.Millisecond) })
	w, err := t.Pool.Coordinator(lab.Operator).CoordinationV1().Leases(corev1.NamespaceNodeLease).Watch(t.Ctx,
		metav1.ListOptions{})
	t.Must(err)
	t.Background.Go(func() {
		defer w.Stop()
		for changes := 0; ; changes++ {
			select {
			case _, ok := <-w.ResultChan():
				if !ok {
					r.ended <- fmt.Sprintf("after %d changes", changes)
					return
				}
			case <-t.Ctx.Done():
				return
			}
		}
	})
	return r
}

// accessOfNow returns the operators' kubeconfig as the cloud has it.
func (r *rotating) accessOfNow() (*rest.Config, error) {
	access, err := r.Lab.CoordinatorConfig(1, lab.Operator)
	if err != nil {
		return nil, err
	}
	bundle, err := cert.ParseCertsPEM(access.CAData)
	if err != nil {
		return nil, err
	}
	r.seen.Lock()
	defer r.seen.Unlock()
	r.operators[string(access.CertData)] = true
	r.authorities = bundle
	return access, nil
}

// undisturbed fails the scenario if a request has failed, a watch has ended, or a hub has left the coordinator.
func (r *rotating) undisturbed() {
	for name, h := range r.Pool.Hubs() {
		if h.Coordinator != "up" {
			r.Fail("the hub of %s says of its coordinator: %s", name, h.Coordinator)
		}
	}
	select {
	case how := <-r.ended:
		r.Fail("a watch ended %s", how)
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failed) > 0 {
		r.Fail("of %d requests failed: %w", r.asked, errors.Join(r.failed...))
	}
}

// counts returns how many certificates the coordinator has shown, how many authorities signed them, and how many
// certificates operators had.
func (r *rotating) counts() (shown, signers, operators int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.Lock()
	defer r.seen.Unlock()
	return len(r.shown), len(r.signers), len(r.operators)
}

// judge checks what must not have happened in all that time.
func (r *rotating) judge() {
	r.Figure("rotations_took_s", time.Since(r.began).Seconds())
	r.mu.Lock()
	r.Figure("requests", float64(r.asked))
	r.mu.Unlock()
	r.NeverNotReady(r.Start, r.Pool.Nodes()...)
	if restarts := r.Pool.CoordinatorPod().Status.ContainerStatuses[0].RestartCount; restarts != 0 {
		r.Fail("the coordinator was restarted %d times", restarts)
	}
	path, err := r.Lab.Log("cloud", string(lab.CoordinatorController))
	r.Must(err)
	log, err := os.ReadFile(path)
	r.Must(err)
	if !bytes.Contains(log, []byte("Starting a controller")) || bytes.Contains(log, []byte("PRIVATE KEY")) {
		r.Fail("the log of coordinator-controller is not its log, or has a key in it")
	}
}

func certRotation(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	r := rotate(t)
	const rotations = 4
	t.Eventually((rotations+1)*45*time.Second, fmt.Sprintf("%d certificates have been shown", rotations), func() error {
		r.undisturbed()
		if shown, _, _ := r.counts(); shown < rotations {
			return fmt.Errorf("%d", shown)
		}
		return nil
	})
	if _, signers, operators := r.counts(); operators < rotations-1 || signers != 1 {
		t.Fail("operators had %d certificates, and %d authorities have signed the coordinator's", operators, signers)
	}
	t.Figure("rotations", rotations)
	r.judge()
}

// trusts returns the authorities by which operators verify the coordinator.
func (r *rotating) trusts() []*x509.Certificate {
	r.seen.Lock()
	defer r.seen.Unlock()
	return r.authorities
}

func caRotation(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	r := rotate(t)
	var first *x509.Certificate
	t.Eventually(30*time.Second, "one authority is trusted", func() error {
		r.undisturbed()
		bundle := r.trusts()
		if len(bundle) != 1 {
			return fmt.Errorf("%d", len(bundle))
		}
		first = bundle[0]
		return nil
	})
	t.Say("it ends at %s", first.NotAfter.Format(time.TimeOnly))
	stage := func(what string, reached func(bundle []*x509.Certificate, signers int) bool) {
		t.Eventually(time.Until(first.NotAfter)+30*time.Second, what, func() error {
			r.undisturbed()
			bundle := r.trusts()
			if _, signers, _ := r.counts(); !reached(bundle, signers) {
				return fmt.Errorf("%d are trusted, %d have signed", len(bundle), signers)
			}
			return nil
		})
	}
	stage("a second is trusted, and does not sign yet", func(bundle []*x509.Certificate, signers int) bool {
		return len(bundle) == 2 && signers == 1
	})
	stage("the second signs, while the first is trusted", func(bundle []*x509.Certificate, signers int) bool {
		return len(bundle) == 2 && signers == 2
	})
	stage("the first has ended, and is trusted no more", func(bundle []*x509.Certificate, _ int) bool {
		return len(bundle) == 1 && !bundle[0].Equal(first) && time.Now().After(first.NotAfter)
	})
	t.Hold(5*time.Second, "hubs and operators go on with the second alone")
	r.undisturbed()
	r.judge()
	delegatedAcrossAuthorities(t)
}

// delegatedAcrossAuthorities cuts a link: the pool must work with the new authority.
func delegatedAcrossAuthorities(t *kit.T) {
	node := t.Pool.Follower(t.Pool.SettledAway())
	cut := t.Cut(node)
	t.Node(node).Delegated(cut)
	healed := t.Heal(node)
	t.Node(node).Direct(healed)
}
