package model

import (
	"reflect"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

type metaObject = metav1.Object

// Custom is a kind that a CustomResourceDefinition defines, with status as a subresource. Its schema is not checked.
type Custom struct {
	schema.GroupVersionKind
	// Resource is the plural name.
	Resource   string
	Namespaced bool
}

// kind returns the properties of the kind: its objects are in JSON only, and an update must contain a resourceVersion.
func (c Custom) kind() *kind {
	return &kind{
		GroupVersionKind: c.GroupVersionKind, resource: c.GroupVersion().WithResource(c.Resource), clusterScoped: !c.Namespaced,
		custom: true, needsRevision: true, hasStatus: true, generation: true,
		prepare: func(o runtime.Object) {
			delete(o.(*unstructured.Unstructured).Object, "status") //nolint:forcetypeassert // see new
		},
	}
}

// kind has what the server must know about a kind of objects. The zero value is for a kind such as ConfigMap: the server neither
// sets nor checks any field of its objects.
type kind struct {
	schema.GroupVersionKind
	resource      schema.GroupVersionResource
	clusterScoped bool
	// custom means that objects are unstructured.
	custom bool

	// needsRevision means that an update must contain a resourceVersion. createdByUpdate means that an update of a missing object
	// creates the object.
	needsRevision, createdByUpdate bool
	// graceful means that a deletion waits for the object's grace period. answersObject means that the answer to a deletion is
	// the deleted object.
	graceful, answersObject bool
	// hasStatus means that the field Status is a subresource of its own.
	hasStatus bool
	// generation means that metadata.generation is counted from the creation on.
	generation bool

	fields   func(runtime.Object) fields.Set // the fields for selectors, besides metadata.name and metadata.namespace
	prepare  func(runtime.Object)            // what the server and its default admission add to a new object
	validate func(runtime.Object) field.ErrorList
}

// kinds are the kinds of Kubernetes' own that are served, by resource. The map is a constant.
var kinds = byResource(
	kind{GroupVersionKind: coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		resource:      coordinationv1.SchemeGroupVersion.WithResource("leases"),
		needsRevision: true, createdByUpdate: true, validate: validateLease},
	kind{GroupVersionKind: core("Node"), resource: corev1.SchemeGroupVersion.WithResource("nodes"),
		clusterScoped: true, hasStatus: true, fields: fieldsOfNode, prepare: prepareNode},
	kind{GroupVersionKind: core("Pod"), resource: corev1.SchemeGroupVersion.WithResource("pods"),
		hasStatus: true, graceful: true, answersObject: true, generation: true, fields: fieldsOfPod, prepare: preparePod},
	kind{GroupVersionKind: core("ConfigMap"), resource: corev1.SchemeGroupVersion.WithResource("configmaps")},
	kind{GroupVersionKind: core("ServiceAccount"), resource: corev1.SchemeGroupVersion.WithResource("serviceaccounts")},
	kind{GroupVersionKind: core("Namespace"), resource: corev1.SchemeGroupVersion.WithResource("namespaces"),
		clusterScoped: true, hasStatus: true, answersObject: true, fields: fieldsOfNamespace, prepare: prepareNamespace},
	kind{GroupVersionKind: core("Service"), resource: corev1.SchemeGroupVersion.WithResource("services"),
		hasStatus: true, answersObject: true, createdByUpdate: true, fields: fieldsOfService},
	kind{GroupVersionKind: core("Endpoints"), resource: corev1.SchemeGroupVersion.WithResource("endpoints"),
		createdByUpdate: true},
	kind{GroupVersionKind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), generation: true},
	kind{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		resource: appsv1.SchemeGroupVersion.WithResource("daemonsets"), hasStatus: true, generation: true},
	kind{GroupVersionKind: core("Event"), resource: corev1.SchemeGroupVersion.WithResource("events"),
		createdByUpdate: true, fields: fieldsOfEvent},
)

func core(name string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(name) }

func byResource(all ...kind) map[schema.GroupVersionResource]*kind {
	m := map[schema.GroupVersionResource]*kind{}
	for _, k := range all {
		m[k.resource] = &k
	}
	return m
}

// new returns an empty object of the kind with its type set. With the suffix "List" it returns an empty list.
func (k *kind) new(suffix string) runtime.Object {
	gvk := k.GroupVersion().WithKind(k.Kind + suffix)
	if k.custom {
		var o runtime.Object = &unstructured.Unstructured{}
		if suffix != "" {
			o = &unstructured.UnstructuredList{}
		}
		o.GetObjectKind().SetGroupVersionKind(gvk)
		return o
	}
	o, err := scheme.Scheme.New(gvk)
	if err != nil {
		panic(err) // the table names a kind that client-go's scheme does not have
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	return o
}

// path returns the path under which the Store keeps an object.
func (k *kind) path(namespace, name string) string {
	if k.clusterScoped {
		return name
	}
	return namespace + "/" + name
}

// fieldsOf returns the fields by which objects can be selected.
func (k *kind) fieldsOf(o runtime.Object) fields.Set {
	set := fields.Set{}
	if k.fields != nil {
		set = k.fields(o)
	}
	set["metadata.name"] = accessor(o).GetName()
	if !k.clusterScoped {
		set["metadata.namespace"] = accessor(o).GetNamespace()
	}
	return set
}

// keep resets the fields of the new object that a write must not change, to their values in the present object. A write of the
// status does not change the spec, and any other write does not change the status.
func (k *kind) keep(next, was runtime.Object, subresource string) {
	if !k.hasStatus {
		return
	}
	if subresource == "" {
		carry(next, was, "Status")
		return
	}
	carry(next, was, "Spec")
	if n, ok := next.(*corev1.Pod); ok {
		w := was.(*corev1.Pod) //nolint:forcetypeassert // objects of one kind are of one type
		n.OwnerReferences = w.OwnerReferences
		if n.Status.QOSClass == "" {
			n.Status.QOSClass = w.Status.QOSClass
		}
	}
}

// part returns a field of an object; name is the field's name in Go.
func part(o runtime.Object, name string) any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.Object[strings.ToLower(name)]
	}
	return reflect.ValueOf(o).Elem().FieldByName(name).Interface()
}

