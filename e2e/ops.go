package e2e

import (
	"context"
	"errors"
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
		Name: "ops-while-cut", Lab: pool.AsInstalled(), run: opsWhileCut,
		Doc: "logs, exec, attach, cp, port-forward, describe, events, get and get -w print at a coordinator what they print " +
			"through the cloud, over WebSocket and SPDY, also with the pool cut off; every command of docs/operations.md " +
			"works then",
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
	tillRestarts     = "side=1 till=0"
	atCloud, atSite  = "cloud", "coordinator/p1"
)

func opsWhileCut(t *T) {
	t.settled(30 * time.Second)
	names := t.nodeNames()
	site := t.coordinator(lab.Operator)
	t.deployWeb()
	t.deployTill()
	t.shownAsInTheCloud(site, names, 30*time.Second)
	// A coordinator starts with a certificate that kubelets do not know, until the cluster has signed one; and the first request
	// after it has another fails, since client-go closes all connections then.
	t.eventually(30*time.Second, "the coordinator gets into the container", func() error {
		out, err := t.kubectlSays(kubectlRun{via: atSite, args: strings.Fields("logs till -n shop -c till")})
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	t.watched()
	marker := len(t.audited())

	want := t.looks(atCloud)
	t.sameLooks("with the cloud connected", want)
	t.streamsWork(atCloud)
	t.streamsWork(atSite)
	before := t.restarts()
	doc := t.runbook()
	doc.run(t, true)

	t.say("cutting all WAN links of the pool, silently")
	t.must(t.lab.Cut(t.ctx, lab.WAN, "pool/p1", wire.Drop))
	t.eventually(30*time.Second, "all hubs know", func() error {
		for name, hub := range t.hubs() {
			if hub.Cloud == "up" {
				return fmt.Errorf("%s is still connected", name)
			}
		}
		return nil
	})
	start := time.Now()
	t.sameLooks("cut off", want)
	t.streamsWork(atSite)
	doc.run(t, false)
	t.figure("cut_commands_s", time.Since(start).Seconds())
	t.streamsAudited(marker)

	t.must(t.lab.Heal(t.ctx, lab.WAN, "pool/p1"))
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
	if now := t.restarts(); now != before {
		t.fail("containers were restarted: %s, before %s", now, before)
	}
}

// deployTill makes the Pod of docs/operations.md, and waits until its second container has crashed and runs again.
func (t *T) deployTill() {
	_, err := t.cloud.CoreV1().Namespaces().Create(t.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}},
		metav1.CreateOptions{})
	t.must(err)
	state := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	container := func(name, script string) corev1.Container {
		return corev1.Container{
			Name: name, Image: webImage, Command: []string{"sh", "-c", script}, Stdin: name == side,
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
			},
			Volumes:     []corev1.Volume{{Name: "state", VolumeSource: state}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
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

// look is a command that prints the same wherever it is asked.
type look struct {
	args   string
	stdin  string
	fails  string // what kubectl ends with; empty: success
	sorted bool   // its lines have no order that is the same everywhere
	until  string // what comes from there on is each server's own
	stream bool   // by each protocol
}

var looks = []look{
	{args: "get nodes -l apps.openyurt.io/nodepool=p1 -o wide"},
	{args: "get node p1-n1 -o yaml", until: "\nstatus:"}, // kubelet's heartbeat goes on
	{args: "get pods -n shop -o wide"},
	{args: "get pods -n shop --show-labels"},
	{args: "get pod till -n shop -o yaml"},
	{args: "get pods -A -l app.kubernetes.io/name=yurt-coordinator"},
	{args: "get configmaps -n shop -o yaml"},
	{args: "describe node p1-n2", until: "\nEvents:"}, // the node controller's are in the cloud alone
	{args: "describe pod till -n shop", sorted: true},
	{args: "events -n shop --for pod/till", sorted: true},
	{args: "get events -n shop --field-selector involvedObject.name=till,reason=Started -o name", sorted: true},
	{args: "logs till -n shop -c till"},
	{args: "logs till -n shop -c side --previous"},
	{args: "logs till -n shop -c side", until: "line"},
	{args: "logs till -n shop -c nobody", fails: "exit status 1"},
	{args: "exec till -n shop -c till -- cat /www/index.html", stream: true},
	{args: "exec till -n shop -c till -- ls /nowhere", fails: "exit status 1", stream: true},
	{args: "exec -i till -n shop -c till -- wc -c", stdin: strings.Repeat("0123456789", 20_000), stream: true},
	{args: "version", sorted: true},
}

// looks runs them all at a place.
func (t *T) looks(via string) map[string]string {
	all := map[string]string{}
	for _, l := range looks {
		for name := range protocols {
			if !l.stream && name != "websocket" {
				continue
			}
			out, err := t.kubectlSays(kubectlRun{via: via, protocol: name, args: strings.Fields(l.args), stdin: l.stdin})
			ended := ""
			if err != nil {
				ended = err.Error()
			}
			if ended != l.fails {
				t.fail("kubectl %s, at %s, by %s: it ends with %q, want %q: %s", l.args, via, name, ended, l.fails, out)
			}
			out, _, _ = strings.Cut(out, l.untilOr(out))
			all[l.args+" by "+name] = normal(out, l.sorted)
		}
	}
	return all
}

// untilOr is where an output is cut, which is nowhere if that is not said.
func (l look) untilOr(out string) string {
	if l.until == "" {
		return out + "\x00"
	}
	return l.until
}

// sameLooks expects that the coordinator prints what the cloud did.
func (t *T) sameLooks(when string, want map[string]string) {
	t.eventually(30*time.Second, fmt.Sprintf("%s, %d commands print what the cloud does", when, len(want)), func() error {
		var wrong []error
		for args, got := range t.looks(atSite) {
			if got != want[args] {
				wrong = append(wrong, fmt.Errorf("kubectl %s: %s", args, firstLine(got, want[args])))
			}
		}
		return errors.Join(wrong...)
	})
}

// watched expects that `get -w` at the coordinator shows what changes in the cloud.
func (t *T) watched() {
	cmd, err := t.lab.Kubectl(t.ctx, atSite, strings.Fields("get pods -n shop -w -L seen"))
	t.must(err)
	w := t.begin(cmd, false)
	defer func() { _ = w.end() }()
	t.says(w, "get -w", till)
	label := func(change string) {
		out, err := t.kubectlSays(kubectlRun{via: atCloud, args: strings.Fields("label pod till -n shop " + change)})
		if err != nil {
			t.fail("label: %v: %s", err, out)
		}
	}
	label("seen=changed")
	t.says(w, "get -w", "changed")
	label("seen-")
}

// streamsWork tries what goes on until it is ended, and what moves files.
func (t *T) streamsWork(via string) {
	for protocol := range protocols {
		start := func(terminal bool, args string) *running {
			cmd, err := t.lab.Kubectl(t.ctx, via, strings.Fields(args))
			t.must(err)
			cmd.Env = append(cmd.Env, protocols[protocol]...)
			return t.begin(cmd, terminal)
		}
		what := func(s string) string { return s + " at " + via + " by " + protocol }
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
		_, err = io.WriteString(shell.input, "tty; echo $((6*7)); exit 7\n")
		t.must(err)
		t.says(shell, what("exec -it"), "/dev/pts/")
		t.says(shell, what("exec -it"), "42")
		if err := <-shell.ended; err == nil || err.Error() != "exit status 7" {
			t.fail("%s ends with %v", what("exec -it"), err)
		}
		t.portForwarded(what("port-forward"), start(false, "port-forward -n shop pod/till :80"))
		t.copied(via, protocol)
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
func (t *T) copied(via, protocol string) {
	dir, err := os.MkdirTemp("", "yurtlab-ops-")
	t.must(err)
	defer func() { t.must(os.RemoveAll(dir)) }()
	content := []byte(strings.Repeat(via+protocol+"\n", 50_000))
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	t.must(os.WriteFile(there, content, 0o600))
	for _, args := range [][]string{
		{"cp", there, "shop/till:/tmp/copy", "-c", till}, {"cp", "shop/till:/tmp/copy", back, "-c", till},
	} {
		if out, err := t.kubectlSays(kubectlRun{via: via, protocol: protocol, args: args}); err != nil {
			t.fail("kubectl %v at %s by %s: %v: %s", args, via, protocol, err, out)
		}
	}
	got, err := os.ReadFile(back)
	t.must(err)
	if !slices.Equal(got, content) {
		t.fail("cp at %s by %s: %d bytes came back, not the %d that went", via, protocol, len(got), len(content))
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
			pod + `portforward"`,
		} {
			is := func(l string) bool { return strings.Contains(l, want) && strings.Contains(l, user) }
			if !slices.ContainsFunc(lines, is) {
				return fmt.Errorf("none of %d lines has %s and %s", len(lines), want, user)
			}
		}
		for _, l := range lines {
			if strings.Contains(l, "0123456789") || strings.Contains(l, "line-") || strings.Contains(l, "6*7") {
				return fmt.Errorf("it has data: %s", l)
			}
		}
		return nil
	})
}
