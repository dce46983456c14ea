package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/pod-security-admission/policy"

	"yurtcoordinator/internal/edge"
)

// streamTo are the subresources of a Pod that let a caller act inside it.
var streamTo = []string{"exec", "attach", "portforward"}

// nodesOwn are the checks of Kubernetes' Pod Security Standards that a Pod fails if it can act on its node. The baseline's other
// checks are about something else.
var nodesOwn = []policy.CheckID{
	"privileged", "hostNamespaces", "hostPathVolumes", "capabilities_baseline", "procMount", "windowsHostProcess",
	"seLinuxOptions",
}

// podReadTimeout bounds the one read that a decision needs, from this process's memory.
const podReadTimeout = 5 * time.Second

// Pods reads one Pod. The error of one that is missing is a NotFound.
type Pods func(ctx context.Context, namespace, name string) (*corev1.Pod, error)

// streams keeps operators out of Pods that are part of their node: those in kube-system, and those that can act on the node. A
// person who enters such a Pod is root on the node, and could take the node's identity. The group edge.GroupDebuggers may
// enter.
type streams struct {
	pods   Pods
	checks []policy.Check
}

func newStreams(pods Pods) streams {
	var checks []policy.Check
	for _, c := range policy.DefaultChecks() {
		if slices.Contains(nodesOwn, c.ID) {
			checks = append(checks, c)
		}
	}
	return streams{pods: pods, checks: checks}
}

// Authorize implements authorizer.Authorizer.
func (s streams) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	caller := a.GetUser()
	if caller == nil || isOwn(caller) || !isStream(a) || slices.Contains(caller.GetGroups(), edge.GroupDebuggers) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if a.GetNamespace() == edge.NamespaceSystem {
		return refuse(refusal("it is in " + edge.NamespaceSystem))
	}
	reading, cancel := context.WithTimeout(ctx, podReadTimeout)
	defer cancel()
	pod, err := s.pods(reading, a.GetNamespace(), a.GetName())
	switch {
	case apierrors.IsNotFound(err):
		return authorizer.DecisionNoOpinion, "", nil // whoever may ask is told so
	case err != nil:
		return authorizer.DecisionDeny, "", fmt.Errorf("read the Pod: %w", err)
	}
	if why := s.actsOnNode(pod); why != "" {
		return refuse(refusal(why))
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// actsOnNode returns how a Pod can act on its node, or nothing.
func (s streams) actsOnNode(pod *corev1.Pod) string {
	var found []string
	for _, c := range s.checks {
		latest := c.Versions[len(c.Versions)-1]
		if result := latest.CheckPod(&pod.ObjectMeta, &pod.Spec); !result.Allowed {
			found = append(found, result.ForbiddenReason)
		}
	}
	return strings.Join(found, ", ")
}

// refuse denies a request.
func refuse(why string) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, why, nil
}

func refusal(why string) string {
	return fmt.Sprintf("this Pod can act on its node (%s); %s", why, HintDebug)
}

func isStream(a authorizer.Attributes) bool {
	// Without a name, somebody asks whether there is the right at all: kubectl auth can-i.
	return a.IsResourceRequest() && a.GetAPIGroup() == "" && a.GetResource() == "pods" && a.GetName() != "" &&
		slices.Contains(streamTo, a.GetSubresource())
}

// isOwn reports whether the caller is this process. Nobody else keeps the group: see withoutMasters.
func isOwn(caller user.Info) bool {
	return slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup)
}

func isNodes(caller user.Info) bool { return slices.Contains(caller.GetGroups(), edge.GroupNodes) }

// ReadPods returns Pods that reads through a client.
func ReadPods(client corev1client.PodsGetter) Pods {
	return func(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
		return client.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	}
}
