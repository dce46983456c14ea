package pool

import (
	"encoding/json"
	"net/http"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"yurtcoordinator/internal/edge"
)

// The pool's own NodePool is shown without its CRD, from the mirror, where the leader brings it. An API server with CRDs would
// cost a coordinator some 30 MB (docs/adr/0001-one-process.md).

var (
	nodePoolsGroup   = "/apis/" + edge.NodePools.Group
	nodePoolsVersion = nodePoolsGroup + "/" + edge.NodePools.Version
)

const (
	kindNodePool     = "NodePool"
	singularNodePool = "nodepool"
	shortNodePool    = "np"
)

// discoverNodePools adds them to what the server says it serves.
func discoverNodePools(server *genericapiserver.GenericAPIServer) {
	r := edge.NodePools
	server.DiscoveryGroupManager.AddGroup(groupOfNodePools())
	server.AggregatedDiscoveryGroupManager.AddGroupVersion(r.Group, apidiscoveryv2.APIVersionDiscovery{
		Version: r.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		Resources: []apidiscoveryv2.APIResourceDiscovery{{
			Resource: r.Resource, SingularResource: singularNodePool, ShortNames: []string{shortNodePool},
			ResponseKind: &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: kindNodePool},
			Scope:        apidiscoveryv2.ScopeCluster, Verbs: []string{"get", "list", "watch"},
		}},
	})
}

func groupOfNodePools() metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{
		GroupVersion: edge.NodePools.GroupVersion().String(), Version: edge.NodePools.Version,
	}
	return metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}, Name: edge.NodePools.Group,
		Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
}

// servesNodePools serves their group: what is in it, and the objects.
func servesNodePools(objects http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimSuffix(r.URL.Path, "/") {
		case nodePoolsGroup:
			answer(w, groupOfNodePools())
		case nodePoolsVersion:
			answer(w, metav1.APIResourceList{
				TypeMeta:     metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
				GroupVersion: edge.NodePools.GroupVersion().String(),
				APIResources: []metav1.APIResource{{
					Name: edge.NodePools.Resource, SingularName: singularNodePool, Kind: kindNodePool,
					ShortNames: []string{shortNodePool}, Verbs: []string{"get", "list", "watch"},
				}},
			})
		default:
			objects.ServeHTTP(w, r)
		}
	})
}

func answer(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(content) // else the client is gone
}