// carry copies a field from was to next.
func carry(next, was runtime.Object, name string) {
	u, ok := next.(*unstructured.Unstructured)
	switch value := part(was, name); {
	case !ok:
		reflect.ValueOf(next).Elem().FieldByName(name).Set(reflect.ValueOf(value))
	case value == nil:
		delete(u.Object, strings.ToLower(name))
	default:
		u.Object[strings.ToLower(name)] = value
	}
}

// count raises the generation if next differs from was in a field that the generation of the kind counts.
func (k *kind) count(next, was runtime.Object) {
	counted := []string{"Spec"}
	if !k.hasStatus {
		counted = []string{"Endpoints", "Ports", "Labels"} // of an EndpointSlice
	}
	for _, name := range counted {
		if !equality.Semantic.DeepEqual(part(next, name), part(was, name)) {
			accessor(next).SetGeneration(accessor(next).GetGeneration() + 1)
			return
		}
	}
}

func validateLease(o runtime.Object) (errs field.ErrorList) {
	spec, at := o.(*coordinationv1.Lease).Spec, field.NewPath("spec") //nolint:forcetypeassert // the table says so
	if d := spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(at.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if n := spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(at.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	return errs
}

func fieldsOfNode(o runtime.Object) fields.Set {
	node := o.(*corev1.Node) //nolint:forcetypeassert // the table says so
	return fields.Set{"spec.unschedulable": strconv.FormatBool(node.Spec.Unschedulable)}
}

// prepareNode adds the taint that the admission plugin TaintNodesByCondition adds.
func prepareNode(o runtime.Object) {
	node := o.(*corev1.Node) //nolint:forcetypeassert // the table says so
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	for _, t := range node.Spec.Taints {
		if t.MatchTaint(&taint) {
			return
		}
	}
	node.Spec.Taints = append(node.Spec.Taints, taint)
}

func fieldsOfPod(o runtime.Object) fields.Set {
	p := o.(*corev1.Pod) //nolint:forcetypeassert // the table says so
	ip := ""
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	return fields.Set{
		"spec.nodeName": p.Spec.NodeName, "spec.restartPolicy": string(p.Spec.RestartPolicy),
		"spec.schedulerName": p.Spec.SchedulerName, "spec.serviceAccountName": p.Spec.ServiceAccountName,
		"spec.hostNetwork": strconv.FormatBool(p.Spec.HostNetwork), "status.phase": string(p.Status.Phase),
		"status.podIP": ip, "status.nominatedNodeName": p.Status.NominatedNodeName,
	}
}

// preparePod sets the phase, the default grace period, and the tolerations that the admission plugin DefaultTolerationSeconds
// adds. Deletions and evictions depend on these.
func preparePod(o runtime.Object) {
	p := o.(*corev1.Pod) //nolint:forcetypeassert // the table says so
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	if p.Spec.TerminationGracePeriodSeconds == nil {
		p.Spec.TerminationGracePeriodSeconds = seconds(corev1.DefaultTerminationGracePeriodSeconds)
	}
next:
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		for _, t := range p.Spec.Tolerations {
			if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
				continue next
			}
		}
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds(300),
		})
	}
}

func seconds(n int64) *int64 { return &n }

func fieldsOfNamespace(o runtime.Object) fields.Set {
	return fields.Set{"status.phase": string(o.(*corev1.Namespace).Status.Phase)} //nolint:forcetypeassert // the table says so
}

func prepareNamespace(o runtime.Object) {
	ns := o.(*corev1.Namespace) //nolint:forcetypeassert // the table says so
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

func fieldsOfService(o runtime.Object) fields.Set {
	s := o.(*corev1.Service) //nolint:forcetypeassert // the table says so
	return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
}

func fieldsOfEvent(o runtime.Object) fields.Set {
	e := o.(*corev1.Event) //nolint:forcetypeassert // the table says so
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	return fields.Set{
		"involvedObject.kind": e.InvolvedObject.Kind, "involvedObject.namespace": e.InvolvedObject.Namespace,
		"involvedObject.name": e.InvolvedObject.Name, "involvedObject.uid": string(e.InvolvedObject.UID),
		"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
		"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
		"involvedObject.fieldPath":       e.InvolvedObject.FieldPath,
		"reason":                         e.Reason, "reportingComponent": e.ReportingController, "source": source, "type": e.Type,
	}
}
