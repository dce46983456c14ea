package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var offlineScenarios = []Scenario{
	{
		Name: "offline-restart", Quick: true, Lab: pool, run: offlineRestart,
		Doc: "a node that neither cloud nor pool can be reached from: its hub, its kubelet and then the whole machine start " +
			"again, and its Pods run as before, from the hub's disk alone",
	},
	{
		Name: "offline-without-hub", Lab: pool, run: offlineWithoutHub,
		Doc: "the same power cut for a kubelet that finds no hub: its Pods do not run again before it does",
	},
	{
		Name: "deleted-while-cut", Quick: true, Lab: pool, run: deletedWhileCut,
		Doc: "what was deleted in the cloud while a node was cut off, and its hub restarted, is gone from the node once the " +
			"link heals; no other Pod is restarted",
	},
	{
		Name: "crash-anywhere", Lab: hubsAlone, run: crashAnywhere,
		Doc: "a hub is killed 200 times at random moments while everything changes: its clients' watches stay exact, nothing " +
			"is listed over the WAN again, and what is on its disk is right",
	},
	{
		Name: "disk-corrupt", Lab: hubsAlone, run: diskCorrupt,
		Doc: "bits of the hub's disk are flipped while it is off and nothing can be reached: what it answers is right, or 503; " +
			"healed, it has everything again",
	},
	{
		Name: "disk-full", Lab: realKubelets(pool), run: diskFull,
		Doc: "a hub's disk is too small: it serves from memory and says so; what it has in memory alone it has for a container " +
			"that starts again in a cut, too, though nobody has read it for long; with space again, it has all of it on disk",
	},
}

// Of the Pod that needs something of everything that kubelet must have read.
const (
	needyName = "needy"
	needyPort = 8099
)

// deployNeedy runs a Pod on a node that serves, at its port on the node, what it was given: a ConfigMap's and a Secret's
// content and the name in its token. It waits until it answers.
func (t *T) deployNeedy(node string) (answer string) {
	data := map[string]string{"key": "from-the-config"}
	_, err := t.cloud.CoreV1().ConfigMaps(namespace).Create(t.ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: needyName}, Data: data}, metav1.CreateOptions{})
	t.must(err)
	_, err = t.cloud.CoreV1().Secrets(namespace).Create(t.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: needyName}, StringData: map[string]string{"key": "from-the-secret"},
	}, metav1.CreateOptions{})
	t.must(err)
	mount := func(name string) corev1.VolumeMount { return corev1.VolumeMount{Name: name, MountPath: "/" + name} }
	script := fmt.Sprintf("mkdir -p /www; cat /config/key /secret/key > /www/index.html; "+
		"cut -d. -f2 /var/run/secrets/kubernetes.io/serviceaccount/token | wc -c >> /www/index.html; "+
		"exec httpd -f -p 127.0.0.1:%d -h /www", needyPort)
	_, err = t.cloud.CoreV1().Pods(namespace).Create(t.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: needyName},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true, TerminationGracePeriodSeconds: ptr.To[int64](1),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: needyName, Image: webImage, Command: []string{"sh", "-c", script},
				VolumeMounts: []corev1.VolumeMount{mount("config"), mount("secret")},
				Ports:        []corev1.ContainerPort{{ContainerPort: needyPort}},
				ReadinessProbe: &corev1.Probe{
					PeriodSeconds: 1,
					ProbeHandler: corev1.ProbeHandler{
						TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt32(needyPort)},
					},
				},
			}},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: needyName},
				}}},
				{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: needyName}}},
			},
		},
	}, metav1.CreateOptions{})
	t.must(err)
	t.eventually(60*time.Second, "the Pod "+needyName+" answers on "+node, func() error {
		var err error
		answer, err = t.needyAnswers(node)
		return err
	})
	if t.cfg.Kubelet == lab.Real && !strings.HasPrefix(answer, "from-the-configfrom-the-secret") {
		t.fail("the Pod %s answers %q", needyName, answer)
	}
	return answer
}

// needyAnswers returns what the Pod serves. Of a hollow node, whose Pods serve nothing, it is the Pod as its kubelet runs it.
func (t *T) needyAnswers(node string) (string, error) {
	if t.cfg.Kubelet == lab.Hollow {
		for pod := range t.hollowPods(node) {
			if isNeedy(pod) {
				return pod, nil
			}
		}
		return "", fmt.Errorf("the kubelet of %s does not run %s", node, needyName)
	}
	return t.fetchOn(node, fmt.Sprintf("http://127.0.0.1:%d/", needyPort))
}

