package offline

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var endpointsScenarios = []kit.Scenario{{
	Name: "endpoints-while-cut", Lab: kit.RealKubelets(kit.OnePool), Run: endpointsWhileCut,
	Doc: "A pool is cut off and its Services are asked ten times a second. Pods that crash, fail their probe, come back " +
		"with a new address or were on a node that died stop getting requests within moments. Nothing goes wrong when the " +
		"coordinator restarts or the link heals. The same on a single node that is cut off alone.",
}}

const (
	duoName = "duo"
	duoPort = 8085
	// duoState is a directory on each node. While it has the file ready, the node's Pod is ready.
	duoState = "/var/lib/duo"
	// noticed is how long requests may still go wrong after kubelet has noticed what happened. A scenario fails at three times
	// that.
	noticed = 2 * time.Second
)

// duo is a Service with two Pods, each on a node of its own and with the name of its node.
type duo struct {
	*kit.T
	url  string
	pods []string // the nodes
}

func endpointsWhileCut(t *kit.T) {
	t.Pool.SettledAway()
	from := t.Pool.CoordinatorNode()
	nodes := slices.DeleteFunc(t.Pool.Nodes(), func(n string) bool { return n == from })
	d := deployDuo(t, nodes[0], nodes[1])
	one, other := d.pods[0], d.pods[1]
	asks := d.ask(from)
	d.answers(asks, 20*time.Second, one, other)

	t.Say("cutting all WAN links of the pool")
	t.Cut("pool/p1")
	d.Pool.NoticesCut(t.Pool.Nodes()...)
	d.nothingWrong(asks, time.Now(), 3*time.Second, "the pool is cut off, and all is as it was")

	d.crashes(asks, one, other)
	d.probeFails(asks, one, other)
	t.Say("starting the coordinator anew, while the Pod of %s is not ready", one)
	began := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, from, lab.Coordinator))
	t.Must(t.Lab.Node(t.Ctx, lab.Start, from, lab.Coordinator))
	d.nothingWrong(asks, began, 20*time.Second, "nothing flaps")
	d.unanswered(asks, began, one)
	d.ready(one)
	d.answers(asks, 15*time.Second, one, other)

	d.moves(asks, other, one)
	d.dies(asks, one, other)
	d.answers(asks, 120*time.Second, one, other)

	t.Say("healing, while the Pod of %s is not ready, as the cloud does not know", one)
	d.probeFails(asks, one, other)
	began = t.Heal("pool/p1")
	t.Pool.Settled(60 * time.Second)
	d.nothingWrong(asks, began, 45*time.Second, "the cloud takes over")
	d.unanswered(asks, began, one)
	d.asTheCloud(from)
	d.ready(one)
	d.answers(asks, 20*time.Second, one, other)
	asks.end()

	t.Say("cutting %s off alone", one)
	alone := d.ask(one)
	d.answers(alone, 20*time.Second, one, other)
	t.Cut(one)
	d.Pool.NoticesCut(one)
	d.probeFails(alone, one, other)
	d.ready(one)
	d.answers(alone, 15*time.Second, one, other)
	d.probeFails(alone, one, other)
	began = t.Heal(one)
	t.Pool.Settled(60 * time.Second)
	d.nothingWrong(alone, began, 40*time.Second, "the cloud takes over")
	d.unanswered(alone, began, one)
	alone.end()
}

// deployDuo runs a Pod on each of two nodes, in the Pods' network, and a Service of both. On the second node it runs another
// Pod first and deletes it, so that the node's Pod has another address after a new start.
func deployDuo(t *kit.T, nodes ...string) *duo {
	d := &duo{T: t, pods: nodes}
	for _, node := range nodes {
		_, err := t.Lab.Output(t.Ctx, node, "mkdir", "-p", duoState)
		t.Must(err)
		d.ready(node)
	}
	before := nodes[1] + "-before"
	d.deploy(before, nodes[1])
	for _, node := range nodes {
		d.deploy(node, node)
	}
	t.Must(t.Cloud.CoreV1().Pods(kit.Namespace).Delete(t.Ctx, before, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	service, err := t.Cloud.CoreV1().Services(kit.Namespace).Create(t.Ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: duoName},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": duoName},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(duoPort)}},
		},
	}, metav1.CreateOptions{})
	t.Must(err)
	d.url = "http://" + net.JoinHostPort(service.Spec.ClusterIP, "80") + "/"
	return d
}

// deploy runs a Pod that answers with its name, and waits until it is ready.
func (d *duo) deploy(name, node string) {
	script := fmt.Sprintf("mkdir -p /www; echo %s > /www/index.html; exec httpd -f -p %d -h /www", name, duoPort)
	d.Node(node).RunPod(name, []string{"sh", "-c", script}, func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": duoName}
		c := &p.Spec.Containers[0]
		c.Ports = []corev1.ContainerPort{{ContainerPort: duoPort}}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "state", MountPath: "/state"}}
		c.ReadinessProbe = &corev1.Probe{
			PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: 5,
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/state/ready"}}},
		}
		p.Spec.Volumes = []corev1.Volume{{Name: "state", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: duoState},
		}}}
	})
	d.Eventually(60*time.Second, "the Pod "+name+" is ready", func() error {
		p, err := d.Cloud.CoreV1().Pods(kit.Namespace).Get(d.Ctx, name, metav1.GetOptions{})
		if err == nil && !kit.PodReady(p) {
			err = fmt.Errorf("its conditions: %v", p.Status.Conditions)
		}
		return err
	})
}

