package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var streamScenarios = []kit.Scenario{{
	Name: "streams", Tier: kit.Core, Lab: kit.RealKubelets(kit.OnePool), Run: streams,
	Doc: "Through a hub: followed logs, exec and port-forward over SPDY and WebSocket, and failures reported as a Status.",
}}

// proxyToHub serves CONNECT on a loopback address and connects to a node's hub. It is for clients that dial by themselves. It
// returns an administrator's access through the hub.
func proxyToHub(t *kit.T, node string) *rest.Config {
	l, err := (&net.ListenConfig{}).Listen(t.Ctx, "tcp", "127.0.0.1:0")
	t.Must(err)
	hub, err := t.Lab.HubConfigAs(node, lab.AdminToken)
	t.Must(err)
	dial := hub.Dial
	connect := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := dial(t.Ctx, "tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			there.Close()
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n") // a client that is gone is seen by relay
		t.Background.Go(func() { relay(t, here, there) })
	})
	proxy := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: connect}
	t.Background.Go(func() { _ = proxy.Serve(l) })
	t.Background.Go(func() { <-t.Ctx.Done(); _ = proxy.Close() })
	hub.Dial = nil
	hub.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: l.Addr().String()})
	return hub
}

func relay(t *kit.T, here, there net.Conn) {
	defer here.Close()
	defer there.Close()
	defer context.AfterFunc(t.Ctx, func() { here.Close(); there.Close() })()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(there, here); there.Close() }) // a closed end closes both: enough for a test
	both.Go(func() { _, _ = io.Copy(here, there); here.Close() })
	both.Wait()
}

func streams(t *kit.T) {
	pods := t.DeployWeb()
	node := t.Pool.Follower()
	access := proxyToHub(t, node)
	var target kit.PodAt
	for _, p := range pods {
		if p.Node != node { // the request crosses both WAN links: hub, cloud, kubelet
			target = p
		}
	}
	t.Say("Pod %s on %s, through the hub of %s", target.Name, target.Node, node)
	client := t.Client(access)

	executes(t, access, client, target)
	forwardsPorts(t, access, client, target)
	followsLogs(t, client, target)

	_, err := client.CoreV1().Pods(kit.Namespace).Get(t.Ctx, "no-such-pod", metav1.GetOptions{})
	status := (interface{ Status() metav1.Status })(nil)
	if !errors.As(err, &status) || status.Status().Code != http.StatusNotFound {
		t.Fail("a missing Pod: %v, want the cloud's own Status", err)
	}
	t.Say("the cloud's refusals arrive as they are")
}

func executes(t *kit.T, access *rest.Config, client kubernetes.Interface, target kit.PodAt) {
	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(target.Namespace).Name(target.Name).
		SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: kit.WebName, Command: []string{"sh", "-c", "cat; hostname >&2; exit 7"}, Stdin: true, Stdout: true,
			Stderr: true,
		}, scheme.ParameterCodec)
	spdyExecutor, err := remotecommand.NewSPDYExecutor(access, http.MethodPost, request.URL())
	t.Must(err)
	webSocketExecutor, err := remotecommand.NewWebSocketExecutor(access, http.MethodGet, request.URL().String())
	t.Must(err)
	executors := map[string]remotecommand.Executor{"SPDY": spdyExecutor, "WebSocket": webSocketExecutor}
	for name, executor := range executors {
		ctx, cancel := context.WithTimeout(t.Ctx, 20*time.Second)
		in := strings.Repeat("0123456789abcdef", 20_000)
		var stdout, stderr bytes.Buffer
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{
			Stdin: strings.NewReader(in), Stdout: &stdout, Stderr: &stderr,
		})
		cancel()
		if exit := (interface{ ExitStatus() int })(nil); !errors.As(err, &exit) || exit.ExitStatus() != 7 {
			t.Fail("exec over %s: %w, want exit status 7", name, err)
		}
		if stdout.String() != in || strings.TrimSpace(stderr.String()) != target.Name {
			t.Fail("exec over %s: %d of %d bytes came back, and %q on standard error", name, stdout.Len(), len(in),
				stderr.String())
		}
		t.Say("exec over %s: 320 KB there and back, standard error and exit status", name)
	}
}

func forwardsPorts(t *kit.T, access *rest.Config, client kubernetes.Interface, target kit.PodAt) {
	address := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(target.Namespace).Name(target.Name).
		SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(access)
	t.Must(err)
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, access)
	t.Must(err)
	for name, dialer := range map[string]httpstream.Dialer{
		"SPDY":      spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, address),
		"WebSocket": overWebSocket,
	} {
		stop, ready := make(chan struct{}), make(chan struct{})
		f, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{"0:80"}, stop, ready,
			io.Discard, io.Discard)
		t.Must(err)
		ended := make(chan error, 1)
		go func() { ended <- f.ForwardPorts() }()
		select {
		case <-ready:
		case err := <-ended:
			t.Fail("port-forward over %s: %w", name, err)
		case <-time.After(10 * time.Second):
			t.Fail("port-forward over %s does not begin", name)
		}
		ports, err := f.GetPorts()
		t.Must(err)
		body, err := kit.Fetch(t.Ctx, http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local))
		t.Must(err)
		close(stop)
		t.Must(<-ended)
		if strings.TrimSpace(body) != target.Name {
			t.Fail("port-forward over %s: %q, want the Pod's host name", name, body)
		}
		t.Say("port-forward over %s", name)
	}
}

// followsLogs starts a Pod that writes a line each 200 ms and expects the lines as they are written.
func followsLogs(t *kit.T, client kubernetes.Interface, target kit.PodAt) {
	const talker = "talker"
	const script = "i=0; while true; do i=$((i+1)); echo line $i; usleep 200000; done"
	t.Node(target.Node).RunPod(talker, []string{"sh", "-c", script}, nil)
	t.Eventually(30*time.Second, "the talking Pod runs", func() error {
		for _, p := range t.Seen.LivePods() {
			if p.Name == talker && p.Ready {
				return nil
			}
		}
		return errors.New("it is not ready")
	})
	ctx, cancel := context.WithTimeout(t.Ctx, 20*time.Second)
	defer cancel()
	stream, err := client.CoreV1().Pods(kit.Namespace).GetLogs(talker, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	t.Must(err)
	defer stream.Close()
	var seen bytes.Buffer
	chunk := make([]byte, 4096)
	for reads := 0; !strings.Contains(seen.String(), "line 12\n"); reads++ {
		n, err := stream.Read(chunk)
		if err != nil {
			t.Fail("followed logs ended after %q: %w", seen.String(), err)
		}
		seen.Write(chunk[:n])
	}
	t.Say("followed logs arrive as they are written")
}
