package pool

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

// crowdStates are how often a pool of n nodes asks its coordinator for what, in times a second, as TestAsked of
// internal/sim/world counts it.
var crowdStates = map[string]map[string]func(n float64) float64{
	"idle": {
		"renews": func(n float64) float64 { return n / 10 }, "finds": func(n float64) float64 { return n / 60 },
		"elects": func(float64) float64 { return 1 }, "declares": func(float64) float64 { return 0.5 },
	},
	// All but the leader are cut off, and it relays for none of them.
	"one-line": {
		"renews": func(n float64) float64 { return n / 10 }, "seeks": func(n float64) float64 { return n * 0.042 },
		"elects": func(float64) float64 { return 1 }, "declares": func(float64) float64 { return 0.5 },
		"asks": func(n float64) float64 { return n * 0.08 },
	},
	"all-cut": {
		"renews": func(n float64) float64 { return n / 10 }, "seeks": func(n float64) float64 { return n * 0.042 },
		"asks": func(n float64) float64 { return n * 0.08 },
	},
}

// BenchmarkCrowd reports what one request of each kind takes of a processor in the program, in ms, while the hubs of a large pool
// are connected and follow what they follow when idle; and how many cores the pool takes in each state. Each kind is asked for by
// itself, and only the program's own processor time counts, so that it says the same on a busy machine.
//
//	go test ./internal/pool -run '^$' -bench Crowd -benchtime 1x
func BenchmarkCrowd(b *testing.B) {
	file, _ := buildProgram(b)
	for _, n := range []int{100, 500} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				ctx, cancel := context.WithTimeout(b.Context(), 20*time.Minute)
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
	following, end := context.WithCancel(ctx)
	var follows sync.WaitGroup
	each(b, n, func(i int) error { return all[i].follow(following, &follows) })
	each(b, n, func(i int) error { return all[i].renews(ctx, false) })
	costs := map[string]float64{}
	cost := func(kind string, times int, do func(i int) error) {
		before := p.processor(b)
		for i := range times {
			if err := do(i % n); err != nil {
				b.Fatalf("%s: %v", kind, err)
			}
		}
		costs[kind] = (p.processor(b) - before).Seconds() / float64(times)
		b.ReportMetric(1000*costs[kind], kind+"-ms")
	}
	cost("renews", 2*n, func(i int) error { return all[i].renews(ctx, false) })
	cost("finds", 100, func(i int) error { return all[i].looks(ctx) })
	(&coordinator{ca: p.ca, address: p.address}).lead(b, "n1", 1)
	cost("elects", 20, func(int) error { return all[0].touches(ctx, edge.LeaseElection) })
	cost("declares", 20, func(int) error { return all[0].touches(ctx, edge.LeaseInformerSync) })
	each(b, n, func(i int) error { return all[i].renews(ctx, i > 0) })
	cost("seeks", 100, func(i int) error { return all[max(i, 1)].looks(ctx) })
	cost("asks", 500, func(i int) error { return all[i].asks(ctx) })
	cost("rests", 20, func(int) error {
		p.rest(ctx, time.Second)
		return nil
	})
	for state, rates := range crowdStates {
		cores := costs["rests"] // in a second without a request
		for kind, rate := range rates {
			cores += costs[kind] * rate(float64(n))
		}
		b.ReportMetric(cores, state+"-cores")
	}
	end()
	follows.Wait()
	for _, h := range all {
		h.http.CloseIdleConnections()
	}
	p.stop(b)
}

// crowdHub is a node's hub as the coordinator sees it: one connection, from an address of its own.
type crowdHub struct {
	name   string
	http   *http.Client
	leases coordinationv1client.CoordinationV1Interface
	// revision is that of its node's Lease here, as it was written last; empty means that there is none.
	revision string
}

func newCrowdHub(b *testing.B, p *program, i int) (*crowdHub, error) {
	h := &crowdHub{name: fmt.Sprintf("n%d", i+1)}
	from := &net.TCPAddr{IP: net.IPv4(127, 1, byte(i/250), byte(1+i%250))}
	transport := &http.Transport{
		DialContext: (&net.Dialer{LocalAddr: from}).DialContext, ForceAttemptHTTP2: true,
		TLSClientConfig: (&coordinator{ca: p.ca}).tls(p.ca.Issue(b, pooltest.Node(h.name), pooltest.Tomorrow()).TLS(b)),
		HTTP2:           &http.HTTP2Config{SendPingTimeout: 2600 * time.Millisecond},
	}
	h.http = &http.Client{Transport: transport}
	var err error
	h.leases, err = coordinationv1client.NewForConfigAndClient(&rest.Config{
		Host: "https://" + p.address, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
	}, h.http)
	return h, err
}

// renews writes the copy of the node's Lease, marked or saying where the hub relays.
func (h *crowdHub) renews(ctx context.Context, cut bool) error {
	l := heartbeat(h.name)
	l.ResourceVersion = h.revision
	l.Annotations = map[string]string{
		edge.AnnotationTraffic: "123456,123456", edge.AnnotationHubVersion: "v1.2.3",
		edge.AnnotationHub: `{"requests":123456,"refused":0,"fallbacks":12,"certificates":{"client":1893456000}}`,
	}
	if cut {
		l.Annotations[edge.DelegateHeartbeat] = edge.DelegateHeartbeatOn
		l.Labels = map[string]string{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn}
	} else {
		l.Annotations[edge.AnnotationRelaysAt] = "10.0.0.1:10269"
	}
	l, err := h.leases.Leases(corev1.NamespaceNodeLease).Update(ctx, l, metav1.UpdateOptions{})
	if err == nil {
		h.revision = l.ResourceVersion
	}
	return err
}

// looks asks who relays.
func (h *crowdHub) looks(ctx context.Context) error {
	said, err := h.leases.RESTClient().Get().AbsPath(edge.PathState).Param(edge.QueryRelaying, "true").DoRaw(ctx)
	if err == nil && !bytes.HasPrefix(said, []byte(`{"relaying":[`)) {
		err = fmt.Errorf("who relays is %.100q", said)
	}
	return err
}

// touches renews a Lease of the pool's own.
func (h *crowdHub) touches(ctx context.Context, name string) error {
	c := h.leases.Leases(edge.NamespaceSystem)
	l, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	seconds, transitions := int32(10), int32(1)
	l.Spec.LeaseTransitions, l.Spec.HolderIdentity, l.Spec.RenewTime = &transitions, &h.name, &metav1.MicroTime{Time: time.Now()}
	l.Spec.LeaseDurationSeconds = &seconds
	_, err = c.Update(ctx, l, metav1.UpdateOptions{})
	return err
}

// asks asks what the mirror has.
func (h *crowdHub) asks(ctx context.Context) error {
	return h.leases.RESTClient().Get().AbsPath(edge.PathMirror).Do(ctx).Error()
}

// follow begins to follow the pool's state, and goes on until ctx ends.
func (h *crowdHub) follow(ctx context.Context, all *sync.WaitGroup) error {
	said, err := h.leases.RESTClient().Get().AbsPath(edge.PathState).Stream(ctx)
	if err != nil {
		return err
	}
	all.Go(func() {
		_, _ = io.Copy(io.Discard, said)
		_ = said.Close()
	})
	return nil
}
