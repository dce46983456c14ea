package stock

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // their defaults
)

// Policies returns kube-apiserver's plugin for ValidatingAdmissionPolicies, with the policies and bindings of a YAML text. The
// plugin is ready on return, and works until ctx ends. It does not support parameters or policies that depend on namespaces.
func Policies(ctx context.Context, text []byte) (admission.Interface, error) {
	policies, bindings := &admissionv1.ValidatingAdmissionPolicyList{}, &admissionv1.ValidatingAdmissionPolicyBindingList{}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		o, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			return nil, err
		}
		legacyscheme.Scheme.Default(o)
		switch o := o.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			policies.Items = append(policies.Items, *o)
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			bindings.Items = append(bindings.Items, *o)
		default:
			return nil, fmt.Errorf("%T is no policy and no binding", o)
		}
	}
	nowhere := &rest.Config{Host: "https://unused"}
	client, err := kubernetes.NewForConfig(nowhere)
	if err != nil {
		return nil, err
	}
	unused, err := dynamic.NewForConfig(nowhere)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	fixed(factory, &admissionv1.ValidatingAdmissionPolicy{}, policies)
	fixed(factory, &admissionv1.ValidatingAdmissionPolicyBinding{}, bindings)
	fixed(factory, &corev1.Namespace{}, &corev1.NamespaceList{})
	plugin, err := validating.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetDynamicClient(unused)
	plugin.SetRESTMapper(meta.NewDefaultRESTMapper(nil))
	plugin.SetAuthorizer(authorizerfactory.NewAlwaysAllowAuthorizer())
	plugin.SetDrainedNotification(ctx.Done())
	if err := plugin.ValidateInitialization(); err != nil {
		return nil, err
	}
	factory.StartWithContext(ctx)
	if !plugin.WaitForReady() {
		return nil, errors.New("the policies are not ready")
	}
	return plugin, nil
}

// fixed gives a factory an informer that always has the objects of a list.
func fixed(factory informers.SharedInformerFactory, of, list runtime.Object) {
	factory.InformerFor(of, func(_ kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(listed{list}, of, resync, cache.Indexers{})
	})
}

// listed is a cache.ListerWatcher of a list that never changes.
type listed struct{ runtime.Object }

// List implements cache.Lister.
func (l listed) List(metav1.ListOptions) (runtime.Object, error) { return l.Object, nil }

// Watch implements cache.Watcher.
func (listed) Watch(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }

// IsWatchListSemanticsUnSupported makes reflectors call List.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }
