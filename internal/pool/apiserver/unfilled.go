package apiserver

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/node"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// Unfilled gives Kubernetes' own code empty informers for kinds whose objects nobody brings here. So the server need not serve
// these kinds. The Node authorizer, NodeRestriction and the storage of Services use such informers. Call Unfilled before those
// three are made.
func Unfilled(factory informers.SharedInformerFactory) {
	never := func(kind, list runtime.Object) {
		factory.InformerFor(kind, func(_ kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(nothing{list}, kind, resync,
				cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		})
	}
	never(&corev1.PersistentVolume{}, &corev1.PersistentVolumeList{})
	never(&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{})
	never(&networkingv1.IPAddress{}, &networkingv1.IPAddressList{})
	never(&networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{})
	never(&storagev1.CSIDriver{}, &storagev1.CSIDriverList{})
	never(&storagev1.VolumeAttachment{}, &storagev1.VolumeAttachmentList{})
}

// nothing is a list without objects, which never changes.
type nothing struct{ list runtime.Object }

// List implements cache.Lister.
func (n nothing) List(metav1.ListOptions) (runtime.Object, error) {
	return n.list.DeepCopyObject(), nil
}

// Watch implements cache.Watcher.
func (nothing) Watch(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }

// IsWatchListSemanticsUnSupported makes an informer list instead of streaming the list by a watch.
func (nothing) IsWatchListSemanticsUnSupported() bool { return true }

// ownAuthorizer returns Kubernetes' Node authorizer, and one that lets this process itself do everything. kube-apiserver's own
// options would make the Node authorizer watch kinds whose objects nobody brings here.
func ownAuthorizer(factory informers.SharedInformerFactory) authorizer.Authorizer {
	node.RegisterMetrics()
	graph := node.NewGraph()
	core := factory.Core().V1()
	// No ResourceSlices and no PodCertificateRequests: nobody fills them either.
	node.AddGraphEventHandlers(graph, core.Nodes(), core.Pods(), core.PersistentVolumes(),
		factory.Storage().V1().VolumeAttachments(), nil, nil)
	return union.New(
		node.NewAuthorizer(graph, nodeidentifier.NewDefaultNodeIdentifier(), bootstrappolicy.NodeRules()),
		authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup))
}
