package links

import (
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/lab/e2e/kit"
)

const (
	// askEvery is how often a node's hub is asked for what only the cloud can answer.
	askEvery = 250 * time.Millisecond
	// mostInFlight is the budget for how long such a request may wait when a link goes silent.
	mostInFlight = 8 * time.Second
)

// askThrough keeps requests under way through a node's hub, of a kind that only the cloud answers, until the returned function
// is called. That function returns how long the slowest of them waited for an answer or an error.
func askThrough(t *kit.T, node string) (longest func() time.Duration) {
	config, err := t.Lab.HubConfig(node)
	t.Must(err)
	config.Timeout = 4 * mostInFlight
	kubelet, err := kubernetes.NewForConfig(config)
	t.Must(err)
	var asked sync.WaitGroup
	var mu sync.Mutex
	var most time.Duration
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Background.Go(func() {
		defer close(stopped)
		ticker := time.NewTicker(askEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-stop:
				return
			case <-t.Ctx.Done():
				return
			}
			asked.Go(func() {
				began := time.Now()
				// How long it takes counts, also where it fails.
				_ = kubelet.RESTClient().Get().AbsPath("/version").MaxRetries(0).Do(t.Ctx).Error()
				mu.Lock()
				defer mu.Unlock()
				most = max(most, time.Since(began))
			})
		}
	})
	return func() time.Duration {
		close(stop)
		<-stopped
		asked.Wait()
		return most
	}
}
