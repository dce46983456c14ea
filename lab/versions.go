package lab

import "k8s.io/apimachinery/pkg/util/version"

// Versions of Kubernetes from which on something changes. A lab's cloud and kubelets can be older: see build.Versions.
const (
	// constrainedSince is the cloud's version from which on a node's rights can be limited to impersonating its forwarder for
	// nothing but forwarding. An older API server does not know the verbs for that.
	constrainedSince = "1.36"
	// restartPeriodSince is kubelet's version from which on it takes crashLoopBackOff without a feature gate.
	restartPeriodSince = "1.35"
)

// since reports whether a version is at least another. An empty version is ours, which is not older than any that a lab asks
// for.
func since(have, first string) bool {
	v, err := version.ParseGeneric(have)
	return err != nil || v.AtLeast(version.MustParseGeneric(first))
}