// fetchOn gets a URL as a program of the node would.
func (t *T) fetchOn(node, url string) (string, error) {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return t.lab.Dial(ctx, node, address)
		},
	}}
	return fetch(t.ctx, client, url)
}

// servers are the web servers of a node, by their processes; of a hollow node, which has none, the Pods that its kubelet
// runs.
func (t *T) servers(node string) map[string]bool {
	if t.cfg.Kubelet == lab.Hollow {
		return t.hollowPods(node)
	}
	return t.processes(node, "httpd -f")
}

func isNeedy(server string) bool {
	return strings.Contains(server, fmt.Sprintf("127.0.0.1:%d", needyPort)) ||
		strings.HasPrefix(server, namespace+"/"+needyName+" ")
}

// hollowPods are what a hollow kubelet says that it runs: "namespace/name uid". It may be on its way up.
func (t *T) hollowPods(node string) map[string]bool {
	pods := map[string]bool{}
	answer, err := t.fetchOn(node, "http://127.0.0.1:10250/runningpods/")
	if err != nil {
		return pods
	}
	var list corev1.PodList
	t.must(json.Unmarshal([]byte(answer), &list))
	for _, p := range list.Items {
		pods[p.Namespace+"/"+p.Name+" "+string(p.UID)] = true
	}
	return pods
}

// processes are those of a node whose command line has a text, by their start: "123 4567" is process 123, begun then.
func (t *T) processes(node, text string) map[string]bool {
	listed, err := t.lab.Output(t.ctx, node, "ps", "-e", "-o", "pid=,lstart=,args=")
	t.must(err)
	found := map[string]bool{}
	for line := range strings.Lines(listed) {
		if strings.Contains(line, text) {
			found[strings.Join(strings.Fields(line), " ")] = true
		}
	}
	return found
}

