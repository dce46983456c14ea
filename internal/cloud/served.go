package cloud

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"
)

const (
	// askMin and askMax bound how often the API server is asked for kinds that it does not serve yet.
	askMin = time.Second
	askMax = 30 * time.Second
)

// whenServed adds a controller as soon as the API server serves its kinds. Their CRDs may be installed later than this program,
// and the other controllers run without them.
type whenServed struct {
	name      string // of the controller
	kinds     []schema.GroupVersionKind
	discovery discovery.ServerResourcesInterface
	add       func() error
	waiting   *prometheus.GaugeVec
}

// Start implements manager.Runnable: it ends when the controller is added.
func (w *whenServed) Start(ctx context.Context) error {
	log := klog.FromContext(ctx).WithValues("controller", w.name)
	said := ""
	for pause := askMin; ; pause = min(2*pause, askMax) {
		missing, err := w.missing()
		w.report(missing)
		if len(missing) == 0 {
			log.Info("Starting a controller")
			return w.add()
		}
		text := strings.Join(missing, "; ")
		if err != nil {
			text += ": " + err.Error()
		}
		if text != said {
			said = text
			log.Info("A controller waits until the API server serves its kinds: install their CRDs, or turn the controller off",
				"missing", text)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// newWaiting returns the metric of controllers that wait: a controller that waits does nothing, and so reports nothing itself.
func newWaiting() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "coordinator_controller_waiting", Help: "1 for each controller that waits until the API server serves a kind",
	}, []string{"controller", "kind"})
}

// report says in the metric which kinds the controller waits for; none means that it runs.
func (w *whenServed) report(missing []string) {
	for _, kind := range w.kinds {
		if text := kindText(kind); slices.Contains(missing, text) {
			w.waiting.WithLabelValues(w.name, text).Set(1)
		} else {
			w.waiting.DeleteLabelValues(w.name, text)
		}
	}
}

func kindText(kind schema.GroupVersionKind) string {
	return kind.GroupVersion().String() + " " + kind.Kind
}

// NeedLeaderElection returns false, because each controller that is added waits for the election itself.
func (w *whenServed) NeedLeaderElection() bool { return false }

// missing returns the kinds that are not served, or not known to be, and then why it can't tell.
func (w *whenServed) missing() (missing []string, failed error) {
	served := map[schema.GroupVersion][]string{}
	for _, kind := range w.kinds {
		gv := kind.GroupVersion()
		if _, asked := served[gv]; !asked {
			list, err := w.discovery.ServerResourcesForGroupVersion(gv.String())
			if err != nil && !apierrors.IsNotFound(err) {
				failed = err
			}
			served[gv] = []string{}
			if err == nil {
				for _, r := range list.APIResources {
					served[gv] = append(served[gv], r.Kind)
				}
			}
		}
		if !slices.Contains(served[gv], kind.Kind) {
			missing = append(missing, kindText(kind))
		}
	}
	return missing, failed
}
