package charts

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// rule is an alert.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// alerts returns the chart's.
func alerts(t *testing.T) (all []rule) {
	t.Helper()
	content, err := os.ReadFile(chart + "/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		Name  string
		Rules []rule
	}
	if err := yaml.UnmarshalStrict(content, &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		all = append(all, g.Rules...)
	}
	return all
}

// promql reads queries as Prometheus does.
var promql = parser.NewParser(parser.Options{})

// libraries are metrics of libraries, and of Prometheus itself, that alerts look at.
var libraries = []string{"up", "leader_election_master_status", "controller_runtime_reconcile_errors_total"}

// documented returns the metrics that docs/metrics.md lists. Tests of each program hold that list to what it registers.
func documented(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?:coordinator_controller|yurthub|yurt_coordinator)_[a-z0-9_]+`).FindAllString(string(page), -1)
}

// selected returns the metrics that a query names. Prometheus' own parser has read it.
func selected(t *testing.T, query string) (names []string) {
	t.Helper()
	expr, err := promql.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return nil
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			for _, m := range v.LabelMatchers {
				if m.Name == model.MetricNameLabel {
					names = append(names, m.Value)
				}
			}
		}
		return nil
	})
	if len(names) == 0 {
		t.Errorf("%s names no metric", query)
	}
	return names
}

// TestAlerts: Prometheus can read each alert, it is about metrics that there are, and its page says what to do.
func TestAlerts(t *testing.T) {
	known := append(documented(t), libraries...)
	page, err := os.ReadFile("../../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	headings := regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(page), -1)
	var written, found []string
	for _, h := range headings {
		written = append(written, h[1])
	}
	for _, r := range alerts(t) {
		found = append(found, r.Alert)
		for _, name := range selected(t, r.Expr) {
			if !slices.Contains(known, name) {
				t.Errorf("%s looks at %s, which no program has", r.Alert, name)
			}
		}
		if r.For != "" {
			if _, err := model.ParseDuration(r.For); err != nil {
				t.Errorf("%s: for %s: %v", r.Alert, r.For, err)
			}
		}
		if want := "RUNBOOKS#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s has the runbook %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
			t.Errorf("%s lacks a summary, a description or a severity: %+v", r.Alert, r)
		}
	}
	if len(found) < 20 {
		t.Fatalf("%d alerts; something is wrong with this test", len(found))
	}
	slices.Sort(written)
	slices.Sort(found)
	if !slices.Equal(written, found) {
		t.Errorf("there are runbooks for %q,\nand alerts %q", written, found)
	}
}

// TestAlertsHaveCases: each alert has a case in which it fires, and one in which it does not, for promtool.
func TestAlertsHaveCases(t *testing.T) {
	content, err := os.ReadFile("testdata/alerts.cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases struct {
		Tests []struct {
			Queries []struct {
				Expr    string
				Samples []struct{ Labels string } `json:"exp_samples"`
			} `json:"promql_expr_test"`
		}
	}
	if err := yaml.Unmarshal(content, &cases); err != nil {
		t.Fatal(err)
	}
	alertname := regexp.MustCompile(`alertname="(\w+)"`)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, c := range cases.Tests {
		of, empty := map[string]bool{}, false
		for _, q := range c.Queries {
			empty = empty || len(q.Samples) == 0
			for _, name := range alertname.FindAllStringSubmatch(q.Expr, -1) {
				of[name[1]] = true
			}
			for _, s := range q.Samples {
				name := alertname.FindStringSubmatch(s.Labels)
				if name == nil {
					t.Fatalf("%s expects %s", q.Expr, s.Labels)
				}
				of[name[1]], fires[name[1]] = true, true
			}
		}
		for name := range of {
			quiet[name] = quiet[name] || empty
		}
	}
	for _, r := range alerts(t) {
		if !fires[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s: a case in which it fires: %v; one in which it does not: %v", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
	}
}

// TestRunbooksAreSomewhere: whoever installs the chart says where the pages are read.
func TestRunbooksAreSomewhere(t *testing.T) {
	for _, at := range []string{"docs/runbooks.md", "https://wiki.example.org/runbooks"} {
		out, err := template(t, append([]string{
			"--set", "monitoring.prometheusRule.enabled=true", "--set", "monitoring.prometheusRule.runbooks=" + at,
		}, required...)...)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, "runbook_url: "+at+"#poolcut\n") || strings.Contains(out, "RUNBOOKS") {
			t.Errorf("runbooks are not at %s", at)
		}
	}
}

// TestNoAlertOfAnApproverThatIsOff: absent() would fire for ever.
func TestNoAlertOfAnApproverThatIsOff(t *testing.T) {
	for _, on := range []bool{true, false} {
		out, err := template(t, append([]string{
			"--set", "monitoring.prometheusRule.enabled=true", "--set", fmt.Sprintf("controllers.approver=%t", on),
		}, required...)...)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out, "CoordinatorApproverAbsent") != on || !strings.Contains(out, "YurtAppSetRolloutStopped") {
			t.Errorf("controllers.approver=%t: not so", on)
		}
	}
}

// TestPodMonitors: a PodMonitor shows the same token as a ServiceMonitor, gives the job the name that alerts know, and needs no
// Service.
func TestPodMonitors(t *testing.T) {
	values := append([]string{
		"--values", "testdata/all.values.yaml",
		"--set", "monitoring.serviceMonitor.enabled=false,monitoring.podMonitor.enabled=true",
	}, required...)
	out, err := template(t, values...)
	if err != nil {
		t.Fatal(err)
	}
	monitors := 0
	for _, doc := range documents(t, out) {
		switch o := parse(t, doc); o.GetKind() {
		case "PodMonitor":
			monitors++
			endpoints, _, err := unstructured.NestedSlice(o.Object, "spec", "podMetricsEndpoints")
			if err != nil || len(endpoints) != 1 {
				t.Fatalf("%s: %v, %v", o.GetName(), endpoints, err)
			}
			text, err := yaml.Marshal(endpoints[0])
			if err != nil {
				t.Fatal(err)
			}
			for _, has := range []string{
				"scheme: https", "name: yurt-coordinator-metrics-reader", "name: metrics-tls", "port: metrics",
				"serverName: " + o.GetName() + "-metrics.kube-system.svc", "replacement: " + o.GetName() + "-metrics",
			} {
				if !strings.Contains(string(text), has+"\n") {
					t.Errorf("%s lacks %q:\n%s", o.GetName(), has, text)
				}
			}
		case "ServiceMonitor", "Service":
			if strings.HasSuffix(o.GetName(), "-metrics") || o.GetKind() == "ServiceMonitor" {
				t.Errorf("there is a %s %s", o.GetKind(), o.GetName())
			}
		}
	}
	if monitors != 2 {
		t.Errorf("%d PodMonitors", monitors)
	}
	both := slices.Concat(values, []string{"--set", "monitoring.serviceMonitor.enabled=true"})
	if _, err := template(t, both...); err == nil || !strings.Contains(err.Error(), "enable one of them") {
		t.Errorf("both monitors: %v", err)
	}
}