func offlineRestart(t *T) {
	leader := t.settledAway()
	node := t.follower(leader)
	t.deployWeb()
	want := t.deployNeedy(node)
	pods := "/api/v1/pods?fieldSelector=spec.nodeName%3D" + node
	t.hold(3*time.Second, "the hub's disk is written once a second")

	t.say("restarting %s with everything at hand, to compare", node)
	online := t.powerCycle(node, want)
	t.figure("restart_online_s", online.Seconds())
	t.settled(30 * time.Second)
	t.eventually(30*time.Second, "the hub has the node's Pods as the cloud has them", func() error {
		access, err := t.lab.CloudConfig()
		t.must(err)
		truth, err := t.list(access, pods, "application/json")
		t.must(err)
		now, err := t.listFrom(node, pods)
		if err != nil {
			return err
		}
		delete(truth, "metadata") // the revision of the list
		delete(now, "metadata")
		return differs(truth, now)
	})

	t.say("cutting %s off from cloud and pool", node)
	t.must(t.lab.Cut(t.ctx, lab.WAN, node, wire.Drop))
	t.must(t.lab.Cut(t.ctx, lab.LAN, node, wire.Drop))
	t.hold(3*time.Second, "the hub's disk is written once a second")
	before, err := t.listFrom(node, pods)
	t.must(err)
	servers := t.servers(node)
	for _, c := range []lab.Component{lab.Hub, lab.KubeletC} {
		t.say("restarting the %s of %s", c, node)
		t.must(t.lab.Node(t.ctx, lab.Restart, node, c))
		t.eventually(20*time.Second, "the hub lists the node's Pods as before", func() error {
			now, err := t.listFrom(node, pods)
			if err != nil {
				return err
			}
			return differs(before, now)
		})
		t.hold(10*time.Second, "time for kubelet to do something wrong")
		if now := t.servers(node); !sameKeys(now, servers) {
			t.fail("containers were restarted: %v, before %v", now, servers)
		}
	}
	t.unknownIsRefused(node)

	t.say("power-cycling %s", node)
	offline := t.powerCycle(node, want)
	t.figure("restart_offline_s", offline.Seconds())
	t.eventually(60*time.Second, "all Pods of the node run again", func() error {
		if now := t.servers(node); len(now) != len(servers) {
			return fmt.Errorf("%d web servers run, want %d", len(now), len(servers))
		}
		return nil
	})
	t.eventually(60*time.Second, "kube-proxy has rules for the Service", func() error {
		saved, err := t.lab.Output(t.ctx, node, "iptables-save", "-t", "nat")
		if err == nil && !strings.Contains(saved, "\""+namespace+"/"+webName+" ->") {
			err = fmt.Errorf("no rule leads to an endpoint of %s", webName)
		}
		return err
	})
	again := t.servers(node)

	t.say("healing")
	t.must(t.lab.Heal(t.ctx, lab.LAN, node))
	t.must(t.lab.Heal(t.ctx, lab.WAN, node))
	t.settled(60 * time.Second)
	t.eventually(60*time.Second, "the cloud shows the Pod "+needyName+" ready on "+node, func() error {
		p, err := t.cloud.CoreV1().Pods(namespace).Get(t.ctx, needyName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("its conditions: %v", p.Status.Conditions)
	})
	if _, err := t.needyAnswers(node); err != nil {
		t.fail("the Pod %s, which nothing evicts: %w", needyName, err)
	}
	kept := false
	for now := range t.servers(node) {
		kept = kept || isNeedy(now) && again[now]
	}
	if !kept {
		t.fail("healing has restarted the Pod %s", needyName)
	}
}

// withoutHub is how long a kubelet is given to do without a hub: many times what it needs with one.
const withoutHub = 90 * time.Second

func offlineWithoutHub(t *T) {
	leader := t.settledAway()
	node := t.follower(leader)
	want := t.deployNeedy(node)
	t.hold(3*time.Second, "the hub's disk is written once a second")
	t.must(t.lab.Cut(t.ctx, lab.WAN, node, wire.Drop))
	t.must(t.lab.Cut(t.ctx, lab.LAN, node, wire.Drop))
	t.say("power-cycling %s, with its hub where no kubelet looks for it", node)
	t.must(t.lab.HubSettings(node, "port: 10999\n"))
	t.must(t.lab.Node(t.ctx, lab.Restart, node, lab.All))
	for deadline := time.Now().Add(withoutHub); time.Now().Before(deadline); t.hold(5*time.Second, "no Pod runs") {
		if answer, err := t.needyAnswers(node); err == nil {
			t.fail("the Pod %s answers %q: then this is no comparison", needyName, answer)
		}
	}
	t.must(t.lab.HubSettings(node, ""))
	began := time.Now()
	t.must(t.lab.Node(t.ctx, lab.Restart, node, lab.Hub))
	t.eventually(120*time.Second, "with its hub, the Pod "+needyName+" answers", func() error {
		answer, err := t.needyAnswers(node)
		if err == nil && answer != want {
			err = fmt.Errorf("it answers %q, before %q", answer, want)
		}
		return err
	})
	t.figure("hub_to_pod_s", time.Since(began).Seconds())
}

// powerCycle restarts a whole node and returns how long it took until its Pod answers again.
func (t *T) powerCycle(node, want string) time.Duration {
	began := time.Now()
	t.must(t.lab.Node(t.ctx, lab.Restart, node, lab.All))
	t.eventually(120*time.Second, "the Pod "+needyName+" answers again", func() error {
		answer, err := t.needyAnswers(node)
		if err == nil && answer != want {
			err = fmt.Errorf("it answers %q, before %q", answer, want)
		}
		return err
	})
	return time.Since(began)
}

// listFrom lists at a node's hub, as a program whose reads are kept.
func (t *T) listFrom(node, path string) (map[string]any, error) {
	access, err := t.lab.HubConfig(node)
	t.must(err)
	// A hub waits up to 15 s for what it does not know and may be told.
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DialContext: access.Dial}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.ctx, http.MethodGet, strings.TrimSuffix(access.Host, "/")+path, nil)
	t.must(err)
	r.Header.Set("Edge-Cache", "true")
	r.Header.Set("Accept", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var list map[string]any
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %v", response.Status, list["message"])
	}
	return list, nil
}

// unknownIsRefused expects the hub to say that it does not know what nobody has read before.
func (t *T) unknownIsRefused(node string) {
	for _, path := range []string{
		"/api/v1/namespaces/default/pods", "/apis/batch/v1/jobs", "/api/v1/namespaces/default/secrets/none",
	} {
		_, err := t.listFrom(node, path)
		if err == nil || !strings.Contains(err.Error(), "503") {
			t.fail("GET %s, which the hub of %s cannot know: %v, want 503", path, node, err)
		}
	}
}

func sameKeys(a, b map[string]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if !b[k] {
			return false
		}
	}
	return true
}
