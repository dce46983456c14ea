package pool

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

// TestALargeLease is refused, whether it comes at once or grows by small patches.
func TestALargeLease(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	leases := c.as(t, pooltest.Node("n2")).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	refused := func(what string, err error, says string) {
		t.Helper()
		if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a 413 that says %q", what, err, says)
		}
	}
	withAnnotation := func(bytes int) *coordinationv1.Lease {
		l := heartbeat("n2")
		l.Annotations = map[string]string{"a": strings.Repeat("x", bytes)}
		return l
	}
	_, err := leases.Create(t.Context(), withAnnotation(20<<10), metav1.CreateOptions{})
	refused("a large one", err, "write fewer annotations and owner references")
	_, err = leases.Create(t.Context(), withAnnotation(10<<10), metav1.CreateOptions{})
	allowed(t, "one of 10 KiB", err)
	_, err = leases.Patch(t.Context(), "n2", types.JSONPatchType,
		[]byte(`[{"op": "copy", "from": "/metadata/annotations/a", "path": "/metadata/annotations/b"}]`), metav1.PatchOptions{})
	refused("a patch that doubles it", err, "the Lease would have 2")
	_, err = leases.Patch(t.Context(), "n2", types.MergePatchType, []byte(`{"metadata":{"annotations":{"b":"x"}}}`),
		metav1.PatchOptions{})
	allowed(t, "a small patch", err)
}

// TestRenewalsAreSeldom: a node that renews in a loop is told to wait, and another one renews as before.
func TestRenewalsAreSeldom(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	renew := func(node string) error {
		_, err := c.as(t, pooltest.Node(node)).CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(t.Context(),
			heartbeat(node), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	thief := c.http(t, c.certificate(t, pooltest.Node("n2")))
	codes := map[int]int{}
	for range 20 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch,
			"https://"+c.address+"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", string(types.MergePatchType))
		answer, err := thief.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		codes[answer.StatusCode]++
	}
	if codes[http.StatusTooManyRequests] < 10 || codes[http.StatusNotFound] < 5 {
		t.Errorf("20 writes at once: %v", codes)
	}
	allowed(t, "another node's", renew("n3"))
}

// TestStreamsOfTheStateHaveABound: each keeps what is told until it is read.
func TestStreamsOfTheStateHaveABound(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	client := c.http(t, c.certificate(t, pooltest.Node("n2")))
	codes := map[int]int{}
	for range 12 {
		answer := c.opensAt(t, client, edge.PathState)
		codes[answer.StatusCode]++
	}
	if codes[http.StatusOK] != 10 || codes[http.StatusTooManyRequests] != 2 {
		t.Errorf("12 streams of a node: %v", codes)
	}
}

// pathSlices is what startFull has 4000 of.
const pathSlices = "/apis/discovery.k8s.io/v1/endpointslices"

// startFull returns a coordinator whose list of EndpointSlices does not fit into the buffers of a connection.
func startFull(t *testing.T) *coordinator {
	t.Helper()
	c := start(t, nil)
	all := pooltest.Frames(t, pooltest.ProtobufType(sliceKind), pooltest.WholeStream(10_000, manySlices(t, 4000)...)...)
	leader := c.http(t, c.certificate(t, pooltest.Node("n1")))
	c.lead(t, "n1", 1) // last: nobody renews it
	a := c.push(t, leader, pooltest.SliceResource, 0, 1, all)
	if a.Code != http.StatusOK {
		t.Fatal(a.Body)
	}
	return c
}

