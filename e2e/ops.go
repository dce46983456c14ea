package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var opsScenarios = []Scenario{
	{
		Name: "ops-while-cut", Lab: withKubectlOlder(pool.AsInstalled()), run: opsWhileCut,
		Doc: "logs, exec, attach, cp, port-forward, describe, events, get and get -w print at a coordinator what they print " +
			"through the cloud, over WebSocket and SPDY, with our kubectl and an older one, also with the pool cut off; a " +
			"crash is shown then, and every command of docs/operations.md works; healed, cloud and pool agree",
	},
	{
		Name: "ops-denied", Lab: lab.Config{Pools: 2, Nodes: 3, Timing: lab.Quick}.AsInstalled(), run: opsDenied,
		Doc: "an operator tries to change something, to read Secrets, to be somebody else; others try with another pool's, a " +
			"node's and a stranger's certificate: all refused, with what to do instead, and logged",
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

func opsWhileCut(t *T) {
	t.settled(30 * time.Second)
	names := t.nodeNames()
	site := t.coordinator(lab.Operator)
	t.deployWeb()
	t.deployTill()
	crasher := t.deployCrasher(tillNode)
	t.shownAsInTheCloud(site, names, 30*time.Second)
	t.getsIn()
	t.watched()
	marker := len(t.audited())

	want := map[bool]map[string]string{}
	for _, older := range []bool{false, true} {
		want[older] = t.looks(place{atCloud, older})
		t.sameLooks("with the cloud connected", place{atSite, older}, want[older])
		t.ownLooks(place{atSite, older})
		t.streamsWork(place{atCloud, older})
		t.streamsWork(place{atSite, older})
	}
	if v := "version by websocket"; want[true][v] == want[false][v] {
		t.fail("both kubectls are the same: %s", want[true][v])
	}
	before := t.restarts()
	doc := t.runbook()
	doc.run(t, true)

	t.say("cutting all WAN links of the pool, silently")
	t.must(t.lab.Cut(t.ctx, lab.WAN, "pool/p1", wire.Drop))
	t.allDown(names...)
	start := time.Now()
	for _, older := range []bool{false, true} {
		t.sameLooks("cut off", place{atSite, older}, want[older])
		t.ownLooks(place{atSite, older})
		t.streamsWork(place{atSite, older})
	}
	doc.run(t, false)
	t.figure("cut_commands_s", time.Since(start).Seconds())
	t.streamsAudited(marker)
	t.crashPrinted(site)

	t.healedAgree(site, "pool/p1", crasher, 2)
	t.settled(60 * time.Second)
	t.eventually(60*time.Second, "the cloud has all nodes as Ready again, and the Pod", func() error {
		for _, name := range names {
			if n := t.seen.node(name); n.ready != corev1.ConditionTrue {
				return fmt.Errorf("%s: %+v", name, n)
			}
		}
		p, err := t.cloud.CoreV1().Pods(shop).Get(t.ctx, till, metav1.GetOptions{})
		if err == nil && !podReady(p) {
			err = fmt.Errorf("its conditions: %+v", p.Status.Conditions)
		}
		return err
	})
	t.shownAsInTheCloud(site, names, 30*time.Second)
	t.crasherPrintedAlike()
	if now := t.restarts(); now != before {
		t.fail("containers were restarted: %s, before %s", now, before)
	}
}

// getsIn waits until the coordinator gets into the container. It starts with a certificate that kubelets do not know, until the
// cluster has signed one; and the first request after it has another fails, since client-go closes all connections then.
func (t *T) getsIn() {
	t.eventually(30*time.Second, "the coordinator gets into the container", func() error {
		out, err := t.kubectlSays(kubectlRun{place: place{via: atSite}, args: strings.Fields("logs till -n shop -c till")})
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
}

// deployTill makes the Pod of docs/operations.md and its Service, and waits until its second container has crashed and runs
// again.
func (t *T) deployTill() {
	_, err := t.cloud.CoreV1().Namespaces().Create(t.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}},
		metav1.CreateOptions{})
	t.must(err)
	state := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	container := func(name, script string) corev1.Container {
		return corev1.Container{
			Name: name, Image: webImage, Command: []string{"sh", "-c", script}, Stdin: name != till, TTY: name == desk,
			VolumeMounts: []corev1.VolumeMount{{Name: "state", MountPath: "/state"}},
		}
	}
	_, err = t.cloud.CoreV1().Pods(shop).Create(t.ctx, &corev1.Pod{
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
	t.must(err)
	_, err = t.cloud.CoreV1().Services(shop).Create(t.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: till},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": till}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	t.must(err)
	t.eventually(90*time.Second, "the Pod "+till+" runs, and has been restarted once", func() error {
		p, err := t.cloud.CoreV1().Pods(shop).Get(t.ctx, till, metav1.GetOptions{})
		if err == nil && (!podReady(p) || restartsOf(p) != tillRestarts) {
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

func (t *T) restarts() string {
	p, err := t.cloud.CoreV1().Pods(shop).Get(t.ctx, till, metav1.GetOptions{})
	t.must(err)
	return restartsOf(p)
}

// watched expects that `get -w` at the coordinator shows what changes in the cloud.
func (t *T) watched() {
	cmd, err := t.lab.Kubectl(t.ctx, atSite, strings.Fields("get pods -n shop -w -L seen"))
	t.must(err)
	w := t.begin(cmd, false)
	defer func() { _ = w.end() }()
	t.says(w, "get -w", till)
	label := func(change string) {
		args := strings.Fields("label pod till -n shop " + change)
		out, err := t.kubectlSays(kubectlRun{place: place{via: atCloud}, args: args})
		if err != nil {
			t.fail("label: %v: %s", err, out)
		}
	}
	label("seen=changed")
	t.says(w, "get -w", "changed")
	label("seen-")
}

// streamsWork tries what goes on until it is ended, and what moves files.
func (t *T) streamsWork(at place) {
	for protocol := range protocols {
		start := func(terminal bool, args string) *running {
			cmd, err := t.kubectlFor(t.ctx, kubectlRun{place: at, protocol: protocol, args: strings.Fields(args)})
			t.must(err)
			return t.begin(cmd, terminal)
		}
		what := func(s string) string { return s + " at " + at.String() + " by " + protocol }
		follow := start(false, "logs till -n shop -c side -f --tail=1")
		attach := start(false, "attach -i till -n shop -c side")
		t.says(attach, what("attach"), "press") // enter
		line := fmt.Sprintf("line-%d-%s", time.Now().UnixNano(), protocol)
		_, err := io.WriteString(attach.input, line+"\n")
		t.must(err)
		t.says(attach, what("attach"), line)
		t.says(follow, what("logs -f"), line)
		_, _ = attach.end(), follow.end()

		shell := start(true, "exec -it till -n shop -c till -- sh")
		t.says(shell, what("exec -it"), "# ")
		t.sized(what("exec -it"), shell)
		_, err = io.WriteString(shell.input, "tty; echo $((6*7)); exit 7\n")
		t.must(err)
		t.says(shell, what("exec -it"), "/dev/pts/")
		t.says(shell, what("exec -it"), "42")
		if err := <-shell.ended; err == nil || err.Error() != "exit status 7" {
			t.fail("%s ends with %v", what("exec -it"), err)
		}
		atDesk := start(true, "attach -it till -n shop -c desk")
		t.says(atDesk, what("attach -it"), "press")
		t.sized(what("attach -it"), atDesk)
		_ = atDesk.end() // the shell goes on: its Pod counts no restart
		t.portForwarded(what("port-forward"), start(false, "port-forward -n shop pod/till :80"))
		t.copied(at, protocol)
	}
}

// portForwarded fetches the web server's page through a kubectl port-forward, and ends that.
func (t *T) portForwarded(what string, forward *running) {
	defer func() { _ = forward.end() }()
	t.says(forward, what, "Forwarding from 127.0.0.1:")
	_, rest, _ := strings.Cut(forward.printed(), "Forwarding from ")
	address, _, _ := strings.Cut(rest, " ")
	t.pageAt(what, address)
}

func (t *T) pageAt(what, address string) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return t.lab.Dial(ctx, "", address)
		},
	}}
	for range 3 {
		t.eventually(commandTimeout, what+" leads to the web server", func() error {
			body, err := fetch(t.ctx, client, "http://till/")
			if err == nil && body != "hello\n" {
				err = fmt.Errorf("it answers %q", body)
			}
			return err
		})
	}
}

// copied expects that a file comes back as it went.
func (t *T) copied(at place, protocol string) {
	dir, err := os.MkdirTemp("", "yurtlab-ops-")
	t.must(err)
	defer func() { t.must(os.RemoveAll(dir)) }()
	content := []byte(strings.Repeat(at.String()+protocol+"\n", 50_000))
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	t.must(os.WriteFile(there, content, 0o600))
	for _, args := range [][]string{
		{"cp", there, "shop/till:/tmp/copy", "-c", till}, {"cp", "shop/till:/tmp/copy", back, "-c", till},
	} {
		if out, err := t.kubectlSays(kubectlRun{place: at, protocol: protocol, args: args}); err != nil {
			t.fail("kubectl %v at %s by %s: %v: %s", args, at, protocol, err, out)
		}
	}
	got, err := os.ReadFile(back)
	t.must(err)
	if !slices.Equal(got, content) {
		t.fail("cp at %s by %s: %d bytes came back, not the %d that went", at, protocol, len(got), len(content))
	}
}

// audited are the lines about streams in the coordinator's log.
func (t *T) audited() []string { return t.coordinatorSays(`"event":"opened"`) }

// streamsAudited expects that the coordinator's log says who has opened which streams, and nothing of what went through.
func (t *T) streamsAudited(marker int) {
	user := fmt.Sprintf(`"user":%q`, edge.PoolName("p1").OperatorUser())
	pod := "/api/v1/namespaces/shop/pods/till/"
	t.eventually(10*time.Second, "the audit log has each kind of stream, by whom, and no data", func() error {
		lines := t.audited()[marker:]
		for _, want := range []string{
			pod + `exec","container":"till","command":["cat","/www/index.html"]`,
			pod + `exec","container":"till","command":["sh"]`,
			pod + `exec","container":"till","command":["tar","cf","-","/tmp/copy"]`, pod + `attach","container":"side"`,
			pod + `attach","container":"desk"`, pod + `portforward"`,
		} {
			is := func(l string) bool { return strings.Contains(l, want) && strings.Contains(l, user) }
			if !slices.ContainsFunc(lines, is) {
				return fmt.Errorf("none of %d lines has %s and %s", len(lines), want, user)
			}
		}
		for _, l := range lines {
			if strings.Contains(l, "0123456789") || strings.Contains(l, "line-") || strings.Contains(l, "6*7") ||
				strings.Contains(l, "stty") {
				return fmt.Errorf("it has data: %s", l)
			}
		}
		return nil
	})
}