func (d *duo) ready(node string) {
	_, err := d.Lab.Output(d.Ctx, node, "touch", duoState+"/ready")
	d.Must(err)
}

// answer is one request's: the Pod that answered, or what went wrong.
type answer struct {
	at  time.Time // when it was asked
	pod string
	err error
}

// asks asks the Service ten times a second from a node.
type asks struct {
	end func()
	mu  sync.Mutex
	all []answer
}

func (d *duo) ask(node string) *asks {
	// The kernel goes on to translate a connection for 120 s after its last packet, if nobody has answered it, too. A client that
	// takes the same port again meanwhile comes to the Pod of before, ready or not, whatever kube-proxy has written since.
	_, err := d.Lab.Output(d.Ctx, node, "sh", "-c",
		"for f in /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_*; do echo 5 > $f; done; echo 1024 65000 > "+
			"/proc/sys/net/ipv4/ip_local_port_range")
	d.Must(err)
	ctx, cancel := context.WithCancel(d.Ctx)
	a := &asks{}
	var under sync.WaitGroup
	// What is sent to an address where nobody is gets no answer at all; on a machine that is busy any may take a second.
	client := &http.Client{Timeout: 3 * time.Second, Transport: d.From(node)}
	under.Go(func() {
		every := time.NewTicker(100 * time.Millisecond)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
			under.Go(func() {
				now := answer{at: time.Now()}
				body, err := kit.Fetch(ctx, client, d.url)
				now.pod, now.err = strings.TrimSpace(body), err
				if ctx.Err() != nil {
					return
				}
				a.mu.Lock()
				defer a.mu.Unlock()
				a.all = append(a.all, now)
			})
		}
	})
	a.end = func() {
		cancel()
		under.Wait()
	}
	d.Background.Go(func() { <-ctx.Done(); under.Wait() })
	return a
}

// since returns the answers to what was asked since a moment.
func (a *asks) since(t time.Time) (all []answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, each := range a.all {
		if !each.at.Before(t) {
			all = append(all, each)
		}
	}
	return all
}

// lastWrong returns how long after t the last wrong request was made. A request is wrong if no Pod answered, or a Pod that must
// not. 0 means that there was none.
func (a *asks) lastWrong(t time.Time, not ...string) (after time.Duration, why error) {
	for _, each := range a.since(t) {
		wrong := each.err
		if slices.Contains(not, each.pod) {
			wrong = fmt.Errorf("%s answered, which is not ready", each.pod)
		}
		if took := each.at.Sub(t); wrong != nil && took >= after {
			after, why = took, wrong
		}
	}
	return after, why
}

// answers waits until all of these Pods, and no others, have answered within two seconds.
func (d *duo) answers(a *asks, within time.Duration, pods ...string) {
	d.Eventually(within, fmt.Sprintf("%v answer", pods), func() error {
		var who []string
		for _, each := range a.since(time.Now().Add(-2 * time.Second)) {
			if each.err != nil {
				return each.err
			}
			who = append(who, each.pod)
		}
		slices.Sort(who)
		want := slices.Sorted(slices.Values(pods))
		if who = slices.Compact(who); !slices.Equal(who, want) {
			return fmt.Errorf("%v do", who)
		}
		return nil
	})
}

func (d *duo) nothingWrong(a *asks, since time.Time, hold time.Duration, what string) {
	d.Hold(hold, what)
	if after, why := a.lastWrong(since); why != nil {
		d.Fail("%s: %s after it began a request went wrong: %w", what, after, why)
	}
}

// unanswered expects that a Pod has not answered since.
func (d *duo) unanswered(a *asks, since time.Time, pod string) {
	if after, why := a.lastWrong(since, pod); why != nil {
		d.Fail("%s after it began: %w", after, why)
	}
}

// shown waits until the pool's coordinator shows a Pod as kubelet has it, and returns when that was.
func (d *duo) shown(pod string, ready bool) time.Time {
	site := d.Pool.Coordinator(lab.Operator)
	d.Eventually(30*time.Second, fmt.Sprintf("the coordinator shows %s, ready %t", pod, ready), func() error {
		p, err := site.CoreV1().Pods(kit.Namespace).Get(d.Ctx, pod, metav1.GetOptions{})
		if err == nil && kit.PodReady(p) != ready {
			err = fmt.Errorf("its conditions: %v", p.Status.Conditions)
		}
		return err
	})
	return time.Now()
}