// overHTTP2 returns a connection of node n2 on which nothing has been said.
func (c *coordinator) overHTTP2(t *testing.T) net.Conn {
	t.Helper()
	secure := c.tls(c.certificate(t, pooltest.Node("n2")))
	secure.NextProtos = []string{http2.NextProtoTLS}
	conn, err := (&tls.Dialer{Config: secure}).DialContext(t.Context(), "tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestAConnectionThatTakesNothing is closed with all its requests, though its client's windows have room. With HTTP/2, nothing
// else ends them.
func TestAConnectionThatTakesNothing(t *testing.T) {
	t.Parallel()
	c := startFull(t)
	conn := c.overHTTP2(t)
	framer := http2.NewFramer(conn, conn)
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	for _, f := range [][2]string{
		{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", pathSlices}, {"accept", "application/json"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	const wide = 1<<31 - 1
	_, err := io.WriteString(conn, http2.ClientPreface)
	err = errors.Join(err, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: wide}),
		framer.WriteWindowUpdate(0, wide-65535), framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: 1, BlockFragment: header.Bytes(), EndStream: true, EndHeaders: true,
		}))
	if err != nil {
		t.Fatal(err)
	}
	other := func() int {
		code, _ := c.get(t, c.http(t, c.certificate(t, pooltest.Node("n3"))), pathSlices+"?limit=1")
		return code
	}
	until := func(code int, within time.Duration) {
		t.Helper()
		for began := time.Now(); other() != code; time.Sleep(100 * time.Millisecond) {
			if time.Since(began) > within {
				t.Fatalf("another node's list is not answered %d within %s", code, within)
			}
		}
	}
	until(http.StatusTooManyRequests, 5*time.Second)
	until(http.StatusOK, 40*time.Second)
}

// TestListsThatNobodyReads: a list is in memory until its client has read it. So a caller has one without a limit at a time, all
// nodes have one, and all other callers two. Requests and heartbeats have their own places.
func TestListsThatNobodyReads(t *testing.T) {
	t.Parallel()
	c := startFull(t)
	const path = pathSlices
	unread := func(of pkix.Name) (end func()) {
		conn, err := (&tls.Dialer{Config: c.tls(c.certificate(t, of))}).DialContext(t.Context(), "tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 12)); err != nil { // it is answered, and then not read
			t.Fatal(err)
		}
		return func() { _ = conn.Close() }
	}
	code := func(of pkix.Name, query string) int {
		code, _ := c.get(t, c.http(t, c.certificate(t, of)), path+query)
		return code
	}
	endThiefs := unread(pooltest.Node("n2"))
	for what, got := range map[string]int{
		"a thief's second": code(pooltest.Node("n2"), ""), "a thief's page": code(pooltest.Node("n2"), "?limit=1"),
		"another node's": code(pooltest.Node("n3"), ""), "another node's page": code(pooltest.Node("n3"), "?limit=1"),
	} {
		if got != http.StatusTooManyRequests {
			t.Errorf("%s list: %d", what, got)
		}
	}
	for _, query := range []string{"", "?limit=1"} {
		if got := code(pooltest.Operator(), query); got != http.StatusOK {
			t.Errorf("an operator's list%s: %d", query, got)
		}
	}
	_, err := c.as(t, pooltest.Node("n4")).CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(t.Context(), heartbeat("n4"),
		metav1.CreateOptions{})
	allowed(t, "a heartbeat", err)
	endThiefs()
	for began := time.Now(); code(pooltest.Node("n3"), "?limit=1") != http.StatusOK; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("the places of a client that has gone are not given back")
		}
	}
}

