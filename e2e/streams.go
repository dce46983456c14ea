package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"yurtcoordinator/internal/lab"
)

var streamScenarios = []Scenario{{
	Name: "streams", Quick: true, Lab: realKubelets(pool), run: streams,
	Doc: "through a hub: watch in JSON and protobuf, followed logs, exec and port-forward over SPDY and WebSocket, " +
		"big bodies, failures as Status",
}}

// realKubelets: what this is about can't be seen with hollow ones.
func realKubelets(c lab.Config) lab.Config {
	c.Kubelet = lab.Real
	return c
}

// forwardToHub listens on a loopback address and passes connections on to a node's hub, for clients that dial by
// themselves. It returns an administrator's access through the hub.
func (t *T) forwardToHub(node string) *rest.Config {
	l, err := (&net.ListenConfig{}).Listen(t.ctx, "tcp", "127.0.0.1:0")
	t.must(err)
	hub, err := t.lab.HubConfig(node)
	t.must(err)
	t.background.Go(func() { <-t.ctx.Done(); l.Close() })
	t.background.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.background.Go(func() { t.relay(conn, hub) })
		}
	})
	return &rest.Config{Host: "http://" + l.Addr().String(), BearerToken: lab.AdminToken, QPS: -1}
}

func (t *T) relay(conn net.Conn, hub *rest.Config) {
	defer conn.Close()
	there, err := hub.Dial(t.ctx, "tcp", strings.TrimPrefix(hub.Host, "http://"))
	if err != nil {
		return
	}
	defer there.Close()
	defer context.AfterFunc(t.ctx, func() { conn.Close(); there.Close() })()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(there, conn); there.Close() }) // either end closing ends both: enough for a test
	both.Go(func() { _, _ = io.Copy(conn, there); conn.Close() })
	both.Wait()
}

func streams(t *T) {
	pods := t.deployWeb()
	node := t.follower()
	access := t.forwardToHub(node)
	var target podAt
	for _, p := range pods {
		if p.node != node { // the request crosses both WAN links: hub, cloud, kubelet
			target = p
		}
	}
	t.say("Pod %s on %s, through the hub of %s", target.name, target.node, node)
	client, err := kubernetes.NewForConfig(access)
	t.must(err)

	t.watchThrough(access, "application/json")
	t.watchThrough(access, runtime.ContentTypeProtobuf)
	t.bigBody(client)
	t.executes(access, client, target)
	t.forwardsPorts(access, client, target)
	t.followsLogs(client, target)

	_, err = client.CoreV1().Pods(namespace).Get(t.ctx, "no-such-pod", metav1.GetOptions{})
	status := (interface{ Status() metav1.Status })(nil)
	if !errors.As(err, &status) || status.Status().Code != http.StatusNotFound {
		t.fail("a missing Pod: %v, want the cloud's own Status", err)
	}
	t.say("the cloud's refusals arrive as they are")
}

// watchThrough changes an object in the cloud and expects a watch through the hub to tell it at once.
func (t *T) watchThrough(access *rest.Config, contentType string) {
	access = rest.CopyConfig(access)
	access.ContentType = contentType
	client, err := kubernetes.NewForConfig(access)
	t.must(err)
	name := "watched-" + strings.ReplaceAll(contentType[strings.LastIndexByte(contentType, '/')+1:], ".", "-")
	w, err := client.CoreV1().ConfigMaps(namespace).Watch(t.ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + name,
	})
	t.must(err)
	defer w.Stop()
	worst := time.Duration(0)
	for i := range 20 {
		data := map[string]string{"n": fmt.Sprint(i)}
		if i == 0 {
			_, err = t.cloud.CoreV1().ConfigMaps(namespace).Create(t.ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
		} else {
			_, err = t.cloud.CoreV1().ConfigMaps(namespace).Patch(t.ctx, name, types.MergePatchType,
				fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i), metav1.PatchOptions{})
		}
		changed := time.Now()
		t.must(err)
		select {
		case e := <-w.ResultChan():
			o, ok := e.Object.(*corev1.ConfigMap)
			if !ok || e.Type == watch.Error || o.Data["n"] != data["n"] {
				t.fail("the watch told %v %v, want change %d", e.Type, e.Object, i)
			}
			worst = max(worst, time.Since(changed))
		case <-time.After(5 * time.Second):
			t.fail("a watch in %s did not tell change %d within 5 s: it is buffered somewhere", contentType, i)
		}
	}
	t.figure("worst_watch_delay_ms_"+contentType[strings.LastIndexAny(contentType, "./")+1:],
		float64(worst.Microseconds())/1000)
}

