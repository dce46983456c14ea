package plugin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// planted are secrets in every form in which one may stand where a bundle looks.
var planted = map[string]string{
	"a ServiceAccount's token": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJlLW9mLXRva2Vu",
	"a private key":            "-----BEGIN EC PRIVATE KEY-----\nPlantedPlanted\nPlantedToo\n-----END EC PRIVATE KEY-----",
	"a key cut off":            "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANPlantedAndCutOff",
	"a key in a log":           "2026-11-26T02:43:18Z -----BEGIN PRIVATE KEY-----\n2026-11-26T02:43:18Z MIIEvQIBPlantedInALog\n",
	"the end of a key":         "2026-11-26T02:43:18.2Z MIIEvQPlantedAtTheEnd\n2026-11-26T02:43:18.3Z -----END PRIVATE KEY-----",
	"a kubeconfig's key":       "LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tUGxhbnRlZA==",
	"a bootstrap token":        "abcdef.0123456789abcdef",
	"a header":                 "Authorization: Bearer plantedopaquetoken",
	"a URL":                    "https://proxyuser:plantedproxypass@proxy.example:3128",
	"a flag":                   "--token=plantedflagtoken",
	"a compact setting":        `{"token":"planted pass word"}`,
	"a quoted setting":         `\"token\": \"planted pass word\"`,
	"a setting":                `"password": "planted pass word"`,
	"an option":                "api_key: plantedapikey",
}

// needles are the parts of them that nobody may find.
var needles = []string{
	"c2lnbmF0dXJlLW9mLXRva2Vu", "PlantedPlanted", "PlantedToo", "PlantedAndCutOff", "RUMgUFJJVkFURS", "UGxhbnRlZA",
	"0123456789abcdef", "plantedopaquetoken", "plantedproxypass", "plantedflagtoken", "planted pass word", "plantedapikey",
	"planted without a form", "PlantedInALog", "PlantedAtTheEnd",
}

// TestBundleHasNoSecrets plants secrets wherever the bundle looks, and finds none in it, and nobody has read a Secret.
func TestBundleHasNoSecrets(t *testing.T) {
	var everything []string
	for _, secret := range planted {
		everything = append(everything, "said "+secret)
	}
	slices.Sort(everything) // the key that is cut off must not hide what comes after it
	i := slices.IndexFunc(everything, func(s string) bool { return strings.Contains(s, "CutOff") })
	everything = append(slices.Delete(slices.Clone(everything), i, i+1), everything[i])
	evil := strings.Join(everything, "\n")

	all := world()
	for _, o := range all {
		switch o := o.(type) {
		case *corev1.Node:
			o.Annotations = map[string]string{
				"k3s.io/node-args": "planted without a form", edge.AnnotationSettings: evil,
				corev1.LastAppliedConfigAnnotation: "planted without a form",
			}
			o.Labels["example.com/x"] = "planted without a form"
			o.Status.Conditions[0].Message = evil
		case *v1alpha1.YurtCoordinator:
			o.Status.Conditions[0].Message = evil
		}
	}
	pod := func(name, app, pool string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: name, Labels: map[string]string{
				edge.LabelApp: app, edge.LabelNodePool: pool, "x": "planted without a form",
			}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Args: []string{evil}, Env: []corev1.EnvVar{{Name: "X", Value: "planted without a form"}},
			}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", RestartCount: 1}}},
		}
	}
	all = append(all,
		pod("yurt-coordinator-a-1", edge.AppCoordinator, "a"), pod("yurt-coordinator-b-1", edge.AppCoordinator, "b"),
		pod("coordinator-controller-1", "coordinator-controller", ""),
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: edge.PoolName("a").KubeconfigSecret()},
			Data:       map[string][]byte{"kubeconfig": []byte("planted without a form")},
		},
		&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e1"}, Message: evil, Reason: "Happened",
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "a1"},
		},
	)
	s := aServer(t, all...)
	settings := &unstructured.Unstructured{}
	settings.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PoolSettings"))
	settings.SetName("s")
	settings.SetAnnotations(map[string]string{"x/y": "planted without a form"})
	// By its kind the tracker would take the resource for poolsettingses.
	if err := s.dynamic.Tracker().Create(poolSettings, settings, ""); err != nil {
		t.Fatal(err)
	}
	s.kube.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "log" {
			return false, nil, nil
		}
		return true, &runtime.Unknown{Raw: []byte("began\n" + evil)}, nil
	})
	files, lacks := bundled(t, s.Reader, "a")
	if len(lacks) > 0 {
		t.Errorf("left out: %q", lacks)
	}
	for name, text := range files {
		for _, needle := range needles {
			if strings.Contains(text, needle) {
				t.Errorf("%s has %q:\n%s", name, needle, text)
			}
		}
		harmless := []string{"README.txt", "leases.yaml", "nodepool.yaml", "status.txt"}
		if !slices.Contains(harmless, name) && !strings.Contains(text, leftOut) {
			t.Errorf("nothing is left out of %s, in which there were secrets:\n%s", name, text)
		}
	}
	for name, has := range map[string]string{
		"README.txt": "events.yaml", "status.txt": "a1", "nodepool.yaml": "readyNodeNum: 3",
		"yurtcoordinators.yaml": "nodePool: a", "poolsettings.yaml": "kind: PoolSettings",
		"leases.yaml":   "name: yurt-coordinator-a",
		"nodes/a2.yaml": "kind: Node", "nodes/a2.txt": "Delegated", "pods/yurt-coordinator-a-1.yaml": "kind: Pod",
		"pods/coordinator-controller-1.yaml": "kind: Pod", "events.yaml": "reason: Happened",
		"logs/yurt-coordinator-a-1-c.log": "began", "logs/yurt-coordinator-a-1-c-before.log": "began",
		"logs/coordinator-controller-1-c.log": "began",
	} {
		if !strings.Contains(files[name], has) {
			t.Errorf("%s lacks %q:\n%s", name, has, files[name])
		}
	}
	for name := range files {
		if strings.Contains(name, "b1") || strings.Contains(name, "coordinator-b") {
			t.Errorf("%s is another pool's", name)
		}
	}
	for _, got := range s.asked() {
		if strings.Contains(got, "secrets") {
			t.Errorf("it asked to %s", got)
		}
	}
}

