package pool

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

var crowdFor = flag.Duration("crowd", 30*time.Second, "for how long BenchmarkCrowd watches each state")

// BenchmarkCrowd reports what the program takes of a processor, in cores, while the hubs of a large pool ask what TestAsked of
// internal/sim/world counts: idle, all cut off but the leader (who relays for a part of them), and all cut off.
//
//	go test ./internal/pool -run '^$' -bench Crowd -benchtime 1x
func BenchmarkCrowd(b *testing.B) {
	file, _ := buildProgram(b)
	for _, n := range []int{100, 500} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				ctx, cancel := context.WithTimeout(b.Context(), 3*time.Minute+4**crowdFor)
				benchCrowd(ctx, b, startProgram(ctx, b, file), n)
				cancel()
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func benchCrowd(ctx context.Context, b *testing.B, p *program, n int) {
	all := make([]*crowdHub, n)
	each(b, n, func(i int) (err error) {
		all[i], err = newCrowdHub(b, p, i)
		return err
	})
	(&coordinator{ca: p.ca, address: p.address}).lead(b, all[0].name, 1)
	for _, s := range []struct {
		name string
		of   crowdState
	}{
		{"idle", crowdState{led: true}},
		{"one-line-left", crowdState{led: true, cut: func(i int) bool { return i > 0 }, relayed: n / 2}},
		{"all-cut", crowdState{cut: func(int) bool { return true }}},
	} {
		state, end := context.WithCancel(ctx)
		var asking sync.WaitGroup
		for i, h := range all {
			asking.Go(func() { h.lives(state, b, i, s.of) })
		}
		p.rest(ctx, 15*time.Second) // all have renewed their Leases as they do in this state
		before, began := p.processor(b), time.Now()
		p.rest(ctx, *crowdFor)
		b.ReportMetric((p.processor(b)-before).Seconds()/time.Since(began).Seconds(), s.name+"-cores")
		end()
		asking.Wait()
	}
	p.report(b, "all-cut")
	for _, h := range all {
		h.http.CloseIdleConnections()
	}
	p.stop(b)
}

// crowdState is what is cut, for how many of these a neighbour relays, and whether somebody leads.
type crowdState struct {
	led     bool
	cut     func(i int) bool // nil means nobody
	relayed int
}

// crowdHub is a node's hub as the coordinator sees it: one connection, from an address of its own.
type crowdHub struct {
	name   string
	http   *http.Client
	base   string
	leases coordinationv1client.CoordinationV1Interface
}

func newCrowdHub(b *testing.B, p *program, i int) (*crowdHub, error) {
	h := &crowdHub{name: fmt.Sprintf("n%d", i+1), base: "https://" + p.address}
	from := &net.TCPAddr{IP: net.IPv4(127, 1, byte(i/250), byte(1+i%250))}
	transport := &http.Transport{
		DialContext: (&net.Dialer{LocalAddr: from}).DialContext, ForceAttemptHTTP2: true,
		TLSClientConfig: (&coordinator{ca: p.ca}).tls(p.ca.Issue(b, pooltest.Node(h.name), pooltest.Tomorrow()).TLS(b)),
		HTTP2:           &http.HTTP2Config{SendPingTimeout: 2600 * time.Millisecond},
	}
	h.http = &http.Client{Transport: transport}
	var err error
	h.leases, err = coordinationv1client.NewForConfigAndClient(&rest.Config{Host: h.base, QPS: -1, ContentConfig: rest.ContentConfig{
		ContentType: "application/vnd.kubernetes.protobuf",
	}}, h.http)
	return h, err
}

// lives asks what a hub asks in a state, until ctx ends.
func (h *crowdHub) lives(ctx context.Context, b *testing.B, i int, s crowdState) {
	isCut := s.cut != nil && s.cut(i)
	var asking sync.WaitGroup
	every := func(period time.Duration, do func() error) {
		asking.Go(func() {
			pause := time.Duration(rand.Int64N(int64(period)))
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
				if err := do(); err != nil && ctx.Err() == nil {
					b.Errorf("%s: %v", h.name, err)
				}
				pause = period*9/10 + time.Duration(rand.Int64N(int64(period/5)))
			}
		})
	}
	every(10*time.Second, func() error { return h.renews(ctx, isCut, i > s.relayed) })
	for _, name := range []string{edge.LeaseElection, edge.LeaseInformerSync} {
		asking.Go(func() {
			h.watches(ctx, edge.NamespaceSystem, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		})
	}
	switch {
	case isCut && i > s.relayed || isCut && !s.led:
		every(22500*time.Millisecond, func() error { return h.looks(ctx) }) // 15 to 30 s, at most every 2 s before
	default:
		every(54*time.Second, func() error { return h.looks(ctx) })
	}
	if isCut {
		asking.Go(func() { h.follows(ctx) })
	}
	if s.led && i == 0 {
		every(time.Second, func() error { return h.touches(ctx, edge.LeaseElection) })
		every(2*time.Second, func() error { return h.touches(ctx, edge.LeaseInformerSync) })
		asking.Go(func() { h.watches(ctx, corev1.NamespaceNodeLease, metav1.ListOptions{}) })
		asking.Go(func() {
			h.watches(ctx, corev1.NamespaceNodeLease, metav1.ListOptions{LabelSelector: edge.DelegateHeartbeat + "=" +
				edge.DelegateHeartbeatOn})
		})
	}
	asking.Wait()
}

// renews writes the copy of the node's Lease. alone says that nobody relays for it.
func (h *crowdHub) renews(ctx context.Context, isCut, alone bool) error {
	l := heartbeat(h.name)
	l.Annotations = map[string]string{ // 600 bytes, as a hub's
		edge.AnnotationTraffic: "123456,123456", edge.AnnotationHubVersion: "v1.2.3", edge.AnnotationKubelet: string(make([]byte, 0)),
		edge.AnnotationHub: `{"requests":123456,"refused":0,"fallbacks":12,"certificates":{"client":1893456000,"hub":1893456000}}`,
	}
	switch {
	case isCut && alone:
		l.Annotations[edge.DelegateHeartbeat] = edge.DelegateHeartbeatOn
		l.Labels = map[string]string{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn}
	case isCut:
		l.Annotations[edge.AnnotationRelayedBy] = "n1"
	default:
		l.Annotations[edge.AnnotationRelaysAt] = "10.0.0.1:10269"
		l.Labels = map[string]string{edge.LabelRelays: edge.LabelRelaysYes}
	}
	_, err := h.leases.Leases(corev1.NamespaceNodeLease).Update(ctx, l, metav1.UpdateOptions{})
	return err
}

// looks asks who relays.
func (h *crowdHub) looks(ctx context.Context) error {
	_, err := h.leases.Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{
		ResourceVersion: "0", LabelSelector: edge.LabelRelays, Limit: 32,
	})
	return err
}

// touches renews a Lease of the pool's own.
func (h *crowdHub) touches(ctx context.Context, name string) error {
	c := h.leases.Leases(edge.NamespaceSystem)
	l, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	seconds := int32(edge.ElectionTerm / time.Second)
	l.Spec.HolderIdentity, l.Spec.RenewTime = &h.name, &metav1.MicroTime{Time: time.Now()}
	l.Spec.LeaseDurationSeconds = &seconds
	_, err = c.Update(ctx, l, metav1.UpdateOptions{})
	return err
}

// watches follows Leases.
func (h *crowdHub) watches(ctx context.Context, namespace string, what metav1.ListOptions) {
	for ctx.Err() == nil {
		w, err := h.leases.Leases(namespace).Watch(ctx, what)
		if err != nil {
			return
		}
		for range w.ResultChan() { //nolint:revive // what it says does not matter
		}
	}
}

// follows reads what the pool says of its Pods and nodes.
func (h *crowdHub) follows(ctx context.Context) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.base+edge.PathPresence, nil)
	if err != nil {
		return
	}
	response, err := h.http.Do(r)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, response.Body) // until ctx ends
	_ = response.Body.Close()
}

var _ = (*coordinationv1.Lease)(nil)
var _ tls.Config
