// Package charts has tests of the charts only: what they render, and that a real API server takes it and refuses by their
// policies what it should.
package charts

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/version"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const chart = "yurt-coordinator"

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(cloudtest.Main(m))
}

// helm runs Helm and returns what it prints, on success and in an error.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program := os.Getenv("HELM")
	if program == "" {
		t.Fatal("HELM is not set: run `make unit`, or export HELM=$(bin/yurtlab build --print helm)/helm")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s%s", err, failure.String(), out.String())
	}
	return out.String(), nil
}

// required is what every installation must say.
var required = []string{"--namespace", "kube-system", "--set", "image.registry=registry.example.org/edge"}

func template(t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"template", chart, chart, "--kube-version", "v1.36.0"}, args...)
	return helm(t, args...)
}

func TestLint(t *testing.T) {
	for _, values := range [][]string{nil, {"--values", "testdata/all.values.yaml"}} {
		if _, err := helm(t, append(append([]string{"lint", "--strict", chart}, required...), values...)...); err != nil {
			t.Error(err)
		}
	}
}

// TestVersionOfTheCloud: the chart decides by the version that Helm sees, or is told, and refuses what is too old.
func TestVersionOfTheCloud(t *testing.T) {
	for cluster, want := range map[string]string{
		"v1.32.13": "", "v1.33.0": "false", "v1.35.4": "false", "v1.36.0-alpha.1": "true", "v1.36.3": "true", "v1.37.2": "true",
		"v1.34.4-gke.1318000": "false",
	} {
		out, err := helm(t, append([]string{"template", chart, chart, "--kube-version", cluster}, required...)...)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "incompatible with Kubernetes "+cluster) {
				t.Errorf("%s: %v, want it refused", cluster, err)
			}
			continue
		}
		if err != nil || !strings.Contains(out, "- --constrained-impersonation="+want+"\n") {
			t.Errorf("%s: %v, want --constrained-impersonation=%s", cluster, err, want)
		}
	}
}

func TestGolden(t *testing.T) {
	for name, values := range map[string][]string{
		"default": nil, "all": {"--values", "testdata/all.values.yaml"},
	} {
		out, err := template(t, append(values, required...)...)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, filepath.Join("testdata", name+".yaml"), short(t, out))
	}
}

// short leaves out the content of objects that the chart has as they are in files, and names the file.
func short(t *testing.T, rendered string) string {
	t.Helper()
	files := verbatim(t)
	var b strings.Builder
	for _, doc := range documents(t, rendered) {
		o := parse(t, doc)
		from, ok := files[id(o)]
		if !ok {
			fmt.Fprintf(&b, "---\n%s\n", strings.TrimSpace(doc))
			continue
		}
		annotations := from.object.GetAnnotations()
		if o.GetKind() == "CustomResourceDefinition" {
			annotations["helm.sh/resource-policy"] = "keep"
		}
		from.object.SetAnnotations(annotations)
		if !reflect.DeepEqual(o.Object, from.object.Object) {
			t.Errorf("%s is not what is in %s", id(o), from.file)
		}
		fmt.Fprintf(&b, "--- # %s: %s\n", id(o), from.file)
	}
	return b.String()
}

type source struct {
	file   string
	object *unstructured.Unstructured
}

// verbatim are the objects in files of the chart.
func verbatim(t testing.TB) map[string]source {
	t.Helper()
	var names []string
	patterns := []string{"files/rbac/*.yaml", "files/crds/*.yaml", "files/policies/*.yaml"}
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(chart, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		names = append(names, found...)
	}
	all := map[string]source{}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range documents(t, string(content)) {
			o := parse(t, doc)
			file, err := filepath.Rel(chart, name)
			if err != nil {
				t.Fatal(err)
			}
			all[id(o)] = source{file: file, object: o}
		}
	}
	return all
}

func id(o *unstructured.Unstructured) string {
	return strings.TrimPrefix(fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName()), "/")
}

func parse(t testing.TB, doc string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(doc), &o.Object); err != nil {
		t.Fatalf("%v in\n%s", err, doc)
	}
	return o
}

// documents are those of a YAML file that have something in them.
func documents(t testing.TB, content string) []string {
	t.Helper()
	var docs []string
	for r := yamlreader.NewYAMLReader(bufio.NewReader(strings.NewReader(content))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil {
			t.Fatal(err)
		}
		if o := map[string]any{}; yaml.Unmarshal(doc, &o) == nil && len(o) == 0 {
			continue
		}
		docs = append(docs, strings.TrimPrefix(string(doc), "---\n"))
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Errorf("%s:%d differs: run with -update and look at the change\n%s", path, i+1,
				strings.Join(g[min(i, len(g)):min(i+3, len(g))], "\n"))
			return
		}
	}
}

