package pool

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/load"
)

// programs are unmodified clients of the hubs: client-go's informers with kube-proxy's selectors on every node, and a kubectl
// that watches on one node all the time.
type programs struct {
	informers map[string]*load.Follower
	node      string // kubectl's
	kubectl   *kit.KubectlWatch
}

// runPrograms starts programs.
func runPrograms(t *kit.T, nodes []string) *programs {
	last := nodes[len(nodes)-1]
	p := &programs{map[string]*load.Follower{}, last, t.Node(last).KubectlWatch()}
	for _, node := range nodes {
		access, err := t.Lab.HubConfig(node)
		t.Must(err)
		f, err := load.NewFollower(access, load.KubeProxy())
		t.Must(err)
		p.informers[node] = f
		t.Background.Go(func() { _ = f.Run(t.Ctx) })
	}
	return p
}

// judge waits until all programs have what the cloud has, which may not change any more. It expects that kubectl did not
// restart more often than allowed says for its node.
func (p *programs) judge(t *kit.T, allowed map[string]int) {
	want, err := load.Read(t.Ctx, t.Cloud, load.KubeProxy())
	t.Must(err)
	// client-go waits up to a minute between tries after several refusals.
	ctx, cancel := context.WithTimeout(t.Ctx, 90*time.Second)
	defer cancel()
	for node, f := range p.informers {
		if err := f.WaitEqual(ctx, want); err != nil {
			t.Fail("client-go's informers at the hub of %s: %w", node, err)
		}
	}
	t.Say("client-go's informers have the same at all hubs: %d Services, %d EndpointSlices",
		len(want[load.ServicesResource]), len(want[load.EndpointSlicesResource]))
	list, err := t.Cloud.DiscoveryV1().EndpointSlices(load.Namespace).List(t.Ctx, metav1.ListOptions{})
	t.Must(err)
	t.Eventually(30*time.Second, "kubectl get -w on "+p.node+" has shown the last of every EndpointSlice", func() error {
		shown, _ := p.kubectl.Seen()
		if len(shown) != len(list.Items) {
			return fmt.Errorf("it shows %d, want %d", len(shown), len(list.Items))
		}
		for _, s := range list.Items {
			if shown[s.Name] != s.ResourceVersion {
				return fmt.Errorf("%s is shown at %s, want %s", s.Name, shown[s.Name], s.ResourceVersion)
			}
		}
		return nil
	})
	if _, starts := p.kubectl.Seen(); starts > 1+allowed[p.node] {
		t.Fail("kubectl get -w on %s was started %d times, want at most %d; it ended with %v", p.node, starts,
			1+allowed[p.node], p.kubectl.Ended())
	}
}
