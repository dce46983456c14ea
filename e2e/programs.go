package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/lab/load"
)

// programs are clients of the hubs that nobody has changed for us: client-go's informers, with kube-proxy's selectors, on
// every node, and a kubectl that somebody leaves running on one.
type programs struct {
	informers map[string]*load.Follower
	node      string // kubectl's
	kubectl   *kubectlWatch
}

// runPrograms starts them.
func (t *T) runPrograms(nodes []string) *programs {
	last := nodes[len(nodes)-1]
	p := &programs{map[string]*load.Follower{}, last, t.kubectlWatch(last)}
	for _, node := range nodes {
		access, err := t.lab.HubConfig(node)
		t.must(err)
		f, err := load.NewFollower(access, load.KubeProxy())
		t.must(err)
		p.informers[node] = f
		t.background.Go(func() { _ = f.Run(t.ctx) })
	}
	return p
}

// judge waits until all have what the cloud has, where nothing must change any more, and expects that kubectl did not have
// to be started again more often than allowed says for its node.
func (p *programs) judge(t *T, allowed map[string]int) {
	want, err := load.Read(t.ctx, t.cloud, load.KubeProxy())
	t.must(err)
	// client-go waits up to a minute between tries after it was refused several times.
	ctx, cancel := context.WithTimeout(t.ctx, 90*time.Second)
	defer cancel()
	for node, f := range p.informers {
		if err := f.WaitEqual(ctx, want); err != nil {
			t.fail("client-go's informers at the hub of %s: %w", node, err)
		}
	}
	t.say("client-go's informers have the same at all hubs: %d Services, %d EndpointSlices",
		len(want[load.ServicesResource]), len(want[load.EndpointSlicesResource]))
	list, err := t.cloud.DiscoveryV1().EndpointSlices(load.Namespace).List(t.ctx, metav1.ListOptions{})
	t.must(err)
	t.eventually(30*time.Second, "kubectl get -w on "+p.node+" has shown the last of every EndpointSlice", func() error {
		shown, _ := p.kubectl.seen()
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
	if _, starts := p.kubectl.seen(); starts > 1+allowed[p.node] {
		t.fail("kubectl get -w on %s was started %d times, want at most %d; it ended with %v", p.node, starts,
			1+allowed[p.node], p.kubectl.ended())
	}
}

// kubectlWatch is a `kubectl get endpointslices --watch`, started again whenever it ends.
type kubectlWatch struct {
	mu     sync.Mutex
	shown  map[string]string // resourceVersion by name
	starts int
	ends   []string
}

func (t *T) kubectlWatch(node string) *kubectlWatch {
	k := &kubectlWatch{}
	t.background.Go(func() {
		for t.ctx.Err() == nil {
			err := k.once(t, node)
			k.mu.Lock()
			k.ends = append(k.ends, fmt.Sprint(err))
			k.mu.Unlock()
			select {
			case <-time.After(500 * time.Millisecond):
			case <-t.ctx.Done():
			}
		}
	})
	return k
}

// once runs one kubectl to its end.
func (k *kubectlWatch) once(t *T, node string) error {
	cmd, err := t.lab.Kubectl(t.ctx, "hub/"+node, []string{
		"get", "endpointslices", "--namespace=" + load.Namespace, "--watch", "--output-watch-events", "--no-headers",
		"--output=custom-columns=EVENT:.type,NAME:.object.metadata.name,VERSION:.object.metadata.resourceVersion",
	})
	if err != nil {
		return err
	}
	// nsenter has kubectl as a child.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = k.read(out)
	if err != nil {
		_ = cmd.Cancel() // it may be blocked by its output
	}
	if ended := cmd.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("%w: %s", ended, strings.TrimSpace(complaints.String())))
	}
	return err
}

// ended is how each kubectl ended that has.
func (k *kubectlWatch) ended() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.ends)
}

// read takes in what kubectl prints: event, name, resourceVersion. It shows what there is when it begins, and that counts
// as a start: one that cannot reach its hub shows nothing.
func (k *kubectlWatch) read(out io.Reader) error {
	begun := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			return fmt.Errorf("kubectl prints %q, want an event, a name and a resourceVersion", lines.Text())
		}
		k.mu.Lock()
		if !begun {
			begun = true
			k.starts++
			k.shown = map[string]string{}
		}
		if k.shown[fields[1]] = fields[2]; fields[0] == "DELETED" {
			delete(k.shown, fields[1])
		}
		k.mu.Unlock()
	}
	return nil
}

func (k *kubectlWatch) seen() (shown map[string]string, starts int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.shown), k.starts
}
