package lab

import "k8s.io/apimachinery/pkg/util/version"

// Versions of Kubernetes from which on something is otherwise. A lab's cloud and kubelets can be older: see build.Versions.
const (
	// constrainedSince is the cloud's from which on a node may impersonate its forwarder for nothing but forwarding. Before it
	// the API server does not know the verbs.
	constrainedSince = "1.36"
	// restartPeriodSince is kubelet's from which on it takes crashLoopBackOff without a feature gate.
	restartPeriodSince = "1.35"
)

// since reports whether a version is at least another. An empty one is ours, which is not older than any that is asked for.
func since(have, first string) bool {
	v, err := version.ParseGeneric(have)
	return err != nil || v.AtLeast(version.MustParseGeneric(first))
}
