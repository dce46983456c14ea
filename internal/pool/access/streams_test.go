package access

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
)

func TestStreams(t *testing.T) {
	container := func(change func(*corev1.SecurityContext)) corev1.Container {
		c := corev1.Container{Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{}}
		change(c.SecurityContext)
		return c
	}
	plain := container(func(*corev1.SecurityContext) {})
	privileged := container(func(s *corev1.SecurityContext) { s.Privileged = ptr.To(true) })
	one := func(c corev1.Container) corev1.PodSpec { return corev1.PodSpec{Containers: []corev1.Container{c}} }
	with := func(change func(*corev1.PodSpec)) corev1.PodSpec {
		spec := one(plain)
		change(&spec)
		return spec
	}
	volume := func(source corev1.VolumeSource) corev1.PodSpec {
		return with(func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} })
	}
	pods := map[string]corev1.PodSpec{
		"plain":   one(plain),
		"root":    one(container(func(s *corev1.SecurityContext) { s.RunAsUser = ptr.To[int64](0) })),
		"secrets": volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}),
		"level": with(func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1,c2"}}
		}),
		"port": one(corev1.Container{Name: "c", Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}),

		"privileged": one(privileged),
		"initially":  with(func(s *corev1.PodSpec) { s.InitContainers = []corev1.Container{privileged} }),
		"ephemeral": with(func(s *corev1.PodSpec) {
			s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "e", SecurityContext: privileged.SecurityContext}}}
		}),
		"network":  with(func(s *corev1.PodSpec) { s.HostNetwork = true }),
		"pid":      with(func(s *corev1.PodSpec) { s.HostPID = true }),
		"ipc":      with(func(s *corev1.PodSpec) { s.HostIPC = true }),
		"hostpath": volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
		"admin": one(container(func(s *corev1.SecurityContext) {
			s.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}
		})),
		"proc":  one(container(func(s *corev1.SecurityContext) { s.ProcMount = ptr.To(corev1.UnmaskedProcMount) })),
		"super": one(container(func(s *corev1.SecurityContext) { s.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"} })),
	}
	read := func(_ context.Context, namespace, name string) (*corev1.Pod, error) {
		if name == "broken" {
			return nil, errors.New("etcd is gone")
		}
		spec, ok := pods[name]
		if !ok {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
		}
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}, nil
	}
	s := newStreams(read)
	if len(s.checks) != len(nodesOwn) {
		t.Fatalf("%d of %d checks exist", len(s.checks), len(nodesOwn))
	}
	operator := &user.DefaultInfo{Name: "alice", Groups: []string{edge.GroupOperators}}
	debugger := &user.DefaultInfo{Name: "bob", Groups: []string{edge.GroupDebuggers}}
	both := &user.DefaultInfo{Name: "carol", Groups: []string{edge.GroupOperators, edge.GroupDebuggers}}
	own := &user.DefaultInfo{Name: "system:apiserver", Groups: []string{user.SystemPrivilegedGroup}}
	asks := func(who user.Info, namespace, name, sub string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{
			User: who, Verb: "create", Namespace: namespace, Name: name, Resource: "pods", Subresource: sub,
			ResourceRequest: true,
		}
	}
	const deny, none = authorizer.DecisionDeny, authorizer.DecisionNoOpinion
	decides := func(what string, a authorizer.Attributes, want authorizer.Decision, says ...string) {
		t.Helper()
		got, why, err := s.Authorize(t.Context(), a)
		if err != nil {
			why = err.Error()
		}
		if got != want || want == none && why != "" {
			t.Errorf("%s: %v %q, want %v", what, got, why, want)
		}
		for _, text := range says {
			if !strings.Contains(why, text) {
				t.Errorf("%s: %q does not say %q", what, why, text)
			}
		}
	}
	for _, name := range []string{"plain", "root", "secrets", "level", "port", "missing"} {
		for _, sub := range streamTo {
			decides(name+" "+sub, asks(operator, "shop", name, sub), none)
		}
	}
	for name, says := range map[string]string{
		"privileged": "privileged", "initially": "privileged", "ephemeral": "privileged", "network": "host namespaces",
		"pid": "host namespaces", "ipc": "host namespaces", "hostpath": "hostPath volumes", "admin": "non-default capabilities",
		"proc": "procMount", "super": "seLinuxOptions",
	} {
		for _, sub := range streamTo {
			decides(name+" "+sub, asks(operator, "shop", name, sub), deny, says, edge.GroupDebuggers)
			decides(name+" debugged", asks(debugger, "shop", name, sub), none)
			decides(name+" debugged", asks(both, "shop", name, sub), none)
			decides(name+" by this process", asks(own, "shop", name, sub), none)
		}
		decides(name+"'s log", asks(operator, "shop", name, "log"), none)
		decides(name+" itself", asks(operator, "shop", name, ""), none)
	}
	decides("any of kube-system", asks(operator, edge.NamespaceSystem, "plain", "exec"), deny, "it is in kube-system")
	decides("none of kube-system", asks(operator, edge.NamespaceSystem, "missing", "exec"), deny, "it is in kube-system")
	decides("kube-system, debugged", asks(debugger, edge.NamespaceSystem, "plain", "exec"), none)
	decides("can-i", asks(operator, "shop", "", "exec"), none)
	decides("no answer", asks(operator, "shop", "broken", "exec"), deny, "read the Pod: etcd is gone")
	other := asks(operator, "shop", "privileged", "exec")
	other.APIGroup = "example.com"
	decides("another group's", other, none)
	decides("nobody's", asks(nil, "shop", "privileged", "exec"), none)
}