func TestRefusedValues(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"no registry", required[:2], "image.registry must be set"},
		{"another namespace", append([]string{"--namespace", "edge"}, required[2:]...), "--namespace kube-system"},
		{"a word mistyped", append([]string{"--set", "controller.replica=3"}, required...), "replica"},
		{"no replicas", append([]string{"--set", "controller.replicas=0"}, required...), "replicas"},
		{"a number for a duration", append([]string{"--set", "controller.silenceAfter=40"}, required...), "silenceAfter"},
		{"a tag that no YurtCoordinator may have", append([]string{"--set", "coordinator.image.tag=latest"}, required...), "tag"},
		{"a digest that is none", append([]string{"--set", "controller.image.digest=latest"}, required...), "digest"},
		{"a digest of what is no tag of coordinators", append([]string{"--set",
			"coordinator.image.digests.v1=sha256:" + strings.Repeat("0a", 32)}, required...), "digests"},
		{"no CIDR", append([]string{"--set", "controller.kubeletServing.cidrs={192.168.7.1}"}, required...), "cidrs"},
		{"any address", append([]string{"--set", "controller.kubeletServing.cidrs={0.0.0.0/0}"}, required...), "cidrs"},
		{"a name that is none", append([]string{"--set", "controller.kubeletServing.names={a/b}"}, required...), "names"},
		{"metrics for nobody", append([]string{"--set", "monitoring.serviceMonitor.enabled=true"}, required...), "metricsFrom"},
		{"a kind that nobody serves", append([]string{"--set", "crds.nodepools=false"}, required...),
			"crds.nodepools is false, but this cluster does not serve apps.openyurt.io/v1beta2/NodePool"},
		{"another version of it", append([]string{"--set", "crds.nodepools=false", "--api-versions",
			"apps.openyurt.io/v1beta1/NodePool"}, required...), "OpenYurt does from 1.7 on"},
		{"another kind that nobody serves", append([]string{"--set", "crds.yurtappsets=false"}, required...),
			"does not serve apps.openyurt.io/v1beta1/YurtAppSet"},
		{"coordinators whose rollout nobody paces", append([]string{"--set", "controllers.yurtappset=false"}, required...),
			"a change would reach all coordinators at once"},
		{"a kind that nobody else has", append([]string{"--set", "crds.poolsettings=false"}, required...),
			"does not serve apps.openyurt.io/v1alpha1/PoolSettings"},
		{"nobody who evicts", append([]string{"--set-json", "policies.evictors=[]"}, required...), "evictors"},
		{"a user who ends the string", append([]string{"--set", "policies.evictors={a'b}"}, required...), "evictors"},
		{"an unknown policy", append([]string{"--set", "policies.nodepoolDeletion=true"}, required...), "nodepoolDeletion"},
	} {
		if out, err := template(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want one that says %q\n%s", test.name, err, test.want, out)
		}
	}
}

// Each switch takes away what it says, and nothing else.
func TestSwitches(t *testing.T) {
	ids := func(args ...string) map[string]bool {
		out, err := template(t, append(args, required...)...)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, doc := range documents(t, out) {
			found[id(parse(t, doc))] = true
		}
		return found
	}
	// A cluster that has the kinds from elsewhere.
	served := []string{"--api-versions", "apps.openyurt.io/v1beta2/NodePool", "--api-versions",
		"apps.openyurt.io/v1beta1/YurtAppSet", "--api-versions", "apps.openyurt.io/v1alpha1/YurtCoordinator",
		"--api-versions", "apps.openyurt.io/v1alpha1/PoolSettings"}
	all := ids()
	for value, want := range map[string]string{
		"controllers.approver": "coordinator-approver",
		"controllers.signer":   "controller:signer",
		"controllers.yurtappset": "controller:(appsets|workloads|coordinators|signer)|" +
			"yurt-coordinator-system|forwarded-heartbeats",
		"controllers.yurtcoordinator":    "controller:(coordinators|signer)|yurt-coordinator-system|forwarded-heartbeats",
		"controllers.poolsettings":       "controller:poolsettings",
		"crds.nodepools":                 "CustomResourceDefinition",
		"crds.yurtappsets":               "CustomResourceDefinition",
		"crds.yurtcoordinators":          "CustomResourceDefinition",
		"crds.poolsettings":              "CustomResourceDefinition",
		"policies.oneCoordinatorPerPool": "one-coordinator",
		"policies.exclusiveAutonomy":     "exclusive-autonomy",
		"policies.nodePoolDeletion":      "nodepool-deletion",
		"policies.coordinatorSets":       "coordinator-sets",
		"policies.nodePoolValues":        "nodepool-values",
		"policies.delegateAnnotation":    "delegate-annotation",
		"policies.forwarderWrites":       "forwarder-writes",
		"policies.holdDuration":          "hold-duration",
		"policies.poolMembership":        "pool-membership",
		"policies.lanAddress":            "lan-address",
		"policies.controllerRights":      "(controller-(rights|workloads|nodes|upgraders|images)|approver-rights)[.]openyurt",
		"policies.coordinatorConnects":   "coordinator-connects",
		"policies.coordinatorPods":       "coordinator-pods",
		"policies.nodeStatus":            "node-status",
		"policies.nodeNames":             "node-names",
		"policies.holdEvictions":         "hold-evictions.openyurt",
		"policies.keepPodsReady":         "keep-pods-ready",
		"nodes.rights":                   "openyurt:node",
		"people.aggregateClusterRoles":   "openyurt:aggregate-to-(view|edit)",
		"podDisruptionBudget.enabled":    "PodDisruptionBudget",
		"networkPolicy.enabled":          "NetworkPolicy",
	} {
		off := value + "=false"
		if value == "controllers.yurtappset" { // without which there are no coordinators
			off += ",controllers.yurtcoordinator=false"
		}
		without := ids(append([]string{"--set", off}, served...)...)
		gone := 0
		for o := range all {
			if without[o] {
				continue
			}
			gone++
			if !regexp.MustCompile(want).MatchString(o) {
				t.Errorf("%s=false takes away %s", value, o)
			}
		}
		if gone == 0 || len(without) != len(all)-gone {
			t.Errorf("%s=false takes away %d objects, and %d of %d are left", value, gone, len(without), len(all))
		}
	}
}

