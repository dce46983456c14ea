package access

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/apis/core"

	"yurtcoordinator/internal/edge"
)

// Shown returns a function that removes from an object what a request's caller must not see; nil means that the caller sees all.
// Operators and this process see all. The form of the request makes no difference.
func Shown(ctx context.Context) func(runtime.Object) {
	caller, ok := request.UserFrom(ctx)
	if !ok || isOwn(caller) || slices.ContainsFunc(caller.GetGroups(), edge.IsOperators) {
		return nil
	}
	return outline
}

// outline leaves of a Pod only where it runs and how it is. Environment variables, arguments, commands, probes and hooks may have
// passwords, and annotations may repeat them. The message of an ended container may be the end of its log. The code lists what
// stays of the spec, so a field that Kubernetes adds stays hidden. Field selectors select before outline removes anything, but
// only by fields that stay.
func outline(object runtime.Object) {
	pod, ok := object.(*core.Pod)
	if !ok {
		return
	}
	pod.Annotations, pod.ManagedFields = nil, nil
	spec := pod.Spec
	pod.Spec = core.PodSpec{
		NodeName: spec.NodeName, ServiceAccountName: spec.ServiceAccountName, SchedulerName: spec.SchedulerName,
		RestartPolicy: spec.RestartPolicy, ReadinessGates: spec.ReadinessGates, SchedulingGates: spec.SchedulingGates,
		PriorityClassName: spec.PriorityClassName, Tolerations: spec.Tolerations,
	}
	if spec.SecurityContext != nil {
		pod.Spec.SecurityContext = &core.PodSecurityContext{HostNetwork: spec.SecurityContext.HostNetwork}
	}
	for _, c := range spec.InitContainers {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, outlineOf(c))
	}
	for _, c := range spec.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, outlineOf(c))
	}
	for _, c := range spec.EphemeralContainers {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, core.EphemeralContainer{
			EphemeralContainerCommon: core.EphemeralContainerCommon(outlineOf(core.Container(c.EphemeralContainerCommon))),
			TargetContainerName:      c.TargetContainerName,
		})
	}
	for _, all := range [][]core.ContainerStatus{
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for i := range all {
			all[i].VolumeMounts = nil
			withoutLastWords(&all[i].State)
			withoutLastWords(&all[i].LastTerminationState)
		}
	}
}

func outlineOf(c core.Container) core.Container {
	return core.Container{
		Name: c.Name, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, Ports: c.Ports, Resources: c.Resources,
		RestartPolicy: c.RestartPolicy,
	}
}

func withoutLastWords(s *core.ContainerState) {
	if s.Terminated != nil {
		s.Terminated.Message = ""
	}
	if s.Waiting != nil { // a runtime quotes the command that it can't start
		s.Waiting.Message = ""
	}
}
