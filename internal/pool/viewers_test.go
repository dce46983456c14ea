package pool

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

// secret stands in everything of a Pod that only operators see.
const secret = "hunter2"

// tellingPod is a Pod with a secret in each part that may have one.
func tellingPod(t *testing.T) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := p.Unmarshal(pooltest.PodOf(t, "n1", "till", 10).Raw); err != nil {
		t.Fatal(err)
	}
	p.Labels = map[string]string{"app": "till"}
	p.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"env":"` + secret + `"}`, "kapp/original": secret}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"k:{\"name\":\"` + secret + `\"}":{}}}`),
	}}
	runs := &corev1.ExecAction{Command: []string{"check", secret}}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: runs}}
	asks := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
		HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: secret}},
	}}}
	container := func(name string) corev1.Container {
		return corev1.Container{
			Name: name, Image: "image-of-" + name, Command: []string{"run", secret}, Args: []string{secret},
			Env:           []corev1.EnvVar{{Name: "PASSWORD", Value: secret}},
			EnvFrom:       []corev1.EnvFromSource{{Prefix: secret}},
			LivenessProbe: probe, ReadinessProbe: asks, StartupProbe: probe,
			Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: runs}},
		}
	}
	p.Spec.InitContainers = []corev1.Container{container("init")}
	p.Spec.Containers = []corev1.Container{container("main")}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon(container("debugger")), TargetContainerName: "main",
	}}
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: "csi", VolumeAttributes: map[string]string{"password": secret},
	}}}}
	last := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", Message: secret}}
	said := func(name string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: name, RestartCount: 3, State: last, LastTerminationState: last}}
	}
	p.Status.InitContainerStatuses, p.Status.ContainerStatuses = said("init"), said("main")
	p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{
		Name: "debugger", VolumeMounts: []corev1.VolumeMountStatus{{Name: "v", MountPath: secret}},
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: secret}},
	}}
	return p
}

// TestAViewerSeesPodsInOutline, however he asks; an operator sees all.
func TestAViewerSeesPodsInOutline(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	one := c.hub(t, "n1")
	one.Ask()
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.AsObject(t, tellingPod(t))))
	vera, alice := c.http(t, c.certificate(t, pooltest.Viewer())), c.http(t, c.certificate(t, pooltest.Operator()))

	const pods, till = "/api/v1/pods", "/api/v1/namespaces/shop/pods/till"
	const asTable = ";as=Table;g=meta.k8s.io;v=v1"
	asks := map[string]struct{ path, accept string }{
		"get":                        {till, "application/json"},
		"get, YAML":                  {till, "application/yaml"},
		"get, protobuf":              {till, "application/vnd.kubernetes.protobuf"},
		"get, CBOR":                  {till, "application/cbor, application/json"},
		"get, a Table with objects":  {till + "?includeObject=Object", "application/json" + asTable},
		"get, metadata":              {till, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
		"list":                       {pods, "application/json"},
		"list of a namespace":        {"/api/v1/namespaces/shop/pods?limit=1", "application/json"},
		"list, any revision":         {pods + "?resourceVersion=0", "application/vnd.kubernetes.protobuf"},
		"list by a field":            {pods + "?fieldSelector=spec.nodeName%3Dn1", "application/json"},
		"list by a name":             {pods + "?fieldSelector=metadata.name%3Dtill", "application/yaml"},
		"list by a label":            {pods + "?labelSelector=app", "application/vnd.kubernetes.protobuf"},
		"list, a Table with objects": {pods + "?includeObject=Object", "application/json" + asTable},
		"list, a Table by a field": {
			pods + "?includeObject=Object&fieldSelector=status.phase%3DRunning", "application/json" + asTable,
		},
		"list, metadata":  {pods, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
		"watch":           {pods + "?watch=1&timeoutSeconds=1", "application/json"},
		"watch, protobuf": {pods + "?watch=1&timeoutSeconds=1", "application/vnd.kubernetes.protobuf;stream=watch"},
		"watch a list": {
			pods + "?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
			"application/json",
		},
		"watch, the old path": {"/api/v1/watch/pods?timeoutSeconds=1", "application/json"},
		"watch, a Table": {
			pods + "?watch=1&timeoutSeconds=1&includeObject=Object", "application/json" + asTable,
		},
	}
	for what, ask := range asks {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			got := map[string]string{}
			for who, client := range map[string]*http.Client{"vera": vera, "alice": alice} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+c.address+ask.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Accept", ask.accept)
				response, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				content, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				code, body := response.StatusCode, string(content)
				if code != http.StatusOK || !strings.Contains(body, "till") {
					t.Fatalf("%s gets %d %.300q", who, code, body)
				}
				got[who] = body
			}
			if strings.Contains(got["vera"], secret) {
				t.Errorf("a viewer is told a secret: %q", got["vera"])
			}
			if !strings.Contains(got["alice"], secret) {
				t.Errorf("an operator does not see all: %q", got["alice"])
			}
		})
	}

	seen, err := c.as(t, pooltest.Viewer()).CoreV1().Pods("shop").Get(t.Context(), "till", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if seen.Spec.NodeName != "n1" || len(seen.Spec.InitContainers) != 1 || len(seen.Spec.EphemeralContainers) != 1 ||
		seen.Spec.Containers[0].Image != "image-of-main" || seen.Status.Phase != corev1.PodRunning ||
		seen.Status.ContainerStatuses[0].RestartCount != 3 || seen.Labels["app"] != "till" ||
		seen.Status.ContainerStatuses[0].State.Terminated.Reason != "Error" {
		t.Errorf("a viewer does not see where a Pod runs and how it is: %+v", seen)
	}
	stored, err := c.as(t, pooltest.Operator()).CoreV1().Pods("shop").Get(t.Context(), "till", metav1.GetOptions{})
	if err != nil || stored.Spec.Containers[0].Env[0].Value != secret {
		t.Errorf("a look changed the Pod: %+v, %v", stored, err)
	}
}

