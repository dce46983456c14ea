package upgrade

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	// annotationProgram has kubelet start another container when the program changes.
	annotationProgram = "yurthub.openyurt.io/program"
	volumeProgram     = "program"
	// mountedProgram is where the Pod sees the node's program.
	mountedProgram = "/node-program/yurthub"
)

// podWith returns a static Pod that runs the node's program, by whose sum kubelet sees that it has changed. The image remains: it
// is what is around the program. The first line, by which the file is known, stays.
func podWith(manifest, binary, sum string) (string, error) {
	mark, _, _ := strings.Cut(manifest, "\n")
	if !strings.HasPrefix(mark, "#") {
		return "", errors.New("the static Pod's file does not begin with join's mark")
	}
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(manifest), &p); err != nil {
		return "", fmt.Errorf("the static Pod's file: %w", err)
	}
	if len(p.Spec.Containers) != 1 || len(p.Spec.Containers[0].Command) == 0 {
		return "", errors.New("the static Pod is not as join makes it: it has no single container with a command")
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[annotationProgram] = sum[:16]
	c := &p.Spec.Containers[0]
	if c.Command[0] != mountedProgram {
		c.Command[0] = mountedProgram
		file := corev1.HostPathFile
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volumeProgram, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: binary, Type: &file},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
			Name: volumeProgram, MountPath: mountedProgram, ReadOnly: true,
		})
	}
	content, err := yaml.Marshal(p)
	return mark + "\n" + string(content), err
}
