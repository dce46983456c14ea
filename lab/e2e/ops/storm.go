package ops

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var stormScenarios = []kit.Scenario{{
	Name: "status-storm",
	Lab: lab.Config{
		Pools: 1, Nodes: 30, Timing: lab.Stock, Kubelet: lab.Hollow, NoKubelet: true, NoProxy: true,
	},
	Run: statusStorm,
	Doc: "30 nodes of 100 Pods change all statuses at once, connected and cut off. The coordinator shows all of them and " +
		"stays within its memory; once healed, cloud and pool agree. The hubs are real; kubelets' requests are played " +
		"with kubelet's own order and pace.",
}}

const (
	stormPods      = 100 // on each node
	stormNamespace = "storm"
	// stormMost is the coordinator's budget of anonymous memory just after all Pods have changed. With the files that the
	// coordinator maps, that is some 256 MiB in all.
	stormMost = 160.0 * (1 << 20)
	// stormShown is the time in which all 3000 changes must be shown. A kubelet alone needs 2 s to write its 100 (50 requests a
	// second), and all kubelets, the cloud's API server and etcd share this machine.
	stormShown = 2 * time.Minute
)

// storm is the pool whose Pods all change at once.
type storm struct {
	*kit.T
	site     kubernetes.Interface
	kubelets []*playedKubelet
	seen     *shownRounds
	race     bool // the coordinator has the race detector
	round    int32
}

func statusStorm(t *kit.T) {
	t.Pool.Settled(60 * time.Second)
	s := &storm{T: t, site: t.Pool.Coordinator(lab.Operator), seen: newShownRounds()}
	var err error
	s.race, err = t.Lab.RaceBuilt()
	t.Must(err)
	s.memory("idle")
	s.makeNodes()
	s.makePods()
	s.watchSite()
	s.begin()
	s.blow("fill")
	s.Hold(10*time.Second, "nothing changes")
	s.memory("filled")
	s.blow("connected")
	s.within(s.memory("connected"))

	t.Say("cutting all WAN links of the pool, silently")
	t.Cut("pool/p1")
	t.Pool.NoticesCut(t.Pool.Nodes()...)
	s.blow("cut")
	s.within(s.memory("cut")) // before this scenario itself reads everything as JSON repeatedly
	t.Heal("pool/p1")
	healed := time.Now()
	s.agree(2 * time.Minute)
	s.Figure("healed_to_agree_s", time.Since(healed).Seconds())
	s.memory("healed")
}

// makeNodes makes the Node objects that kubelets would register, of 8 KB.
func (s *storm) makeNodes() {
	var images []corev1.ContainerImage
	for i := range 50 {
		name := fmt.Sprintf("registry.local/team-%d/app", i)
		images = append(images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("%s@sha256:%064x", name, i), name + ":1"}, SizeBytes: 1e8,
		})
	}
	for _, name := range s.Pool.Nodes() {
		n, err := s.Cloud.CoreV1().Nodes().Create(s.Ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				edge.LabelNodePool: "p1", corev1.LabelHostname: name,
			}},
		}, metav1.CreateOptions{})
		s.Must(err)
		n.Status.Images = images
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "played",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}
		_, err = s.Cloud.CoreV1().Nodes().UpdateStatus(s.Ctx, n, metav1.UpdateOptions{})
		s.Must(err)
	}
}

// makePods makes all Pods, bound to their nodes.
func (s *storm) makePods() {
	_, err := s.Cloud.CoreV1().Namespaces().Create(s.Ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: stormNamespace},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.Eventually(30*time.Second, "Pods may be made", func() error {
		_, err := s.Cloud.CoreV1().ServiceAccounts(stormNamespace).Get(s.Ctx, "default", metav1.GetOptions{})
		return err
	})
	var making errgroup.Group
	making.SetLimit(16)
	began := time.Now()
	for _, node := range s.Pool.Nodes() {
		for i := range stormPods {
			making.Go(func() error {
				_, err := s.Cloud.CoreV1().Pods(stormNamespace).Create(s.Ctx, stormPod(node, i), metav1.CreateOptions{})
				return err
			})
		}
	}
	s.Must(making.Wait())
	s.Say("%d Pods were made in %.1f s", len(s.Pool.Nodes())*stormPods, time.Since(began).Seconds())
}

// stormPod returns a Pod as large as those of real workloads.
func stormPod(node string, i int) *corev1.Pod {
	var env []corev1.EnvVar
	for e := range 20 {
		env = append(env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: strings.Repeat("value ", 8)})
	}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("app-%s-%03d", node, i), Labels: map[string]string{"app": "storm", "of": node},
		},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{
				Name: "c", Image: kit.WebImage, Env: env, ReadinessProbe: probe, LivenessProbe: probe,
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
				}},
			}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}

// begin plays the kubelets.
func (s *storm) begin() {
	for _, node := range s.Pool.Nodes() {
		access, err := s.Lab.HubConfig(node)
		s.Must(err)
		k, err := newPlayedKubelet(node, access)
		s.Must(err)
		s.kubelets = append(s.kubelets, k)
		s.Background.Go(func() { k.run(s.Ctx) })
	}
	s.Eventually(60*time.Second, "all kubelets know their Pods", func() error {
		for _, k := range s.kubelets {
			if n := len(k.pods.List()); n != stormPods {
				return fmt.Errorf("that of %s has %d", k.node, n)
			}
		}
		return nil
	})
}

