package cache

import (
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/stream"
)

func TestOwn(t *testing.T) {
	services := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	conf := func(fields string) Selection {
		return Selection{Resource: configMaps, Namespace: "shop", Fields: fields}
	}
	one := func(r schema.GroupVersionResource, namespace, name string) stream.ID {
		return stream.ID{Resource: r.Resource, Key: stream.Key{Namespace: namespace, Name: name}}
	}
	for s, want := range map[Selection]stream.ID{
		{Resource: nodes, Fields: "metadata.name=n1"}:                one(nodes, "", "n1"),
		{Resource: nodes, Fields: "metadata.name=n1", Labels: "a=b"}: {},
		{Resource: nodes, Fields: "metadata.name=n2"}:                {},
		{Resource: nodes}: {},
		{Resource: pods, Fields: "spec.nodeName=n1"}:                    {Resource: "pods"},
		{Resource: pods, Fields: "spec.nodeName=n1", Labels: "a=b"}:     {},
		{Resource: pods, Fields: "spec.nodeName=n2"}:                    {},
		{Resource: pods, Namespace: "shop", Fields: "spec.nodeName=n1"}: {},
		{Resource: pods}: {},
		{Resource: secrets, Namespace: "shop", Fields: "metadata.name=key"}:  one(secrets, "shop", "key"),
		{Resource: configMaps, Fields: "metadata.name=conf"}:                 {},
		{Resource: services, Namespace: "shop", Fields: "metadata.name=web"}: {},
		conf("metadata.name=conf"):                                           one(configMaps, "shop", "conf"),
		conf("metadata.name=a.b-c"):                                          one(configMaps, "shop", "a.b-c"),
		conf(""):                                                             {},
		conf("metadata.name="):                                               {},
		conf("metadata.name!=a"):                                             {},
		conf("metadata.name==a"):                                             {},
		conf(`metadata.name=a\,b`):                                           {},
		conf("metadata.name=a,metadata.namespace=b"):                         {},
		conf("spec.nodeName=n1"):                                             {},
		conf("conf"):                                                         {},
		{Resource: schema.GroupVersionResource{Group: "x", Version: "v1", Resource: "pods"}, Fields: "spec.nodeName=n1"}: {},
	} {
		if got, ok := s.ownOf("n1"); ok != (want != stream.ID{}) || got != want && ok {
			t.Errorf("%v: %v, %v, want %v", s, got, ok, want)
		}
	}
}

// What must not come back after a crash is what the node's Pods are and have; not what everybody changes all the time.
func TestPrompt(t *testing.T) {
	slices := schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	for s, want := range map[Selection]bool{
		podsOf("n1"): true, {Resource: pods}: false, {Resource: pods, Labels: "a=b"}: false,
		single(secrets, "shop", "key"): true, {Resource: secrets}: true,
		single(configMaps, "shop", "conf"): true, {Resource: configMaps, Namespace: "shop"}: false,
		{Resource: slices}: false, single(nodes, "", "n1"): false,
	} {
		for _, client := range []string{"", Hub, "system:serviceaccount:shop:web"} {
			if Prompt(s.id(client)) != want {
				t.Errorf("%v of %q: want %t", s, client, want)
			}
		}
	}
}

// What is followed of the node's own is told apart from what else its programs follow, and its Pods can be read.
func TestOwnObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.needs.node = "n1"
		w.run()
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", ResourceVersion: "5"}}
		raw, err := pod.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		p := stream.ID{Resource: "pods", Key: stream.Key{Namespace: "a", Name: "p"}}
		if err := w.source(podsOf("n1")).Replace(t.Context(), stream.Snapshot{
			Type:     stream.Type{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), Encoding: stream.Protobuf},
			Revision: 9, Objects: []stream.Object{{Key: p.Key, Revision: 5, Raw: raw}},
		}); err != nil {
			t.Fatal(err)
		}
		w.has(single(configMaps, "a", "conf"), 9, setObject("conf", 5))
		w.has(Selection{Resource: configMaps, Namespace: "a"}, 9, setObject("conf", 5))
		if _, ok := w.OwnObject(p); ok || len(w.Own()) > 0 {
			t.Error("something is followed before anybody has asked")
		}
		for _, target := range []string{
			"/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", listOfA, listOfA + "?fieldSelector=metadata.name%3Dconf",
		} {
			w.get(target)
		}
		var ids []string
		for _, own := range w.Own() {
			ids = append(ids, own.String())
		}
		if want := []string{"configmaps a/conf", "pods "}; !slices.Equal(ids, want) {
			t.Errorf("%q is the node's own, want %q", ids, want)
		}
		if o, ok := w.OwnObject(p); !ok || o.Revision != 5 {
			t.Errorf("the Pod is %v, %v", o, ok)
		}
		if _, ok := w.OwnObject(stream.ID{Resource: "configmaps", Key: stream.Key{Namespace: "a", Name: "conf"}}); ok {
			t.Error("a ConfigMap is the node's alone")
		}
		w.stop()
	})
}
