package model

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"
)

// optimisticLock is kube-apiserver's message in a conflict.
const optimisticLock = "the object has been modified; please apply your changes to the latest version and try again"

func (c *call) dryRun() bool {
	return slices.Equal(c.URL.Query()["dryRun"], []string{metav1.DryRunAll})
}

// commit stores the next state of an object; in a dry run it only returns what it would store. It returns nil if another write
// came first.
func (s *Server) commit(c *call, was *change, next runtime.Object) (*change, error) {
	o := next
	if !c.custom {
		data, err := runtime.Encode(storedAs.Serializer, next) // what is stored has no empty lists and maps
		if err != nil {
			return nil, err
		}
		if o, _, err = storedAs.Serializer.Decode(data, nil, c.new("")); err != nil {
			return nil, err
		}
	}
	n := change{resource: c.resource.GroupResource(), path: c.path, object: o}
	if c.dryRun() {
		return &n, nil
	}
	return s.store.commit(was, n), nil
}

// storedAs is how kube-apiserver stores objects. It is a constant.
var storedAs, _ = runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)

// remove commits the deletion of an object, with the object's last state. It returns false if another write came first.
func (s *Server) remove(c *call, was *change, last runtime.Object) bool {
	return c.dryRun() ||
		s.store.commit(was, change{resource: was.resource, path: was.path, object: last, deleted: true}) != nil
}

func (s *Server) create(c *call) error {
	if c.info.Name != "" || c.info.Subresource != "" {
		return apierrors.NewMethodNotSupported(c.resource.GroupResource(), "create")
	}
	o, err := c.body()
	if err != nil {
		return err
	}
	if m := accessor(o); m.GetName() == "" && m.GetGenerateName() != "" {
		name, err := s.generated(m.GetGenerateName())
		if err != nil {
			return err
		}
		m.SetName(name)
	}
	c.path = c.kind.path(c.info.Namespace, accessor(o).GetName())
	if err := s.born(c, o); err != nil {
		return err
	}
	if accessor(o).GetResourceVersion() != "" {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "resourceVersion should not be set on objects to be created",
		}}
	}
	made, err := s.commit(c, nil, o)
	if err != nil {
		return err
	}
	if made == nil {
		return apierrors.NewAlreadyExists(c.resource.GroupResource(), accessor(o).GetName())
	}
	return c.answer(http.StatusCreated, made.object)
}

// born makes a client's object ready for creation. It sets the metadata that only the server may set, asks admission, and
// validates the object.
func (s *Server) born(c *call, o runtime.Object) error {
	m := accessor(o)
	if err := c.place(m); err != nil {
		return err
	}
	if !c.clusterScoped && s.store.live(namespaces, c.info.Namespace) == nil {
		return apierrors.NewNotFound(namespaces, c.info.Namespace)
	}
	uid, err := s.uid()
	if err != nil {
		return err
	}
	m.SetUID(uid)
	m.SetCreationTimestamp(s.now())
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetManagedFields(nil)
	m.SetSelfLink("")
	m.SetGeneration(0)
	if c.generation {
		m.SetGeneration(1)
	}
	if c.prepare != nil {
		c.prepare(o)
	}
	if err := s.admit(c, o, nil, admission.Create); err != nil {
		return err
	}
	return c.valid(o, validation.ValidateObjectMetaAccessor(m, !c.clusterScoped, validation.NameIsDNSSubdomain,
		field.NewPath("metadata")))
}

var namespaces = corev1.Resource("namespaces") // a constant

// place makes sure that an object has the namespace and the name of the request. It sets the namespace if the object has none.
func (c *call) place(m metav1.Object) error {
	if !c.clusterScoped && m.GetNamespace() == "" {
		m.SetNamespace(c.info.Namespace)
	}
	if m.GetNamespace() != c.info.Namespace && !c.clusterScoped {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if c.info.Name != "" && m.GetName() != c.info.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)",
			m.GetName(), c.info.Name))
	}
	return nil
}

