package model

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// groups lists the groups of the kinds, without the core group.
func (s *Server) groups() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, k := range s.kinds {
		if k.Group == "" {
			continue
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: k.GroupVersion().String(), Version: k.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{
			Name: k.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
		})
	}
	slices.SortFunc(list.Groups, func(a, b metav1.APIGroup) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// resources lists the resources of the group and version at a path; nil means that there are none.
func (s *Server) resources(path string) *metav1.APIResourceList {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
	for _, k := range s.kinds {
		at := "/apis/" + k.GroupVersion().String()
		if k.Group == "" {
			at = "/api/" + k.Version
		}
		if path != at {
			continue
		}
		list.GroupVersion = k.GroupVersion().String()
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.resource.Resource, SingularName: strings.ToLower(k.Kind), Namespaced: !k.clusterScoped, Kind: k.Kind,
			Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
		})
		if k.hasStatus {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.resource.Resource + "/status", Namespaced: !k.clusterScoped, Kind: k.Kind,
				Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
	}
	if list.GroupVersion == "" {
		return nil
	}
	slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return list
}
