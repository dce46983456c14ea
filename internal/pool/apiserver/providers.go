package apiserver

import (
	"time"

	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorizationrest "k8s.io/kubernetes/pkg/registry/authorization/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	corerest "k8s.io/kubernetes/pkg/registry/core/rest"
	discoveryrest "k8s.io/kubernetes/pkg/registry/discovery/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
)

// providers store and serve the API groups of a pool.
func (a *Assembly) providers(parts Parts) ([]controlplane.RESTStorageProvider, error) {
	config, audiences := a.generic, a.generic.Authentication.APIAudiences
	core, err := corerest.New(corerest.Config{
		GenericConfig: corerest.GenericConfig{
			StorageFactory:       a.storage,
			EventTTL:             eventTTL,
			LoopbackClientConfig: config.LoopbackClientConfig,
			Informers:            a.factory,
			APIAudiences:         audiences,
		},
		Proxy: corerest.ProxyConfig{
			Transport:           controlplane.CreateProxyTransport(),
			KubeletClientConfig: a.config.Kubelets.kubelets.client(),
		},
		Services: corerest.ServicesConfig{
			ClusterIPRange:   a.config.ServiceRange,
			NodePortRange:    kubeoptions.DefaultServiceNodePortRange,
			IPRepairInterval: time.Hour, // never started, see storageOnly
		},
	}, parts.Authorizer)
	if err != nil {
		return nil, err
	}
	all := []controlplane.RESTStorageProvider{
		reaching{core, a.config.Kubelets},
		authenticationrest.RESTStorageProvider{APIAudiences: audiences},
		authorizationrest.RESTStorageProvider{Authorizer: parts.Authorizer, RuleResolver: parts.Rules},
		coordinationrest.RESTStorageProvider{},
		discoveryrest.StorageProvider{},
		rbacrest.RESTStorageProvider{Authorizer: parts.Authorizer},
	}
	for i := range all {
		all[i] = storageOnly{all[i]}
	}
	return all, nil
}

// storageOnly hides a group's post-start hook. The hook of one group makes the bootstrap roles, which take 14 MB and a second,
// and nobody needs them here. Another group's repairs cluster IPs, and would write an object for each Service that the hubs push.
type storageOnly struct {
	controlplane.RESTStorageProvider
}
