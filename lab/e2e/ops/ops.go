package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var opsScenarios = []kit.Scenario{
	{
		Name: "ops-while-cut", Lab: withKubectlOlder(kit.Joining(kit.OnePool.AsInstalled(), 0)), Run: opsWhileCut,
		Pages: []kit.Reading{operationsPage},
		Doc: "`logs`, `exec`, `attach`, `cp`, `port-forward`, `describe`, `events`, `get` and `get -w` print at a " +
			"coordinator what they print through the cloud, over WebSocket and SPDY, with this kubectl and the previous " +
			"minor version, connected and cut off. A crash is visible then, and every command of `docs/operations.md` " +
			"works. Once healed, cloud and pool agree.",
	},
	{
		Name: "ops-denied", Lab: lab.Config{Pools: 2, Nodes: 3, Timing: lab.Quick}.AsInstalled(), Run: opsDenied,
		Doc: "Operators try to write, read Secrets and impersonate at a coordinator; other pools, other nodes and " +
			"strangers try to list, read logs, stream and change Pods. All are refused, and operators are told what to do " +
			"instead.",
	},
}

// The workload of docs/operations.md.
const (
	shop, till, side = "shop", "till", "side"
	tillNode         = "p1-n2"
	desk             = "desk"
	tillRestarts     = "desk=0 side=1 till=0"
	atCloud, atSite  = "cloud", "coordinator/p1"
)

func withKubectlOlder(c lab.Config) lab.Config {
	c.KubectlOlder = true
	return c
}

