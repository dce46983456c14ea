package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Default returns a configuration that has only defaults.
func Default() *YurtHubConfiguration {
	c := &YurtHubConfiguration{}
	SetDefaults(c)
	return c
}

// SetDefaults sets the fields that c leaves out and that have a default.
func SetDefaults(c *YurtHubConfiguration) {
	yes, no := true, false
	set(&c.CertDir, "/var/lib/yurthub/pki")
	setPointer(&c.KubeletConfig, "/var/lib/kubelet/config.yaml")
	set(&c.KubeletServingCertificate, "/var/lib/kubelet/pki")
	setPointer(&c.DiskCachePath, "/var/lib/yurthub/cache")
	set(&c.Port, 10261)
	set(&c.SecurePort, 10268)
	set(&c.HealthBindAddress, "127.0.0.1")
	set(&c.HealthPort, 10267)
	set(&c.MaxRequestsInflight, 200)
	set(&c.MaxMutatingRequestsInflight, 100)
	set(&c.MaxLongRunningRequests, 1000)
	// Of the resources that these name, every node of a cluster reads all. They are most of what a node reads; people on site
	// also see them.
	if c.PoolScopeResources == nil {
		c.PoolScopeResources = []string{"v1/endpoints", "v1/services", "discovery.k8s.io/v1/endpointslices"}
	}
	// These are the programs that a node's Pods and their network need.
	if c.CacheAgents == nil {
		c.CacheAgents = []string{"kubelet", "kube-proxy", "coredns", "flanneld", "calico-node", "cilium-agent"}
	}
	setPointer(&c.OwnObjects, yes)
	setPointer(&c.OwnSecrets, no)
	setPointer(&c.Masterservice, no)
	setPointer(&c.RememberIdentitiesFor, metav1.Duration{Duration: 24 * time.Hour})
	set(&c.LinkProfile, LinkNormal)
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
