package apiserver

import (
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

func TestKubernetesVersionIsTheReviewedOne(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	version, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(version)); got != reviewedVersion {
		t.Errorf("k8s.io/kubernetes is %s, this package was reviewed against %s. Compare, between the two versions: "+
			"pkg/controlplane/apiserver/{config,server}.go and pkg/controlplane/instance.go with apiserver.go here "+
			"(hooks, controllers, admission), and what plugin/pkg/auth/authorizer/node and "+
			"plugin/pkg/admission/noderestriction read of Pods and Nodes with slimPod and slimNode. Then set "+
			"reviewedVersion", got, reviewedVersion)
	}
}

func TestSlimPodKeepsWhatNamesOtherObjects(t *testing.T) {
	claim := "claim"
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "n", UID: "u",
			Labels:        map[string]string{"app": "x"},
			Annotations:   map[string]string{"big": strings.Repeat("x", 1000), corev1.MirrorPodAnnotationKey: "hash"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Spec: corev1.PodSpec{
			NodeName:           "node",
			ServiceAccountName: "account",
			ImagePullSecrets:   []corev1.LocalObjectReference{{Name: "pull"}},
			Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: "volume"},
			}}},
			Containers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{
				SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "env"}},
			}}}},
		},
		Status: corev1.PodStatus{
			Phase:                 corev1.PodRunning,
			Conditions:            []corev1.PodCondition{{Type: corev1.PodReady}},
			ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "r", ResourceClaimName: &claim}},
		},
	}
	object, err := slimPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	slim := object.(*corev1.Pod)
	secrets := sets.New[string]()
	podutil.VisitPodSecretNames(slim, func(name string) bool { secrets.Insert(name); return true })
	if !secrets.Equal(sets.New("pull", "volume", "env")) {
		t.Errorf("secrets named: %v", secrets.UnsortedList())
	}
	if slim.UID != types.UID("u") || slim.Spec.NodeName != "node" || slim.Spec.ServiceAccountName != "account" {
		t.Errorf("identity lost: %+v", slim)
	}
	if len(slim.Status.ResourceClaimStatuses) != 1 {
		t.Error("resource claims lost")
	}
	if _, mirror := slim.Annotations[corev1.MirrorPodAnnotationKey]; !mirror || len(slim.Annotations) != 1 {
		t.Errorf("annotations: %v", slim.Annotations)
	}
	if slim.Labels != nil || slim.ManagedFields != nil || slim.Status.Phase != "" || slim.Status.Conditions != nil {
		t.Errorf("kept what is not needed: %+v", slim)
	}
}

func TestSlimNode(t *testing.T) {
	object, err := slimNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"a": "b"}},
		Status:     corev1.NodeStatus{Images: make([]corev1.ContainerImage, 50)},
	})
	if err != nil {
		t.Fatal(err)
	}
	slim := object.(*corev1.Node)
	if slim.Name != "n" || slim.UID != "u" || slim.Labels != nil || slim.Status.Images != nil {
		t.Errorf("got %+v", slim)
	}
	if other, err := slimNode("a tombstone"); err != nil || other != "a tombstone" {
		t.Errorf("an object of another kind: %v, %v", other, err)
	}
}