func opsWhileCut(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	names := t.Pool.Nodes()
	site := t.Pool.Coordinator(lab.Operator)
	t.DeployWeb()
	deployTill(t)
	crasher := deployCrasher(t, tillNode)
	shownAsInTheCloud(t, site, names, 30*time.Second)
	getsIn(t)
	watched(t)
	marker := len(streamsOpened(t))

	t.Eventually(60*time.Second, "all hubs have said which settings they run with, as they do once", func() error {
		for _, name := range names {
			n, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, name, metav1.GetOptions{})
			if err == nil && n.Annotations[edge.AnnotationSettings] == "" {
				err = fmt.Errorf("the Node %s has no annotation", name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	want := map[bool]map[string]string{}
	for _, older := range []bool{false, true} {
		want[older] = allLooks(t, place{atCloud, older})
		sameLooks(t, "with the cloud connected", place{atSite, older}, want[older])
		checkOwnLooks(t, place{atSite, older})
		warned(t, place{atSite, older}, false)
		streamsWork(t, place{atCloud, older})
		streamsWork(t, place{atSite, older})
	}
	own := look{args: "version --client"}
	if ours := lookAt(t, place{atCloud, false}, own, "websocket"); ours == lookAt(t, place{atCloud, true}, own, "websocket") {
		t.Fail("both kubectls are the same: %s", ours)
	}
	before := restarts(t)
	doc := newRunbook(t)
	doc.run(t, true)

	t.Say("cutting all WAN links of the pool, silently")
	t.Cut("pool/p1")
	t.Pool.NoticesCut(names...)
	start := time.Now()
	for _, older := range []bool{false, true} {
		warned(t, place{atSite, older}, true)
		sameLooks(t, "cut off", place{atSite, older}, want[older])
		checkOwnLooks(t, place{atSite, older})
		streamsWork(t, place{atSite, older})
	}
	doc.run(t, false)
	t.Figure("cut_commands_s", time.Since(start).Seconds())
	streamsAudited(t, marker)
	crashPrinted(t, site)

	healedAgree(t, site, "pool/p1", crasher, 2)
	t.Pool.Settled(60 * time.Second)
	t.Eventually(60*time.Second, "the cloud has all nodes as Ready again, and the Pod", func() error {
		for _, name := range names {
			if n := t.Seen.Node(name); n.Ready != corev1.ConditionTrue {
				return fmt.Errorf("%s: %+v", name, n)
			}
		}
		p, err := t.Cloud.CoreV1().Pods(shop).Get(t.Ctx, till, metav1.GetOptions{})
		if err == nil && !kit.PodReady(p) {
			err = fmt.Errorf("its conditions: %+v", p.Status.Conditions)
		}
		return err
	})
	warned(t, place{via: atSite}, false)
	shownAsInTheCloud(t, site, names, 30*time.Second)
	crasherPrintedAlike(t)
	if now := restarts(t); now != before {
		t.Fail("containers were restarted: %s, before %s", now, before)
	}
}

// getsIn waits until the coordinator gets into the container. Two things may fail at first. The coordinator starts with a
// certificate that kubelets do not know, until the cluster has signed one. And the first request after it gets a new
// certificate fails, because client-go closes all connections then.
func getsIn(t *kit.T) {
	t.Eventually(30*time.Second, "the coordinator gets into the container", func() error {
		out, err := kubectlSays(t, kubectlRun{place: place{via: atSite}, args: strings.Fields("logs till -n shop -c till")})
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
}

// deployTill makes the Pod of docs/operations.md and its Service, and waits until its second container has crashed and
// runs again.
func deployTill(t *kit.T) {
	_, err := t.Cloud.CoreV1().Namespaces().Create(t.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}},
		metav1.CreateOptions{})
	t.Must(err)
	state := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	container := func(name, script string) corev1.Container {
		return corev1.Container{
			Name: name, Image: kit.WebImage, Command: []string{"sh", "-c", script}, Stdin: name != till, TTY: name == desk,
			VolumeMounts: []corev1.VolumeMount{{Name: "state", MountPath: "/state"}},
		}
	}
	_, err = t.Cloud.CoreV1().Pods(shop).Create(t.Ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: till, Labels: map[string]string{"app": till}},
		Spec: corev1.PodSpec{
			NodeName: tillNode, TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{
				container(till, "mkdir -p /www; echo hello > /www/index.html; echo open; httpd -f -p 80 -h /www"),
				container(side, "echo life $(cat /state/n); if [ ! -f /state/n ]; then echo 2 > /state/n; exit 1; fi; cat"),
				container(desk, "exec sh"),
			},
			Volumes:     []corev1.Volume{{Name: "state", VolumeSource: state}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	t.Must(err)
	_, err = t.Cloud.CoreV1().Services(shop).Create(t.Ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: till},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": till}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	t.Must(err)
	t.Eventually(90*time.Second, "the Pod "+till+" runs, and has been restarted once", func() error {
		p, err := t.Cloud.CoreV1().Pods(shop).Get(t.Ctx, till, metav1.GetOptions{})
		if err == nil && (!kit.PodReady(p) || restartsOf(p) != tillRestarts) {
			err = fmt.Errorf("its status: %+v", p.Status)
		}
		return err
	})
}

func restartsOf(p *corev1.Pod) string {
	var all []string
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		all = append(all, fmt.Sprintf("%s=%d", s.Name, s.RestartCount))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func restarts(t *kit.T) string {
	p, err := t.Cloud.CoreV1().Pods(shop).Get(t.Ctx, till, metav1.GetOptions{})
	t.Must(err)
	return restartsOf(p)
}

// watched expects that `get -w` at the coordinator shows changes in the cloud.
func watched(t *kit.T) {
	cmd, err := t.Lab.Kubectl(t.Ctx, atSite, strings.Fields("get pods -n shop -w -L seen"))
	t.Must(err)
	w := begin(t, cmd, false)
	defer func() { _ = w.end() }()
	says(t, w, "get -w", till)
	label := func(change string) {
		args := strings.Fields("label pod till -n shop " + change)
		out, err := kubectlSays(t, kubectlRun{place: place{via: atCloud}, args: args})
		if err != nil {
			t.Fail("label: %v: %s", err, out)
		}
	}
	label("seen=changed")
	says(t, w, "get -w", "changed")
	label("seen-")
}

// streamsWork tries streams that continue until they are ended, and copies of files.
func streamsWork(t *kit.T, at place) {
	for protocol := range protocols {
		start := func(terminal bool, args string) *running {
			cmd, err := kubectlFor(t.Ctx, t, kubectlRun{place: at, protocol: protocol, args: strings.Fields(args)})
			t.Must(err)
			return begin(t, cmd, terminal)
		}
		what := func(s string) string { return s + " at " + at.String() + " by " + protocol }
		follow := start(false, "logs till -n shop -c side -f --tail=1")
		attach := start(false, "attach -i till -n shop -c side")
		says(t, attach, what("attach"), "press") // enter
		line := fmt.Sprintf("line-%d-%s", time.Now().UnixNano(), protocol)
		_, err := io.WriteString(attach.input, line+"\n")
		t.Must(err)
		says(t, attach, what("attach"), line)
		says(t, follow, what("logs -f"), line)
		_, _ = attach.end(), follow.end()

		shell := start(true, "exec -it till -n shop -c till -- sh")
		says(t, shell, what("exec -it"), "# ")
		sized(t, what("exec -it"), shell)
		_, err = io.WriteString(shell.input, "tty; echo $((6*7)); exit 7\n")
		t.Must(err)
		says(t, shell, what("exec -it"), "/dev/pts/")
		says(t, shell, what("exec -it"), "42")
		if err := <-shell.ended; err == nil || err.Error() != "exit status 7" {
			t.Fail("%s ends with %v", what("exec -it"), err)
		}
		atDesk := start(true, "attach -it till -n shop -c desk")
		says(t, atDesk, what("attach -it"), "press")
		sized(t, what("attach -it"), atDesk)
		_ = atDesk.end() // the shell continues: its Pod counts no restart
		portForwarded(t, what("port-forward"), start(false, "port-forward -n shop pod/till :80"))
		copied(t, at, protocol)
	}
}

// portForwarded fetches the web server's page through a kubectl port-forward, and ends that.
func portForwarded(t *kit.T, what string, forward *running) {
	defer func() { _ = forward.end() }()
	says(t, forward, what, "Forwarding from 127.0.0.1:")
	_, rest, _ := strings.Cut(forward.printed(), "Forwarding from ")
	address, _, _ := strings.Cut(rest, " ")
	pageAt(t, what, address)
}

func pageAt(t *kit.T, what, address string) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return t.Lab.Dial(ctx, "", address)
		},
	}}
	for range 3 {
		t.Eventually(commandTimeout, what+" leads to the web server", func() error {
			body, err := kit.Fetch(t.Ctx, client, "http://till/")
			if err == nil && body != "hello\n" {
				err = fmt.Errorf("it answers %q", body)
			}
			return err
		})
	}
}

// copied expects that a file comes back unchanged.
func copied(t *kit.T, at place, protocol string) {
	dir, err := os.MkdirTemp("", "yurtlab-ops-")
	t.Must(err)
	defer func() { t.Must(os.RemoveAll(dir)) }()
	content := []byte(strings.Repeat(at.String()+protocol+"\n", 50_000))
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	t.Must(os.WriteFile(there, content, 0o600))
	for _, args := range [][]string{
		{"cp", there, "shop/till:/tmp/copy", "-c", till}, {"cp", "shop/till:/tmp/copy", back, "-c", till},
	} {
		if out, err := kubectlSays(t, kubectlRun{place: at, protocol: protocol, args: args}); err != nil {
			t.Fail("kubectl %v at %s by %s: %v: %s", args, at, protocol, err, out)
		}
	}
	got, err := os.ReadFile(back)
	t.Must(err)
	if !slices.Equal(got, content) {
		t.Fail("cp at %s by %s: %d bytes came back, not the %d that went", at, protocol, len(got), len(content))
	}
}

// streamsOpened returns the audit lines of the coordinator about streams that were let in.
func streamsOpened(t *kit.T) []auditv1.Event {
	lines, _ := t.Pool.CoordinatorSays()
	return slices.DeleteFunc(lines, func(e auditv1.Event) bool { return e.ResponseStatus.Code >= http.StatusBadRequest })
}

// streamsAudited expects that the coordinator's log says who opened which streams, and nothing of their content.
func streamsAudited(t *kit.T, marker int) {
	t.Eventually(10*time.Second, "the audit log has each kind of stream, by whom, and no data", func() error {
		lines := streamsOpened(t)[marker:]
		for _, want := range []struct{ stream, container, command string }{
			{"exec", till, "cat /www/index.html"}, {"exec", till, "sh"}, {"exec", till, "tar cf - /tmp/copy"}, {"log", till, ""},
			{"attach", "side", ""}, {"attach", "desk", ""}, {"portforward", "", ""},
		} {
			is := func(e auditv1.Event) bool {
				asked, err := url.ParseRequestURI(e.RequestURI)
				return err == nil && e.User.Username == edge.PoolName("p1").OperatorUser() &&
					e.ObjectRef.Namespace == shop && e.ObjectRef.Name == till && e.ObjectRef.Subresource == want.stream &&
					asked.Query().Get("container") == want.container &&
					strings.Join(asked.Query()["command"], " ") == want.command
			}
			if !slices.ContainsFunc(lines, is) {
				return fmt.Errorf("none of %d lines has %+v", len(lines), want)
			}
		}
		for _, e := range lines {
			text, err := json.Marshal(e)
			t.Must(err)
			if data := []string{"0123456789", "line-", "6*7", "stty"}; slices.ContainsFunc(data, func(d string) bool {
				return strings.Contains(string(text), d)
			}) {
				return fmt.Errorf("it has data: %s", text)
			}
		}
		return nil
	})
}