// A bundle is written whatever can't be read, and says so; on site, too.
func TestBundleLacks(t *testing.T) {
	s := aServer(t, world()...)
	s.kube.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("no"))
	})
	files, lacks := bundled(t, s.Reader, "a")
	if len(lacks) != 5 || !strings.Contains(lacks[0], "Events about Nodes") || !strings.Contains(files["README.txt"], lacks[0]) ||
		!strings.Contains(files["nodes/a1.txt"], "heartbeat") {
		t.Errorf("left out: %q\n%s", lacks, files["README.txt"])
	}
	s = aServer(t, world()...)
	s.Within = "a"
	files, lacks = bundled(t, s.Reader, "a")
	if len(lacks) > 0 || !strings.Contains(files["leases.yaml"], "name: a1") ||
		!strings.Contains(files["README.txt"], "its coordinator") {
		t.Errorf("on site: left out %q\n%s", lacks, files["leases.yaml"])
	}
	if _, err := s.Bundle(t.Context(), "nowhere", io.Discard, noon); err == nil {
		t.Error("a bundle of a pool that is not there")
	}
}

// TestBundleReadsAPoolOnce: its requests that return more than one node's do not grow with its nodes.
func TestBundleReadsAPoolOnce(t *testing.T) {
	for _, within := range []edge.PoolName{"", "a"} {
		s := aServer(t, world()...)
		s.Within = within
		files, _ := bundled(t, s.Reader, "a")
		if !strings.Contains(files["nodes/a3.txt"], "heartbeat") {
			t.Errorf("within %q: of a node it says %q", within, files["nodes/a3.txt"])
		}
		lists := map[string]int{}
		for _, what := range s.asked() {
			lists[what]++
		}
		for _, what := range []string{"list configmaps", "list leases", "list nodes", "list yurtcoordinators"} {
			if lists[what] > 2 { // for the pool's state, and for its objects
				t.Errorf("within %q: it asked %d times to %s", within, lists[what], what)
			}
		}
	}
}

// bundled returns the files of a bundle.
func bundled(t *testing.T, r *Reader, pool string) (files map[string]string, lacks []string) {
	t.Helper()
	var b bytes.Buffer
	lacks, err := r.Bundle(t.Context(), pool, &b, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, lacks
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil || h.Mode != 0o600 {
			t.Fatalf("%s: %v, mode %o", h.Name, err, h.Mode)
		}
		files[strings.TrimPrefix(h.Name, "yurt-"+pool+"/")] = string(content)
	}
}

// What is no secret stays.
func TestRedactedKeeps(t *testing.T) {
	for _, text := range []string{
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "secretName: yurt-coordinator-a-certs",
		"at 10.0.0.1:10270: EOF",
		"https://10.0.0.1:10270/mirror/v1", "image: registry.example/yurt-coordinator:v1.36.3", "tokenExpirationSeconds: 3600",
		"2026-11-26T02:43:18.123456789Z stderr", "eyJ is how it begins", "basic rules", "sha256:0a0a0a",
	} {
		if got := redacted(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	for name, secret := range planted {
		if got := redacted("before " + secret); !strings.HasPrefix(got, "before ") || !strings.Contains(got, leftOut) {
			t.Errorf("%s became %q", name, got)
		}
	}
}