// TestTooManyBytes: a header that is too long ends its connection, and a body that is too long is not read.
func TestTooManyBytes(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	node := c.certificate(t, pooltest.Node("n2"))
	for what, header := range map[string]int{"a long header": 64 << 10, "a short one": 16 << 10} {
		conn, err := (&tls.Dialer{Config: c.tls(node)}).DialContext(t.Context(), "tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		_, err = io.WriteString(conn, "GET /api HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", header)+"\r\n\r\n")
		answer := make([]byte, 12)
		_, read := io.ReadFull(conn, answer)
		_ = conn.Close()
		if want := map[bool]string{true: "HTTP/1.1 431", false: "HTTP/1.1 200"}[header > 32<<10]; string(answer) != want {
			t.Errorf("%s: %q, %v, %v; want %s", what, answer, err, read, want)
		}
	}
	review := `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{` +
		`"labelSelector":{"requirements":[{}` + strings.Repeat(",{}", 64<<10/3) + `]}}}}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"https://"+c.address+"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", strings.NewReader(review))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.http(t, c.certificate(t, pooltest.Operator())).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of more than 64 KiB: %s %s", answer.Status, text)
	}
}

// TestASlowHeader: a connection that asks nothing is closed soon.
func TestASlowHeader(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	for what, text := range map[string]string{"nothing": "", "half of a header": "GET /api HTTP/1.1\r\nHost: x\r\n"} {
		dialer := tls.Dialer{Config: c.tls(c.certificate(t, pooltest.Node("n2")))}
		conn, err := dialer.DialContext(t.Context(), "tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		began := time.Now()
		_ = conn.SetDeadline(began.Add(time.Minute))
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(conn)
		if took := time.Since(began); err != nil || took < 4*time.Second || took > 20*time.Second {
			t.Errorf("%s: closed after %s, %v", what, took, err)
		}
	}
}

// TestStreamsOfAConnection: the server tells clients how many requests of a connection it serves at a time, and how long a header
// may be.
func TestStreamsOfAConnection(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	conn := c.overHTTP2(t)
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	framer := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	frame, err := framer.ReadFrame()
	settings, ok := frame.(*http2.SettingsFrame)
	if err != nil || !ok {
		t.Fatalf("the server begins with %v, %v", frame, err)
	}
	streams, _ := settings.Value(http2.SettingMaxConcurrentStreams)
	header, said := settings.Value(http2.SettingMaxHeaderListSize)
	if streams != 100 || !said || header < 32<<10 || header > 33<<10 {
		t.Errorf("it takes %d streams, and headers of %d bytes", streams, header)
	}
}

// TestWhoIsNoMemberKeepsFewConnections: somebody with a certificate of the cluster's, who is nobody here, keeps 8 connections of
// an address, none after a refusal, and a node of the same address is served meanwhile.
func TestWhoIsNoMemberKeepsFewConnections(t *testing.T) {
	t.Parallel()
	c := start(t, func(c *Config) { c.connections = 0 })
	stranger := c.certificate(t, pkix.Name{CommonName: "dave", Organization: []string{"developers"}})
	var all []net.Conn
	for range 5 * maxUnproved {
		conn, err := (&tls.Dialer{Config: c.tls(stranger)}).DialContext(t.Context(), "tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, conn)
	}
	node := c.http(t, c.certificate(t, pooltest.Node("n2")))
	if code, body := c.get(t, node, "/api"); code != http.StatusOK {
		t.Errorf("a node, beside a stranger: %d %s", code, body)
	}
	open := 0
	for _, conn := range all {
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		var timeout net.Error
		if _, err := conn.Read(make([]byte, 1)); errors.As(err, &timeout) && timeout.Timeout() {
			open++
		}
	}
	if open > maxUnproved {
		t.Errorf("%d connections of a stranger are open, want %d at most", open, maxUnproved)
	}
	conn, err := (&tls.Dialer{Config: c.tls(stranger)}).DialContext(t.Context(), "tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn) // until the server closes it
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 403 ") {
		t.Errorf("a stranger is told %.100q, %v", answer, err)
	}
}

// TestAMembersConnectionStays open, however many of its address come after it.
func TestAMembersConnectionStays(t *testing.T) {
	t.Parallel()
	c := start(t, func(c *Config) { c.connections = 0 })
	dials := 0
	transport := &http.Transport{
		TLSClientConfig: c.tls(c.certificate(t, pooltest.Node("n2"))), ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, at string) (net.Conn, error) {
			dials++
			return (&net.Dialer{}).DialContext(ctx, network, at)
		},
	}
	defer transport.CloseIdleConnections()
	node := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	ask := func(path string, want int) {
		t.Helper()
		if code, body := c.get(t, node, path); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	ask("/api", http.StatusOK)
	for range 3 * maxUnproved {
		dialer := tls.Dialer{Config: c.tls(c.certificate(t, pooltest.Operator()))}
		conn, err := dialer.DialContext(t.Context(), "tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	ask("/api/v1/pods", http.StatusForbidden)
	ask("/api", http.StatusOK)
	if dials != 1 {
		t.Errorf("the node has dialed %d times", dials)
	}
}
