package thief

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// fourNodes is a pool for four parts: the coordinator's node, the leader, the victim and the thief.
var fourNodes = lab.Config{Pools: 1, Nodes: 4, Timing: lab.Quick}

var floodScenarios = []kit.Scenario{{
	Name: "event-flood", Lab: fourNodes, Run: eventFlood,
	Doc: "A node floods the pool's coordinator with Events, Nodes, Pods, watches, connections and pushes. They are " +
		"refused, counted and logged by name; the coordinator keeps working, and so do the heartbeats of a node that is " +
		"cut off.",
}}

// coordinatorFor returns how a node reaches its pool's coordinator over its own LAN link, with its own certificate.
func coordinatorFor(t *kit.T, node string) (access *rest.Config, address string, secure *tls.Config) {
	access, err := t.Lab.CoordinatorConfig(1, node)
	t.Must(err)
	access.Dial = func(ctx context.Context, _, address string) (net.Conn, error) { return t.Lab.Dial(ctx, node, address) }
	secure, err = rest.TLSConfigFor(access)
	t.Must(err)
	u, err := url.Parse(access.Host)
	t.Must(err)
	if secure.ServerName == "" {
		secure.ServerName = u.Hostname()
	}
	return access, u.Host, secure
}

func overTLS(t *kit.T, machine, address string, secure *tls.Config) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := t.Lab.Dial(ctx, machine, address)
		if err != nil {
			return nil, err
		}
		client := tls.Client(conn, secure)
		if err := client.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return client, nil
	}
}

// careless returns the settings of a client that does not verify servers.
func careless() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a thief does not mind
}

func eventFlood(t *kit.T) {
	leader := t.Pool.SettledAway()
	victim := t.Pool.Follower(leader)
	thief := t.Pool.Follower(leader, victim)
	site := t.Pool.Coordinator(lab.Operator)
	election := func() string {
		l, err := site.CoordinationV1().Leases(edge.NamespaceSystem).Get(t.Ctx, edge.LeaseElection, metav1.GetOptions{})
		t.Must(err)
		return string(l.UID) // a coordinator that starts anew makes another
	}
	before := election()
	cut := t.Cut(victim)
	t.Node(victim).Delegated(cut)

	access, address, secure := coordinatorFor(t, thief)
	access.QPS = -1
	node := t.Pool.Coordinator(thief)
	filler := strings.Repeat("x", 1<<20)
	refused := 0
	for i := range 300 {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("flood-%d", i), Annotations: map[string]string{"filler": filler}}
		var err error
		switch i % 3 {
		case 0:
			_, err = node.CoreV1().Events("default").Create(t.Ctx, &corev1.Event{ObjectMeta: meta}, metav1.CreateOptions{})
		case 1:
			_, err = node.CoreV1().Nodes().Create(t.Ctx, &corev1.Node{ObjectMeta: meta}, metav1.CreateOptions{})
		default:
			meta.Annotations[corev1.MirrorPodAnnotationKey] = "x"
			_, err = node.CoreV1().Pods("default").Create(t.Ctx, &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
				NodeName: thief, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			}}, metav1.CreateOptions{})
		}
		if !apierrors.IsForbidden(err) {
			t.Fail("%s writes %s into the coordinator: %v", thief, meta.Name, err)
		}
		refused++
	}
	t.Figure("refused_writes", float64(refused))
	t.Say("refused: %d writes of 1 MiB", refused)

	open, tooMany := watches(t, access, 200)
	t.Say("of 200 watches, %d are open and %d refused", open, tooMany)
	if open == 0 || open > 100 || tooMany == 0 {
		t.Fail("%d watches are open, and %d refused", open, tooMany)
	}
	served := connections(t, thief, address, secure, 600)
	t.Say("of 600 connections, %d are open", served)
	if served == 0 || served > 256 {
		t.Fail("%s has %d connections", thief, served)
	}
	t.Hold(2*(t.Config.Timing.Grace+t.Config.Timing.Toleration), "twice the time in which Kubernetes evicts")
	if now := election(); now != before {
		t.Fail("the coordinator has started anew")
	}
	metrics, err := site.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Ctx)
	t.Must(err)
	for _, name := range []string{
		`yurt_coordinator_limited_requests_total{limit="lasting"}`,
		`yurt_coordinator_refused_connections_total{reason="too-many"}`,
	} {
		if !counted(string(metrics), name) {
			t.Fail("%s is not counted", name)
		}
	}
	audited(t, edge.NodeName(thief).User(), "/events", "what its hub does")
	if _, lines := t.Pool.CoordinatorSays(); !slices.ContainsFunc(lines, func(l string) bool {
		return strings.Contains(l, "too many are under way") && strings.Contains(l, edge.NodeName(thief).User())
	}) {
		t.Fail("the coordinator does not log who has too many requests under way")
	}
	t.NeverNotReady(t.Start, victim, thief, leader)
	t.Heal(victim)
}

// counted reports whether a metric is more than zero.
func counted(metrics, name string) bool {
	for line := range strings.Lines(metrics) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(rest) != "0"
		}
	}
	return false
}

// watches opens so many watches, which stay open until the scenario ends, and returns how many are open and refused.
func watches(t *kit.T, access *rest.Config, n int) (open, refused int) {
	client, err := rest.HTTPClientFor(access)
	t.Must(err)
	for range n {
		r, err := http.NewRequestWithContext(t.Ctx, http.MethodGet,
			access.Host+"/apis/discovery.k8s.io/v1/endpointslices?watch=true", nil)
		t.Must(err)
		response, err := client.Do(r)
		t.Must(err)
		switch response.StatusCode {
		case http.StatusOK:
			open++
			t.Background.Go(func() {
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			})
		case http.StatusTooManyRequests:
			refused++
			_ = response.Body.Close()
		default:
			t.Fail("a watch: %s", response.Status)
		}
	}
	return open, refused
}

// connections opens n connections, which stay open until the scenario ends, and returns how many of them the server keeps. It
// must try to read from each: with TLS 1.3, a client's handshake succeeds before the server has counted the connection.
func connections(t *kit.T, machine, address string, secure *tls.Config, n int) int {
	dial := overTLS(t, machine, address, secure)
	var open []net.Conn
	for range n {
		ctx, cancel := context.WithTimeout(t.Ctx, 5*time.Second)
		conn, err := dial(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fail("a connection is neither served nor closed: %w", err)
		}
		if err != nil {
			continue
		}
		open = append(open, conn)
		context.AfterFunc(t.Ctx, func() { _ = conn.Close() })
	}
	var closed atomic.Int64
	var reading sync.WaitGroup
	for _, conn := range open {
		reading.Go(func() {
			_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
			var timeout net.Error
			if _, err := conn.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
				closed.Add(1) // of others the server waits for a request
			}
		})
	}
	reading.Wait()
	return len(open) - int(closed.Load())
}
