// Package stock has Kubernetes' own programs for a simulated cluster: the controllers of kube-controller-manager that judge
// nodes, and a model of kubelet. It also has plugins of kube-apiserver for package model.
//
// The programs reach API servers through a rest.Config whose Transport the caller gives. Their timers are Go's, so they run in a
// bubble of testing/synctest. A Run function returns when all that it started has ended, except client-go's watches and events.
// These end a moment later, with their last requests, and the bubble must wait for that. client-go also has variables of the
// whole process, which Prepare makes fit for bubbles.
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

// Prepare makes this process fit for a bubble of testing/synctest. Call Prepare before each bubble, while none runs. It sets the
// seed of client-go's random numbers (the jitter of intervals, the ends of watches). For that the main package or the test needs
// the line //go:debug randseednop=0; without it, Prepare returns an error.
//
// Goroutines that act at the same instant of a bubble do so in the order in which they run. On one processor that order is the
// same more often, so the process gets only one. A simulation uses several cores by several processes.
//
// Prepare also turns off klog, and client-go's reports of errors. A report waits if the last one came less than a millisecond
// ago, or lies in the future. Bubbles begin in 2000, so such a wait would take years.
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

// client returns the configuration with which Kubernetes' own programs use an API server: in protobuf. It does not limit the rate
// of requests. If a program that holds a mutex waited for a limiter, time in the bubble could stand still (see prompt).
func client(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.QPS = -1
	return cfg
}