// shownRounds records when an operator's watch at the coordinator first showed each Pod in its present round.
type shownRounds struct {
	mu sync.Mutex
	at map[string]map[int32]time.Time
}

func newShownRounds() *shownRounds { return &shownRounds{at: map[string]map[int32]time.Time{}} }

func (r *shownRounds) see(o any) {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Namespace != stormNamespace {
		return
	}
	now, round := time.Now(), roundOf(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at[p.Name] == nil {
		r.at[p.Name] = map[int32]time.Time{}
	}
	if _, seen := r.at[p.Name][round]; !seen {
		r.at[p.Name][round] = now
	}
}

// of returns when each Pod was shown in a round.
func (r *shownRounds) of(round int32) map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]time.Time{}
	for name, rounds := range r.at {
		if at, ok := rounds[round]; ok {
			all[name] = at
		}
	}
	return all
}

// watchSite watches all Pods at the coordinator, as an operator.
func (s *storm) watchSite() {
	access, err := s.Lab.CoordinatorConfig(1, lab.Operator)
	s.Must(err)
	access.ContentType = runtime.ContentTypeProtobuf
	client := s.Client(access)
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: s.seen.see, UpdateFunc: func(_, o any) { s.seen.see(o) },
	})
	s.Must(err)
	s.Background.Go(func() {
		factory.Start(s.Ctx.Done())
		<-s.Ctx.Done()
		factory.Shutdown()
	})
}

// blow changes the status of all Pods at once, and waits until the coordinator shows all changes.
func (s *storm) blow(when string) {
	s.round++
	began := time.Now()
	for _, k := range s.kubelets {
		k.change(s.round)
	}
	want := len(s.kubelets) * stormPods
	s.Eventually(stormShown, fmt.Sprintf("%s: all %d changes are shown", when, want), func() error {
		if n := len(s.seen.of(s.round)); n != want {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	var changed, sent, answered []time.Duration
	shown := s.seen.of(s.round)
	for _, k := range s.kubelets {
		for name, w := range k.writes(s.round) {
			changed = append(changed, shown[name].Sub(began))
			sent = append(sent, shown[name].Sub(w.at))
			answered = append(answered, w.took)
		}
	}
	// A shown write may not be answered yet.
	if len(sent) < want-len(s.kubelets) {
		s.Fail("%d of %d Pods were written about", len(sent), want)
	}
	for name, all := range map[string][]time.Duration{
		"change_to_shown": changed, "write_to_shown": sent, "write_to_answered": answered,
	} {
		slices.Sort(all)
		s.Figure(when+"_"+name+"_p50_s", all[len(all)/2].Seconds())
		s.Figure(when+"_"+name+"_p99_s", all[len(all)*99/100].Seconds())
		s.Figure(when+"_"+name+"_max_s", all[len(all)-1].Seconds())
	}
}

// agree waits until the cloud has every Pod in this round, and the coordinator shows Pods and Nodes as the cloud has them.
func (s *storm) agree(within time.Duration) {
	s.Eventually(within, "kubelets see in the cloud what they have reported", func() error {
		for _, k := range s.kubelets {
			if n := k.behind(); n > 0 {
				return fmt.Errorf("that of %s does not, of %d Pods", k.node, n)
			}
		}
		return nil
	})
	s.Eventually(30*time.Second, "cloud and pool agree", func() error {
		for _, resource := range []string{"nodes", "pods"} {
			cloud, err := s.ObjectsAt(s.Cloud, resource)
			if err != nil {
				return err
			}
			shown, err := s.ObjectsAt(s.site, resource)
			if err != nil {
				return err
			}
			if err := sameShown(resource, s.Pool.Nodes(), cloud, shown); err != nil {
				return err
			}
		}
		pods, err := s.Cloud.CoreV1().Pods(stormNamespace).List(s.Ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		bytes := 0
		for i := range pods.Items {
			bytes += pods.Items[i].Size()
			if got := roundOf(&pods.Items[i]); got != s.round {
				return fmt.Errorf("the cloud has %s at %d, want %d", pods.Items[i].Name, got, s.round)
			}
		}
		if len(pods.Items) != len(s.kubelets)*stormPods {
			return fmt.Errorf("there are %d Pods", len(pods.Items))
		}
		s.Figure("pods_mib", float64(bytes)/(1<<20))
		return nil
	})
}

// memory prints the memory of the coordinator's process.
func (s *storm) memory(when string) kit.Memory {
	m := s.Node(s.Pool.CoordinatorNode()).Memory(kit.ProgramCoordinator)
	s.Figure(when+"_anonymous_mib", m.Anonymous/(1<<20))
	s.Figure(when+"_rss_mib", m.RSS/(1<<20))
	s.Figure("most_rss_mib", m.MostRSS/(1<<20))
	return m
}

// within compares what the coordinator uses with the budget.
func (s *storm) within(m kit.Memory) {
	switch {
	case s.race:
		s.Say("its memory is not judged: it is built with the race detector")
	case m.Anonymous > stormMost:
		s.Fail("the coordinator has %.0f MiB of its own, want %.0f at most", m.Anonymous/(1<<20), stormMost/(1<<20))
	}
}

// roundOf returns the round of a Pod's status.
func roundOf(p *corev1.Pod) int32 {
	if len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}