// within expects that, for a while, nothing goes wrong later than a given time after a moment.
func (d *duo) within(a *asks, figure string, since, noticedAt time.Time, hold time.Duration, not ...string) {
	d.Hold(hold, "nothing goes wrong any more")
	after, why := a.lastWrong(since, not...)
	d.Figure(figure+"_wrong_s", after.Seconds())
	late := max(0, after-noticedAt.Sub(since))
	d.Figure(figure+"_wrong_after_noticed_s", late.Seconds())
	if late > 3*noticed {
		d.Fail("%s after it was noticed a request went wrong: %w", late, why)
	}
}

// crashes kills a Pod's container twice, so that kubelet backs off before the next start.
func (d *duo) crashes(a *asks, pod, other string) {
	d.Say("the Pod of %s crashes, and again", pod)
	kill := func() {
		d.Eventually(60*time.Second, "its container is killed", func() error {
			_, err := d.Lab.Output(d.Ctx, pod, "pkill", "-9", "-f", fmt.Sprintf("^httpd -f -p %d", duoPort))
			return err
		})
	}
	kill()
	d.shown(pod, true)
	began := time.Now()
	kill()
	at := d.shown(pod, false)
	d.answers(a, 10*time.Second, other)
	d.within(a, "crash", began, at, 2*time.Second)
	d.answers(a, 60*time.Second, pod, other)
}

// probeFails makes a Pod fail its readiness probe, though it still answers.
func (d *duo) probeFails(a *asks, pod, other string) {
	d.Say("the Pod of %s fails its probe", pod)
	began := time.Now()
	_, err := d.Lab.Output(d.Ctx, pod, "rm", duoState+"/ready")
	d.Must(err)
	at := d.shown(pod, false)
	d.answers(a, 10*time.Second, other)
	d.within(a, "unready", began, at, 2*time.Second, pod)
}

// addressOf returns the address of a Pod, as a hub shows it in EndpointSlices; empty if it is not there or not ready.
func (d *duo) addressOf(node, pod string) string {
	all, err := d.Node(node).Client().DiscoveryV1().EndpointSlices(kit.Namespace).List(d.Ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + duoName,
	})
	d.Must(err)
	for _, s := range all.Items {
		for _, e := range s.Endpoints {
			if e.TargetRef != nil && e.TargetRef.Name == pod && ptr.Deref(e.Conditions.Ready, true) {
				return e.Addresses[0]
			}
		}
	}
	return ""
}

// moves cuts the power of a Pod's node. The Pod comes back with another address.
func (d *duo) moves(a *asks, pod, other string) {
	from := d.Pool.CoordinatorNode()
	was := d.addressOf(from, pod)
	d.Say("the power of %s fails for a moment; its Pod is at %s", pod, was)
	began := time.Now()
	d.Must(d.Lab.Node(d.Ctx, lab.Restart, pod, lab.All))
	d.Eventually(120*time.Second, "its Pod is there again, at another address", func() error {
		now := d.addressOf(from, pod)
		if now == "" || now == was {
			return fmt.Errorf("it is shown at %q", now)
		}
		return nil
	})
	back := time.Now()
	d.answers(a, 30*time.Second, pod, other)
	// A node is silent after 10 s (its Lease lasts 8 s); if it is back before, its kubelet says that the Pod is not ready.
	gone := began.Add(min(back.Sub(began), d.grace()))
	d.within(a, "moved", began, gone, 3*time.Second)
	d.Figure("moved_back_s", back.Sub(began).Seconds())
}

// grace is how long a node may be silent.
func (d *duo) grace() time.Duration { return d.Config.Timing.Lease * 5 / 4 }

// dies kills a Pod's node for good. The Pod's endpoint goes when the node counts as silent.
func (d *duo) dies(a *asks, pod, other string) {
	d.Say("%s dies", pod)
	began := time.Now()
	d.Must(d.Lab.Node(d.Ctx, lab.Kill, pod, lab.All))
	d.answers(a, 60*time.Second, other)
	d.within(a, "dead", began, began.Add(d.grace()), 5*time.Second)
	d.Must(d.Lab.Node(d.Ctx, lab.Start, pod, lab.All))
}

// asTheCloud waits until a hub shows the Service's endpoints as the cloud has them.
func (d *duo) asTheCloud(node string) {
	access, err := d.Lab.CloudConfig()
	d.Must(err)
	path := "/apis/discovery.k8s.io/v1/namespaces/" + kit.Namespace + "/endpointslices?labelSelector=" +
		discoveryv1.LabelServiceName + "%3D" + duoName
	d.Eventually(30*time.Second, "the hub shows endpoints as the cloud has them", func() error {
		truth, err := d.List(access, path, "application/json")
		d.Must(err)
		now, err := d.Node(node).List(path)
		if err != nil {
			return err
		}
		return kit.Differs(truth["items"], now["items"])
	})
	if n := d.Node(node).Metric("yurthub_overlay_active"); n != 0 {
		d.Fail("the hub still shows endpoints as the pool knows them")
	}
}
