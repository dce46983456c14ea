// Package stock has the programs of Kubernetes' own that run in a simulated cluster: kube-controller-manager's judgement of
// nodes, by its own packages, and a model of kubelet.
//
// Both reach API servers through a rest.Config whose Transport the caller gives, and run in a bubble of testing/synctest: their
// timers are Go's. Each Run function returns when all that it started has ended, except client-go's watches and events. These
// end only when the requests that they have under way end, so a bubble must give them a moment. client-go has state of the
// whole process that does not suit bubbles; Prepare sees to it.
package stock

import (
	"errors"
	"math/rand"
	goruntime "runtime"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Prepare makes this process fit for bubbles, and makes client-go's random numbers (the jitter of intervals, the ends of
// watches) begin at a seed. It is called before each bubble, while none runs. The main package or the test needs the line
// //go:debug randseednop=0; without it, Prepare returns an error.
//
// Goroutines that act at the same instant of a bubble do so in the order in which they run. On one processor this order is the
// same more often, so the process gets only one. A simulation uses several cores by several processes.
//
// A caller that reports an error to client-go waits if the last error was reported less than a millisecond ago, and also if
// that time lies in the future. Bubbles begin in 2000, so it would wait for years. Therefore no error is reported, and nothing
// is logged.
func Prepare(seed int64) error {
	goruntime.GOMAXPROCS(1)
	utilruntime.ErrorHandlers = nil
	klog.SetLogger(logr.Discard())
	rand.Seed(seed) //nolint:staticcheck // client-go has no other source
	if rand.Int63() != rand.New(rand.NewSource(seed)).Int63() {
		return errors.New("math/rand was not seeded: //go:debug randseednop=0 is missing")
	}
	return nil
}

// client returns the configuration with which Kubernetes' own programs use an API server: in protobuf. Nothing limits their
// rate, because a limiter would wait where a bubble must not, and these clusters are small.
func client(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.QPS = -1
	return cfg
}