// bigBody sends and fetches an object of almost the size that etcd takes.
func (t *T) bigBody(client kubernetes.Interface) {
	big := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "big"},
		BinaryData: map[string][]byte{"b": bytes.Repeat([]byte("yurt"), 200_000)},
	}
	_, err := client.CoreV1().ConfigMaps(namespace).Create(t.ctx, big, metav1.CreateOptions{})
	t.must(err)
	got, err := client.CoreV1().ConfigMaps(namespace).Get(t.ctx, "big", metav1.GetOptions{})
	t.must(err)
	if !bytes.Equal(got.BinaryData["b"], big.BinaryData["b"]) {
		t.fail("800 KB came back changed")
	}
	t.say("an object of 800 KB goes both ways")
}

func (t *T) executes(access *rest.Config, client kubernetes.Interface, target podAt) {
	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(target.namespace).Name(target.name).
		SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: webName, Command: []string{"sh", "-c", "cat; hostname >&2; exit 7"}, Stdin: true, Stdout: true,
			Stderr: true,
		}, scheme.ParameterCodec)
	spdyExecutor, err := remotecommand.NewSPDYExecutor(access, http.MethodPost, request.URL())
	t.must(err)
	webSocketExecutor, err := remotecommand.NewWebSocketExecutor(access, http.MethodGet, request.URL().String())
	t.must(err)
	executors := map[string]remotecommand.Executor{"SPDY": spdyExecutor, "WebSocket": webSocketExecutor}
	for name, executor := range executors {
		ctx, cancel := context.WithTimeout(t.ctx, 20*time.Second)
		in := strings.Repeat("0123456789abcdef", 20_000)
		var stdout, stderr bytes.Buffer
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{
			Stdin: strings.NewReader(in), Stdout: &stdout, Stderr: &stderr,
		})
		cancel()
		if exit := (interface{ ExitStatus() int })(nil); !errors.As(err, &exit) || exit.ExitStatus() != 7 {
			t.fail("exec over %s: %w, want exit status 7", name, err)
		}
		if stdout.String() != in || strings.TrimSpace(stderr.String()) != target.name {
			t.fail("exec over %s: %d of %d bytes came back, and %q on standard error", name, stdout.Len(), len(in),
				stderr.String())
		}
		t.say("exec over %s: 320 KB there and back, standard error and exit status", name)
	}
}

func (t *T) forwardsPorts(access *rest.Config, client kubernetes.Interface, target podAt) {
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(target.namespace).Name(target.name).
		SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(access)
	t.must(err)
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, access)
	t.must(err)
	for name, dialer := range map[string]httpstream.Dialer{
		"SPDY":      spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url),
		"WebSocket": overWebSocket,
	} {
		stop, ready := make(chan struct{}), make(chan struct{})
		f, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{"0:80"}, stop, ready,
			io.Discard, io.Discard)
		t.must(err)
		ended := make(chan error, 1)
		go func() { ended <- f.ForwardPorts() }()
		select {
		case <-ready:
		case err := <-ended:
			t.fail("port-forward over %s: %w", name, err)
		case <-time.After(10 * time.Second):
			t.fail("port-forward over %s does not begin", name)
		}
		ports, err := f.GetPorts()
		t.must(err)
		body, err := fetch(t.ctx, http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local))
		t.must(err)
		close(stop)
		t.must(<-ended)
		if strings.TrimSpace(body) != target.name {
			t.fail("port-forward over %s: %q, want the Pod's host name", name, body)
		}
		t.say("port-forward over %s", name)
	}
}

func fetch(ctx context.Context, client *http.Client, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// followsLogs starts a Pod that writes a line each 200 ms and expects them as they come.
func (t *T) followsLogs(client kubernetes.Interface, target podAt) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "talker"},
		Spec: corev1.PodSpec{NodeName: target.node, Containers: []corev1.Container{{
			Name: "talker", Image: webImage,
			Command: []string{"sh", "-c", "i=0; while true; do i=$((i+1)); echo line $i; usleep 200000; done"},
		}}},
	}
	_, err := t.cloud.CoreV1().Pods(namespace).Create(t.ctx, pod, metav1.CreateOptions{})
	t.must(err)
	t.eventually(30*time.Second, "the talking Pod runs", func() error {
		for _, p := range t.seen.livePods() {
			if p.name == pod.Name && p.ready {
				return nil
			}
		}
		return errors.New("it is not ready")
	})
	ctx, cancel := context.WithTimeout(t.ctx, 20*time.Second)
	defer cancel()
	stream, err := client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	t.must(err)
	defer stream.Close()
	var seen bytes.Buffer
	chunk := make([]byte, 4096)
	for reads := 0; !strings.Contains(seen.String(), "line 12\n"); reads++ {
		n, err := stream.Read(chunk)
		if err != nil {
			t.fail("followed logs ended after %q: %w", seen.String(), err)
		}
		seen.Write(chunk[:n])
	}
	t.say("followed logs arrive as they are written")
}