// TestTheControllersFlagsFollowTheirSwitches, and the clean-up's.
func TestTheControllersFlagsFollowTheirSwitches(t *testing.T) {
	for value, flags := range map[string][]string{
		"heartbeat": {"--heartbeats"}, "autonomy": {"--autonomy"}, "poolcut": {"--pool-cuts"}, "nodepool": {"--node-pools"},
		"yurtcoordinator=false,controllers.yurtappset": {"--yurt-app-sets", "--yurt-coordinators", "--signer"},
		"yurtcoordinator": {"--yurt-coordinators", "--signer"}, "signer": {"--signer"},
		"poolsettings": {"--pool-settings"},
	} {
		out, err := template(t, append([]string{"--set", "controllers." + value + "=false"}, required...)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range flags {
			if !strings.Contains(out, "- "+flag+"=false\n") {
				t.Errorf("controllers.%s=false, and no %s=false", value, flag)
			}
		}
		if n := strings.Count(out, "=false\n"); n != len(flags) {
			t.Errorf("controllers.%s=false: %d flags are off", value, n)
		}
	}
	alone := []string{"--set", "controllers.yurtcoordinator=false,controllers.signer=true"}
	out, err := template(t, append(alone, required...)...)
	if err != nil || !strings.Contains(out, "- --signer=true\n") {
		t.Errorf("the signer alone: %v", err)
	}
}

// TestWhoEvictsIsAValue of both policies about it.
func TestWhoEvictsIsAValue(t *testing.T) {
	out, err := template(t, append([]string{"--set", "policies.evictors={system:a,b}"}, required...)...)
	if err != nil {
		t.Fatal(err)
	}
	n := strings.Count(out, "request.userInfo.username in ['system:a', 'b']")
	if n != 2 || strings.Contains(out, "node-controller'") {
		t.Errorf("it is in %d policies", n)
	}
}

// TestVersionsOfTheChart: the chart is of the release that this source becomes, and its appVersion the one in the images' tags.
func TestVersionsOfTheChart(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var about struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(content, &about); err != nil {
		t.Fatal(err)
	}
	if next := version.Development("", false); about.AppVersion != next || "v"+about.Version != next {
		t.Errorf("version %s, appVersion %s; the source is of %s", about.Version, about.AppVersion, next)
	}
}

// Prometheus shows a token that opens nothing but metrics, and verifies who it shows it to if that can be verified.
func TestServiceMonitors(t *testing.T) {
	for certificate, want := range map[string]any{
		"": map[string]any{"insecureSkipVerify": true},
		"tls": map[string]any{
			"ca":         map[string]any{"secret": map[string]any{"name": "tls", "key": "ca.crt"}},
			"serverName": "NAME-metrics.kube-system.svc",
		},
	} {
		out, err := template(t, append([]string{
			"--values", "testdata/all.values.yaml", "--set", "monitoring.certificate=" + certificate,
		}, required...)...)
		if err != nil {
			t.Fatal(err)
		}
		monitors := 0
		for _, doc := range documents(t, out) {
			o := parse(t, doc)
			if o.GetKind() != "ServiceMonitor" {
				continue
			}
			monitors++
			endpoints, _, err := unstructured.NestedSlice(o.Object, "spec", "endpoints")
			if err != nil || len(endpoints) != 1 {
				t.Fatalf("%s: %v, %v", o.GetName(), endpoints, err)
			}
			e := endpoints[0].(map[string]any)
			if tls, ok := e["tlsConfig"].(map[string]any); ok && tls["serverName"] == o.GetName()+"-metrics.kube-system.svc" {
				tls["serverName"] = "NAME-metrics.kube-system.svc"
			}
			if e["scheme"] != "https" || !reflect.DeepEqual(e["tlsConfig"], want) || !reflect.DeepEqual(e["authorization"],
				map[string]any{"credentials": map[string]any{"name": "yurt-coordinator-metrics-reader", "key": "token"}}) {
				t.Errorf("with the certificate %q, %s: %v", certificate, o.GetName(), e)
			}
		}
		if monitors != 2 {
			t.Errorf("%d ServiceMonitors", monitors)
		}
	}
}
