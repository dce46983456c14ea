package cache

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

func local(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

// madeWith is a Pod that needs ConfigMaps and Secrets in every possible way.
func madeWith() *corev1.Pod {
	env := func(name string) []corev1.EnvVar {
		return []corev1.EnvVar{
			{Name: "plain", Value: "x"},
			{Name: "a", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: local("config-" + name),
			}}},
			{Name: "b", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: local("secret-" + name),
			}}},
		}
	}
	ref := func(name string) *corev1.LocalObjectReference { r := local(name); return &r }
	volume := func(v corev1.VolumeSource) corev1.Volume { return corev1.Volume{Name: "v", VolumeSource: v} }
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"},
		Spec: corev1.PodSpec{
			ImagePullSecrets: []corev1.LocalObjectReference{local("secret-pull")},
			InitContainers:   []corev1.Container{{Env: env("init")}},
			Containers: []corev1.Container{{Env: env("env"), EnvFrom: []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("config-from")}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("secret-from")}},
			}}},
			EphemeralContainers: []corev1.EphemeralContainer{
				{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: env("debug")}},
			},
			Volumes: []corev1.Volume{
				volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
				volume(corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("config-volume")},
				}),
				volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret-volume"}}),
				volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("config-projected")}},
					{Secret: &corev1.SecretProjection{LocalObjectReference: local("secret-projected")}},
				}}}),
				volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: ref("secret-csi")}}),
				volume(corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{SecretRef: ref("secret-flex")}}),
				volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: ref("secret-iscsi")}}),
				volume(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{SecretRef: ref("secret-rbd")}}),
				volume(corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{SecretRef: ref("secret-ceph")}}),
				volume(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "secret-azure"}}),
				volume(corev1.VolumeSource{ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: ref("secret-scaleio")}}),
				volume(corev1.VolumeSource{StorageOS: &corev1.StorageOSVolumeSource{SecretRef: ref("secret-storageos")}}),
				volume(corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{SecretRef: ref("secret-cinder")}}),
			},
		},
	}
}

func TestWhatAPodIsMadeWith(t *testing.T) {
	all := map[Selection]bool{}
	usedBy(madeWith(), all)
	var got []string
	for what := range all {
		if what.Namespace != "a" {
			t.Errorf("%v is of another namespace", what)
		}
		got = append(got, what.Resource.Resource[:6]+" "+what.Fields)
	}
	slices.Sort(got)
	var want []string
	for _, name := range []string{"debug", "env", "from", "init", "projected", "volume"} {
		want = append(want, "config metadata.name=config-"+name)
	}
	for _, name := range []string{
		"azure", "ceph", "cinder", "csi", "debug", "env", "flex", "from", "init", "iscsi", "projected", "pull", "rbd", "scaleio",
		"storageos", "volume",
	} {
		want = append(want, "secret metadata.name=secret-"+name)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%q,\nwant %q", got, want)
	}
	done := madeWith()
	done.Status.Phase = corev1.PodSucceeded
	all = map[Selection]bool{}
	if usedBy(done, all); len(all) != 0 {
		t.Errorf("a Pod that is done needs %v", all)
	}
}

// A ConfigMap for env is read once. A month later the node loses its power while it is cut off.
func TestWhatThePodsNeedStaysOnTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.needs.node = "n1"
		w.run()
		pod := madeWith()
		raw, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		what := podsOf("n1")
		put := func(revision int) {
			all := stream.Snapshot{
				Type:     stream.Type{GroupVersionKind: pods.GroupVersion().WithKind("Pod"), Encoding: stream.JSON},
				Revision: 9,
				Objects:  []stream.Object{{Key: stream.Key{Namespace: "a", Name: "p"}, Revision: 9, Raw: raw}},
			}
			if revision > 9 {
				w.apply(what, stream.Deleted, stream.Object{Key: all.Objects[0].Key, Revision: 20, Raw: raw})
				return
			}
			if err := w.source(what).Replace(t.Context(), all); err != nil {
				t.Fatal(err)
			}
		}
		put(9)
		if w.Gone("a", "p", "") {
			t.Error("a Pod is gone before anything is known")
		}
		one := Selection{Resource: configMaps, Namespace: "a", Fields: "metadata.name=config-env"}
		other := Selection{Resource: configMaps, Namespace: "a", Fields: "metadata.name=other"}
		w.has(one, 9, setObject("config-env", 5))
		w.has(other, 9, setObject("other", 5))
		w.disk.Online(true)
		_, end := w.watch("/api/v1/pods?watch=1&resourceVersion=9&fieldSelector=spec.nodeName%3Dn1")
		for _, name := range []string{"config-env", "other"} {
			w.get(fmt.Sprintf("%s?fieldSelector=metadata.name%%3D%s", listOfA, name))
		}
		if !w.Gone("a", "q", "") || w.Gone("a", "p", "") {
			t.Error("it is not known which Pods are there")
		}
		time.Sleep(2 * tidyEvery)
		w.Set.mu.Lock()
		if account := serviceaccount.MakeUsername("a", "default"); !w.needs.users[account] {
			t.Errorf("the Pod's ServiceAccount is none of %v", w.needs.users)
		}
		w.Set.mu.Unlock()
		time.Sleep(30 * 24 * time.Hour)
		if needed, idle := w.onDisk(one.id("")), w.onDisk(other.id("")); !needed || idle {
			t.Errorf("after a month the disk has what the Pod needs: %t, what nobody needs: %t", needed, idle)
		}
		put(20)
		w.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1") // kubelet's watch has ended long since
		time.Sleep(30 * 24 * time.Hour)
		if w.onDisk(one.id("")) {
			t.Error("what the Pod needed stays after it")
		}
		end()
		w.stop()
	})
}

