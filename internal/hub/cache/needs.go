package cache

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

// The resources of the node's own objects.
var (
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// needs are the selections that the disk must keep because the node's Pods use them. kubelet reads the ConfigMaps and Secrets of
// a container's environment only when the container starts, and immutable objects only once. The next start may come after
// months, and without the cloud.
type needs struct {
	node edge.NodeName
	at   edge.Revision // of the Pods as last looked at
	all  map[Selection]bool
	// users are the user names of the Pods' ServiceAccounts. The disk also keeps what these users have listed.
	users map[string]bool
}

// list returns the selections that the replica's Pods need, and false if not all Pods are known.
func (n *needs) list(ctx context.Context, m *Member) (map[Selection]bool, bool) {
	if m == nil {
		return n.all, n.all != nil // kubelet is off, or begins anew
	}
	if at := m.Replica.Position(); at == 0 || at == n.at {
		return n.all, n.all != nil
	}
	all, err := m.Replica.Snapshot(ctx)
	if err != nil {
		return n.all, n.all != nil
	}
	n.at, n.all, n.users = all.Revision, map[Selection]bool{podsOf(n.node): true}, map[string]bool{}
	for _, pod := range podsIn(all) {
		usedBy(pod, n.all)
		n.users[serviceaccount.MakeUsername(pod.Namespace, cmp.Or(pod.Spec.ServiceAccountName, "default"))] = true
	}
	return n.all, true
}

// podsIn returns the Pods of a snapshot, without those that cannot be decoded: kubelet can't read them either.
func podsIn(all stream.Snapshot) (found []*corev1.Pod) {
	for _, o := range all.Objects {
		pod := &corev1.Pod{}
		var err error
		if all.Type.Encoding == stream.Protobuf {
			err = pod.Unmarshal(o.Raw)
		} else {
			err = json.Unmarshal(o.Raw, pod)
		}
		if err == nil {
			found = append(found, pod)
		}
	}
	return found
}

// Gone reports whether kubelet's selection of Pods shows that the node no longer has a Pod. If uid is not empty, a Pod of that
// name with another UID counts as gone, too.
func (s *Set) Gone(namespace, name, uid string) bool {
	m := s.ofPrograms(podsOf(s.needs.node))
	if m == nil || !m.feed.Status().Get().Fresh || !m.Replica.Complete().Get() {
		return false
	}
	o, has := m.Replica.Get(stream.Key{Namespace: namespace, Name: name})
	return !has || uid != "" && uidOf(m.Replica.Type().Encoding, o) != uid
}

// PodUID returns the UID of a Pod of this node, and whether that is known. The UID is empty if the node has no Pod of that name.
// If kubelet is off, or its selection of Pods is not complete, PodUID reads the disk, whose content may be as old as the last
// contact with the cloud.
func (s *Set) PodUID(namespace, name string) (uid string, known bool) {
	key := stream.Key{Namespace: namespace, Name: name}
	if m := s.ofPrograms(podsOf(s.needs.node)); m != nil && m.Replica.Complete().Get() {
		o, _ := m.Replica.Get(key)
		return uidOf(m.Replica.Type().Encoding, o), true
	}
	pods, known := s.stored.read(s.cfg.Ends.Clock, s.cfg.Disk, podsOf(s.needs.node).id(""))
	return pods[key], known
}

// uidOf returns the UID of an object, empty if it has none.
func uidOf(e stream.Encoding, o stream.Object) string {
	meta, err := stream.ScanMeta(e, o.Raw)
	if err != nil {
		return ""
	}
	return string(meta.UID)
}

// storedPods caches the UIDs of the node's Pods on the disk, as of the last reading.
type storedPods struct {
	mu    sync.Mutex
	at    time.Time
	uids  map[stream.Key]string
	known bool
}

// needsEvery is the least time between two readings of the disk.
const needsEvery = 10 * time.Second

func (p *storedPods) read(clock ends.Clock, disk SetDisk, id store.Collection) (uids map[stream.Key]string, known bool) {
	p.mu.Lock()
	uids, known = p.uids, p.known
	recent := !p.at.IsZero() && clock.Since(p.at) < needsEvery
	p.mu.Unlock()
	if recent {
		return uids, known
	}
	all, err := disk.Load(id)
	uids, known = make(map[stream.Key]string, len(all.Objects)), err == nil
	for _, o := range all.Objects {
		uids[o.Key] = uidOf(all.Type.Encoding, o)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.uids, p.known = clock.Running(), uids, known
	return uids, known
}

// tellNeedsLocked tells the disk what must stay.
func (s *Set) tellNeedsLocked() {
	used, ok := s.needs.list(s.life, s.findLocked("", podsOf(s.needs.node)))
	if !ok {
		return
	}
	ids := make([]store.Collection, 0, len(used))
	for what := range used {
		ids = append(ids, what.id(""))
	}
	for _, m := range s.ofLocked(Hub) {
		ids = append(ids, m.id())
	}
	s.cfg.Disk.Need(ids, slices.Collect(maps.Keys(s.needs.users))...)
}

// usedBy adds the ConfigMaps and Secrets that a Pod needs to start containers. Each is a selection of its own, because kubelet
// follows them one by one.
func usedBy(pod *corev1.Pod, all map[Selection]bool) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return // it starts no more containers
	}
	one := func(resource schema.GroupVersionResource, name string) {
		if name != "" {
			all[single(resource, pod.Namespace, name)] = true
		}
	}
	for _, ref := range pod.Spec.ImagePullSecrets {
		one(secrets, ref.Name)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		usedByEnv(c.Env, c.EnvFrom, one)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		usedByEnv(c.Env, c.EnvFrom, one)
	}
	for i := range pod.Spec.Volumes {
		usedByVolume(&pod.Spec.Volumes[i].VolumeSource, one)
	}
}

func usedByEnv(env []corev1.EnvVar, from []corev1.EnvFromSource, one func(schema.GroupVersionResource, string)) {
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			one(configMaps, ref.Name)
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil {
			one(secrets, ref.Name)
		}
	}
	for _, f := range from {
		if f.ConfigMapRef != nil {
			one(configMaps, f.ConfigMapRef.Name)
		}
		if f.SecretRef != nil {
			one(secrets, f.SecretRef.Name)
		}
	}
}

func usedByVolume(v *corev1.VolumeSource, one func(schema.GroupVersionResource, string)) {
	ref := func(r *corev1.LocalObjectReference) {
		if r != nil {
			one(secrets, r.Name)
		}
	}
	switch {
	case v.ConfigMap != nil:
		one(configMaps, v.ConfigMap.Name)
	case v.Secret != nil:
		one(secrets, v.Secret.SecretName)
	case v.Projected != nil:
		for _, p := range v.Projected.Sources {
			if p.ConfigMap != nil {
				one(configMaps, p.ConfigMap.Name)
			}
			if p.Secret != nil {
				one(secrets, p.Secret.Name)
			}
		}
	case v.CSI != nil:
		ref(v.CSI.NodePublishSecretRef)
	case v.FlexVolume != nil:
		ref(v.FlexVolume.SecretRef)
	case v.ISCSI != nil:
		ref(v.ISCSI.SecretRef)
	case v.RBD != nil:
		ref(v.RBD.SecretRef)
	case v.CephFS != nil:
		ref(v.CephFS.SecretRef)
	case v.AzureFile != nil:
		one(secrets, v.AzureFile.SecretName)
	case v.ScaleIO != nil:
		ref(v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		ref(v.StorageOS.SecretRef)
	case v.Cinder != nil:
		ref(v.Cinder.SecretRef)
	}
}