// TestAViewerOnlyLooks: whatever is not listed for viewers is refused.
func TestAViewerOnlyLooks(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "denied")
	tell(t, file, "")
	c := start(t, func(config *Config) { config.DeniedUsersFile = file })
	one := c.hub(t, "n1")
	one.Ask()
	one.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n1", 5)))
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "till", 10)))
	one.Must(pooltest.KindEvent, pooltest.Put(pooltest.EventOf(t, "n1", "till", 30)))
	vera := c.http(t, c.certificate(t, pooltest.Viewer()))

	// Of NodePools none has come: 503.
	answers := []int{http.StatusOK, http.StatusNotFound, http.StatusServiceUnavailable}
	looks := map[string]bool{
		"nodes": true, "namespaces": true, "events": true, "pods": true, "leases": true, "nodepools": true,
	}
	_, served, err := c.as(t, pooltest.Viewer()).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	matrix, err := os.ReadFile("../../docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range served {
		prefix := "/apis/" + list.GroupVersion
		if list.GroupVersion == "v1" {
			prefix = "/api/v1"
		}
		for _, r := range list.APIResources {
			if !strings.Contains(string(matrix), "`"+r.Name) {
				t.Errorf("the table of who may do what in docs/threat-model.md lacks %s", r.Name)
			}
			at := prefix
			if r.Namespaced {
				at += "/namespaces/shop"
			}
			resource, sub, _ := strings.Cut(r.Name, "/")
			name := at + "/" + resource + "/x"
			if sub != "" {
				name += "/" + sub
			}
			reads := looks[r.Name] && list.GroupVersion != "metrics.k8s.io/v1beta1"
			for _, verb := range r.Verbs {
				method, path := http.MethodGet, name
				switch verb {
				case "list":
					path = at + "/" + resource
				case "watch":
					path = at + "/" + resource + "?watch=1&timeoutSeconds=1"
				case "create":
					method, path = http.MethodPost, at+"/"+resource
					if sub != "" {
						path = name
					}
				case "update":
					method = http.MethodPut
				case "patch":
					method = http.MethodPatch
				case "delete":
					method = http.MethodDelete
				case "deletecollection":
					method, path = http.MethodDelete, at+"/"+resource
				}
				code := c.ask(t, vera, method, path, nil)
				want := []int{http.StatusForbidden}
				if reads && method == http.MethodGet {
					want = answers
				}
				if !slices.Contains(want, code) {
					t.Errorf("%s %s (%s %s): %d", verb, r.Name, method, path, code)
				}
			}
		}
	}
	for path, want := range map[string]int{
		"/ui/": 200, "/ui/live": 200, "/version": 200, "/api": 200, "/healthz": 200,
		"/metrics": 403, "/metrics/slis": 403, edge.PathLinks: 403, edge.PathMirror: 403, edge.PathOwn: 403, edge.PathState: 403,
		"/debug/pprof/heap":                     403,
		"/api/v1/namespaces/shop/pods/till/log": 403, "/api/v1/namespaces/shop/pods/till/proxy/": 403,
		"/api/v1/namespaces/shop/pods/till/status": 403, "/api/v1/namespaces/shop/pods/till/ephemeralcontainers": 403,
		"/api/v1/namespaces/shop/pods/till/exec?command=id&stdout=1": 403, "/api/v1/namespaces/shop/pods/till/attach": 403,
		"/api/v1/namespaces/shop/pods/till/portforward?ports=80": 403, "/api/v1/nodes/n1/proxy/pods": 403,
		"/apis/metrics.k8s.io/v1beta1/pods": 403,
	} {
		if code, body := c.get(t, vera, path); code != want {
			t.Errorf("%s: %d %.200s, want %d", path, code, body, want)
		}
	}
	if _, body := c.get(t, vera, "/api/v1/configmaps"); !strings.Contains(body, edge.GroupOperators) {
		t.Errorf("the refusal does not say what it takes: %s", body)
	}

	tell(t, file, "vera\n")
	allowed(t, "a viewer who is denied sees nothing", eventually(t.Context(), func() error {
		for _, path := range []string{"/ui/", "/api/v1/pods", "/version"} {
			if code, body := c.get(t, vera, path); code != http.StatusForbidden || !strings.Contains(body, "withdrawn") {
				return errors.New(path + ": " + body)
			}
		}
		return nil
	}))
}