func (c *call) valid(o runtime.Object, errs field.ErrorList) error {
	if c.validate != nil {
		errs = append(errs, c.validate(o)...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(c.GroupKind(), accessor(o).GetName(), errs)
	}
	return nil
}

// admit asks admission, which may change the object.
func (s *Server) admit(c *call, o, was runtime.Object, op admission.Operation) error {
	if s.cfg.Admission == nil || !s.cfg.Admission.Handles(op) {
		return nil
	}
	name := c.info.Name
	if o != nil {
		name = accessor(o).GetName()
	}
	a := admission.NewAttributesRecord(o, was, c.GroupVersionKind, c.info.Namespace, name, c.resource,
		c.info.Subresource, op, nil, c.dryRun(), c.user)
	objects := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	if m, ok := s.cfg.Admission.(admission.MutationInterface); ok {
		if err := m.Admit(c.Context(), a, objects); err != nil {
			return err
		}
	}
	if v, ok := s.cfg.Admission.(admission.ValidationInterface); ok {
		return v.Validate(c.Context(), a, objects)
	}
	return nil
}

func (s *Server) update(c *call) error {
	sent, err := c.body()
	if err != nil {
		return err
	}
	if err := c.place(accessor(sent)); err != nil {
		return err
	}
	return s.change(c, c.createdByUpdate && c.info.Subresource == "",
		func(runtime.Object) (runtime.Object, error) { return sent.DeepCopyObject(), nil })
}

func (s *Server) patch(c *call) error {
	patch, err := io.ReadAll(c.Body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	mediaType, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type")) // "" is unsupported, too
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	var apply func(old []byte) ([]byte, error)
	switch of := types.PatchType(mediaType); {
	case of == types.JSONPatchType:
		p, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		apply = p.Apply
	case of == types.MergePatchType:
		apply = func(old []byte) ([]byte, error) { return jsonpatch.MergePatch(old, patch) }
	case of == types.StrategicMergePatchType && !c.custom:
		apply = func(old []byte) ([]byte, error) { return strategicpatch.StrategicMergePatch(old, patch, c.new("")) }
	default:
		return negotiation.NewUnsupportedMediaTypeError([]string{
			string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType),
		})
	}
	return s.change(c, false, func(was runtime.Object) (runtime.Object, error) {
		old, err := runtime.Encode(info.Serializer, was)
		if err != nil {
			return nil, err
		}
		data, err := apply(old)
		switch {
		case errors.Is(err, jsonpatch.ErrTestFailed):
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", c.resource.GroupResource(), "",
				err.Error(), 0, false)
		case err != nil:
			return nil, apierrors.NewBadRequest(err.Error())
		}
		o, err := c.decode(info.Serializer, data)
		if err != nil {
			return nil, err
		}
		return o, c.place(accessor(o))
	})
}

// change replaces the request's object by the result of the function next, and answers the request. If another write comes first,
// change calls next again, with the newer state. If creates is true and there is no object, change creates the result of
// next(nil).
func (s *Server) change(c *call, creates bool, next func(was runtime.Object) (runtime.Object, error)) error {
	for {
		was := s.store.live(c.resource.GroupResource(), c.path)
		if was == nil && !creates {
			return apierrors.NewNotFound(c.resource.GroupResource(), c.info.Name)
		}
		if was == nil {
			o, err := next(nil)
			if err != nil {
				return err
			}
			if err := c.sameUID(accessor(o).GetUID(), ""); err != nil {
				return err
			}
			if err := s.born(c, o); err != nil {
				return err
			}
			if made, err := s.commit(c, nil, o); made != nil || err != nil {
				return c.answerChange(http.StatusCreated, made, err)
			}
			continue
		}
		o, err := next(was.object)
		if err != nil {
			return err
		}
		if err := s.changed(c, o, was.object); err != nil {
			return err
		}
		if m := accessor(o); m.GetDeletionTimestamp() != nil && len(m.GetFinalizers()) == 0 &&
			(m.GetDeletionGracePeriodSeconds() == nil || *m.GetDeletionGracePeriodSeconds() == 0) {
			// As in kube-apiserver, watches see what was stored last, and the answer is what was sent, of that revision.
			if s.remove(c, was, was.object.DeepCopyObject()) {
				return c.answer(http.StatusOK, o)
			}
			continue
		}
		if equality.Semantic.DeepEqual(o, was.object) {
			return c.answer(http.StatusOK, was.object)
		}
		if made, err := s.commit(c, was, o); made != nil || err != nil {
			return c.answerChange(http.StatusOK, made, err)
		}
	}
}

func (c *call) answerChange(code int, made *change, err error) error {
	if err != nil {
		return err
	}
	return c.answer(code, made.object)
}

func (c *call) conflict(message string) error {
	return apierrors.NewConflict(c.resource.GroupResource(), c.info.Name, errors.New(message))
}