// Without a disk, a container that starts again in a cut gets what it was made with.
func TestWhatThePodsNeedStaysInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.stop()
		w.openOn(&faulty{Store: store.NewMemory(nil)})
		w.needs.node = "n1"
		w.run()
		raw, err := json.Marshal(madeWith())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.source(podsOf("n1")).Replace(t.Context(), stream.Snapshot{
			Type:     stream.Type{GroupVersionKind: pods.GroupVersion().WithKind("Pod"), Encoding: stream.JSON},
			Revision: 9, Objects: []stream.Object{{Key: stream.Key{Namespace: "a", Name: "p"}, Revision: 9, Raw: raw}},
		}); err != nil {
			t.Fatal(err)
		}
		_, end := w.watch("/api/v1/pods?watch=1&resourceVersion=9&fieldSelector=spec.nodeName%3Dn1")
		for name, stays := range map[string]bool{"config-env": true, "other": false} {
			one := Selection{Resource: configMaps, Namespace: "a", Fields: "metadata.name=" + name}
			w.has(one, 9, setObject(name, 5))
			target := fmt.Sprintf("%s?fieldSelector=metadata.name%%3D%s", listOfA, name)
			want(t, w.get(target), http.StatusOK, name)
			time.Sleep(time.Hour)
			w.link.Set(link.Down)
			code := http.StatusServiceUnavailable
			if stays {
				code = http.StatusOK
			}
			want(t, w.get(target), code)
			w.link.Set(link.Up)
		}
		end()
		w.stop()
	})
}

// Which Pods the node has is known from what kubelet follows, and from the disk while kubelet is off.
func TestWhichPodsTheNodeHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.needs.node = "n1"
		w.run()
		is := func(name, uid string, known bool) {
			t.Helper()
			if got, ok := w.PodUID("a", name); got != uid || ok != known {
				t.Errorf("%s is %q, known: %t; want %q, %t", name, got, ok, uid, known)
			}
		}
		gone := func(name, uid string, want bool) {
			t.Helper()
			if w.Gone("a", name, uid) != want {
				t.Errorf("%s %s is gone: %t", name, uid, !want)
			}
		}
		pod := func(uid string, revision edge.Revision) stream.Object {
			raw, err := json.Marshal(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: types.UID(uid)}})
			if err != nil {
				t.Fatal(err)
			}
			return stream.Object{Key: stream.Key{Namespace: "a", Name: "p"}, Revision: revision, Raw: raw}
		}
		is("p", "", false)
		gone("p", "u1", false)
		const all = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1"
		w.has(podsOf("n1"), 9, pod("u1", 9))
		_, end := w.watch(all + "&watch=1&resourceVersion=9")
		w.get(all)
		is("p", "u1", true)
		is("q", "", true)
		gone("p", "", false)
		gone("p", "u1", false)
		gone("p", "u0", true)
		gone("q", "", true)
		end()
		time.Sleep(idleTime + 2*tidyEvery) // kubelet is off
		is("p", "u1", true)
		is("q", "", true)
		gone("q", "", false)
		w.stop()
	})
}

// What the hub follows for itself stays on the disk, although it is read only once.
func TestWhatTheHubFollowsIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := &told{faulty: w.disk}
		w.cfg.Always, w.cfg.Disk = []Selection{Whole(configMaps)}, d
		w.needs = needs{node: "n1", all: map[Selection]bool{}}
		w.link.Set(link.Down)
		w.run()
		time.Sleep(2 * tidyEvery)
		w.stop()
		if want := []store.Collection{{Client: Hub, Resource: configMaps}}; !slices.Equal(d.need, want) {
			t.Errorf("the disk is told to need %v", d.need)
		}
	})
}

// told is a disk that knows what it was told to need.
type told struct {
	*faulty
	need []store.Collection
}

func (d *told) Need(ids []store.Collection, _ ...string) { d.need = ids }
