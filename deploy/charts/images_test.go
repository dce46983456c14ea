package charts

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/cloudtest"
)

// TestImagesOfTheController: in kube-system coordinator-controller runs images of the chart's places, and pulls them with the
// chart's Secrets. The policy depends on values, so it is a template.
func TestImagesOfTheController(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	c := cloudtest.Client(t, cloudtest.As(cfg, "system:serviceaccount:kube-system:coordinator-controller", "system:masters"))
	out, err := template(t, append([]string{
		"--set", "image.mirrors={mirror.example.org/edge/},image.pullSecrets={registry}",
	}, required...)...)
	if err != nil {
		t.Fatal(err)
	}
	const own, mirror = "registry.example.org/edge/", "mirror.example.org/edge/"
	coordinators := coordinatorsPod(t, 0)
	pod := func(image string, secrets ...string) client.Object {
		return upgrader(func(p *corev1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.ImagePullSecrets = image, named(secrets)
		})
	}
	// Other tests share the API server, which takes up policies and their ends a little later.
	enforced := func(is bool) {
		cloudtest.Eventually(t, fmt.Sprintf("the policy is enforced: %t", is), func() error {
			if err := c.Create(t.Context(), pod("evil"), client.DryRunAll); (err != nil) != is {
				return fmt.Errorf("an image of elsewhere: %w", err)
			}
			return nil
		})
	}
	installed := 0
	for _, doc := range documents(t, out) {
		if o := parse(t, doc); o.GetName() == "controller-images.openyurt.io" {
			create(t, admin, o)
			defer func() {
				if err := admin.Delete(t.Context(), o); err != nil {
					t.Error(err)
				}
				enforced(false)
			}()
			installed++
		}
	}
	if installed != 2 {
		t.Fatalf("the chart has %d objects of the policy", installed)
	}
	workload := func(image string, secrets ...string) client.Object {
		return workload("kube-system", "yurt-coordinator-images", "yurt-coordinator", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec = *coordinators.DeepCopy()
			d.Spec.Template.Spec.Containers[0].Image = image
			d.Spec.Template.Spec.ImagePullSecrets = named(secrets)
		})
	}
	of := map[string]func(image string, secrets ...string) client.Object{"yurthub": pod, "yurt-coordinator": workload}
	enforced(true)
	for program, object := range of {
		for image, why := range map[string]string{
			own + program + ":v1":                "",
			own + program + "@sha256:0123":       "",
			mirror + program + ":v1@sha256:0123": "",
			own + program:                        "image.mirrors",
			own + program + "-evil:v1":           "image.mirrors",
			"evil.example.org/" + program + ":v": "image.mirrors",
			program + ":v1":                      "image.mirrors",
		} {
			expect(t, image, c.Create(t.Context(), object(image), client.DryRunAll), why)
		}
		image := own + program + ":v1"
		expect(t, program+" with the chart's Secret", c.Create(t.Context(), object(image, "registry"), client.DryRunAll), "")
		expect(t, program+" with another's Secret, too",
			c.Create(t.Context(), object(image, "registry", "cloud-credentials"), client.DryRunAll), "image.pullSecrets")
		mustAccept(t, "an administrator's", admin.Create(t.Context(), object("evil"), client.DryRunAll))
	}
	made := workload(own + "yurt-coordinator:v1")
	create(t, admin, made)
	t.Cleanup(func() { _ = admin.Delete(context.Background(), made) })
	scaled := made.(*appsv1.Deployment)
	scaled.Spec.Replicas = new(int32)
	mustAccept(t, "a workload that is scaled", c.Update(t.Context(), scaled, client.DryRunAll))
	scaled.Spec.Template.Spec.Containers[0].Image = "evil"
	mustRefuse(t, "one that gets another image", c.Update(t.Context(), scaled, client.DryRunAll), "image.mirrors")
}

func named(secrets []string) (all []corev1.LocalObjectReference) {
	for _, s := range secrets {
		all = append(all, corev1.LocalObjectReference{Name: s})
	}
	return all
}