// sameUID refuses a write that is meant for another object of the same name, as the storage of kube-apiserver does.
func (c *call) sameUID(sent, has types.UID) error {
	if sent == "" || sent == has {
		return nil
	}
	return c.conflict(storage.NewInvalidObjError("/registry/"+c.resource.Resource+"/"+c.path,
		fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", sent, has)).Error())
}

// changed checks an object that replaces another, and sets the fields that only the server may set.
func (s *Server) changed(c *call, o, was runtime.Object) error {
	m, old := accessor(o), accessor(was)
	if c.info.Verb == "update" {
		if err := c.sameUID(m.GetUID(), old.GetUID()); err != nil {
			return err
		}
	}
	if m.GetUID() == "" {
		m.SetUID(old.GetUID())
	}
	switch {
	case m.GetResourceVersion() == "" && c.needsRevision:
		return apierrors.NewInvalid(schema.GroupKind{Group: c.resource.Group, Kind: c.resource.Resource},
			c.info.Name, field.ErrorList{field.Invalid(
				field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update")})
	case m.GetResourceVersion() == "":
		m.SetResourceVersion(old.GetResourceVersion())
	case m.GetResourceVersion() != old.GetResourceVersion():
		return c.conflict(optimisticLock)
	}
	m.SetCreationTimestamp(old.GetCreationTimestamp())
	m.SetDeletionTimestamp(old.GetDeletionTimestamp())
	m.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	m.SetGeneration(old.GetGeneration())
	m.SetManagedFields(nil)
	m.SetSelfLink("")
	c.keep(o, was, c.info.Subresource)
	if err := s.admit(c, o, was, admission.Update); err != nil {
		return err
	}
	if c.generation {
		c.count(o, was)
	}
	return c.valid(o, validation.ValidateObjectMetaAccessorUpdate(m, old, field.NewPath("metadata")))
}

func (s *Server) delete(c *call) error {
	options, err := c.deleteOptions()
	if err != nil {
		return err
	}
	for {
		was := s.store.live(c.resource.GroupResource(), c.path)
		if was == nil {
			return apierrors.NewNotFound(c.resource.GroupResource(), c.info.Name)
		}
		if err := c.precondition(options.Preconditions, accessor(was.object)); err != nil {
			return err
		}
		if err := s.admit(c, nil, was.object, admission.Delete); err != nil {
			return err
		}
		o := was.object.DeepCopyObject()
		m := accessor(o)
		if c.graceful {
			s.shorten(o.(*corev1.Pod), options.GracePeriodSeconds) //nolint:forcetypeassert // only Pods are graceful
		}
		if len(m.GetFinalizers()) > 0 && m.GetDeletionTimestamp() == nil {
			now := s.now()
			m.SetDeletionTimestamp(&now)
			m.SetDeletionGracePeriodSeconds(seconds(0))
			if m.GetGeneration() > 0 {
				m.SetGeneration(m.GetGeneration() + 1)
			}
		}
		waits := len(m.GetFinalizers()) > 0 || m.GetDeletionGracePeriodSeconds() != nil && *m.GetDeletionGracePeriodSeconds() > 0
		if !equality.Semantic.DeepEqual(o, was.object) {
			if was, err = s.commit(c, was, o); err != nil {
				return err
			}
			if was == nil {
				continue
			}
		}
		if waits {
			return c.answer(http.StatusOK, was.object)
		}
		last := was.object.DeepCopyObject()
		if !s.remove(c, was, last) {
			continue
		}
		if c.answersObject {
			return c.answer(http.StatusOK, last)
		}
		return c.answer(http.StatusOK, &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{
				Name: c.info.Name, Group: c.resource.Group, Kind: c.resource.Resource, UID: m.GetUID(),
			},
		})
	}
}

func (c *call) deleteOptions() (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	data, err := io.ReadAll(c.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(data) == 0 {
		query := c.URL.Query()
		err = metav1.Convert_url_Values_To_v1_DeleteOptions(&query, options, nil)
	} else {
		var info runtime.SerializerInfo
		if info, err = negotiation.NegotiateInputSerializer(c.Request, false, c.codecs()); err != nil {
			return nil, err
		}
		gvk := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
		_, _, err = info.Serializer.Decode(data, &gvk, options)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return options, nil
}

func (c *call) precondition(p *metav1.Preconditions, m metav1.Object) error {
	if p == nil {
		return nil
	}
	if p.UID != nil && *p.UID != m.GetUID() {
		return c.conflict(fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", *p.UID, m.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != m.GetResourceVersion() {
		return c.conflict(fmt.Sprintf(
			"Precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s",
			*p.ResourceVersion, m.GetResourceVersion()))
	}
	return nil
}

// shorten begins a Pod's grace period, or shortens the present one. asked is in seconds; nil means the Pod's own period.
func (s *Server) shorten(p *corev1.Pod, asked *int64) {
	now := s.now()
	if begun := p.DeletionGracePeriodSeconds; p.DeletionTimestamp != nil {
		if asked == nil || begun == nil || *asked >= *begun {
			return
		}
		end := metav1.NewTime(p.DeletionTimestamp.Add(time.Duration(*asked-*begun) * time.Second))
		period := *asked
		if end.Before(&now) {
			end = now
			if period != 0 {
				period = 1
			}
		}
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &end, &period
		return
	}
	period := int64(0)
	switch {
	case p.Spec.NodeName == "" || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
	case asked != nil:
		period = *asked
	case p.Spec.TerminationGracePeriodSeconds != nil:
		period = *p.Spec.TerminationGracePeriodSeconds
	}
	if period < 0 {
		period = 1
	}
	end := metav1.NewTime(now.Add(time.Duration(period) * time.Second))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &end, &period
	p.Generation++
}
