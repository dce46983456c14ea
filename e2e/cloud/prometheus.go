package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

const (
	// scrapeEvery is how often everything is scraped, and alerts are judged.
	scrapeEvery = 5 * time.Second
	// prometheusPort is where Prometheus listens in the cloud.
	prometheusPort = "9090"
	// monitoring is the namespace of Prometheus' ServiceAccount.
	monitoring = "monitoring"
)

var (
	serviceMonitors = schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "servicemonitors"}
	prometheusRules = schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "prometheusrules"}
)

// serviceMonitor is what a Prometheus Operator reads of the chart's.
type serviceMonitor struct {
	Metadata metav1.ObjectMeta
	Spec     struct {
		Selector  metav1.LabelSelector
		Endpoints []struct {
			Port, Interval, Scheme string
			Authorization          struct{ Credentials corev1.SecretKeySelector }
			TLSConfig              struct {
				CA                 struct{ Secret corev1.SecretKeySelector }
				ServerName         string
				InsecureSkipVerify bool
			}
		}
	}
}

// scrapeJob is a job of Prometheus' configuration.
type scrapeJob struct {
	Name          string            `json:"job_name"`
	Scheme        string            `json:"scheme"`
	Interval      string            `json:"scrape_interval"`
	Timeout       string            `json:"scrape_timeout"`
	Authorization map[string]string `json:"authorization"`
	TLS           scrapeTLS         `json:"tls_config"`
	Discovery     []map[string]any  `json:"kubernetes_sd_configs"`
	Relabel       []map[string]any  `json:"relabel_configs"`
}

// scrapeTLS is how a job verifies its targets.
type scrapeTLS struct {
	CAFile     string `json:"ca_file"`
	ServerName string `json:"server_name"`
}

// prometheus is a real one in the lab's cloud.
type prometheus struct {
	*kit.T
	dir     string // its files, in the lab's directory
	program string
	address string // where the lab's nodes reach it
	api     prometheusv1.API
	// sites are the agents on nodes, by node.
	sites map[string]prometheusv1.API
	// highest is the highest value that each panel has shown.
	highest map[string]float64
}

// newPrometheus returns one that does not run yet. It is to find its targets in the API server with rights to nothing else.
func newPrometheus(t *kit.T) *prometheus {
	bins, err := t.Lab.Programs()
	t.Must(err)
	p := &prometheus{
		T: t, dir: filepath.Join(t.Lab.Dir(), "prometheus"), program: bins.Prometheus, sites: map[string]prometheusv1.API{},
		highest: map[string]float64{},
	}
	t.Must(os.MkdirAll(p.dir, 0o700))
	access, err := t.Lab.CloudConfigFrom(t.Pool.Nodes()[0])
	t.Must(err)
	server, err := url.Parse(access.Host)
	t.Must(err)
	p.address = net.JoinHostPort(server.Hostname(), prometheusPort)
	p.api = p.speaks("cloud", p.address)
	return p
}

// speaks returns a client of the Prometheus that listens at an address of a machine.
func (p *prometheus) speaks(machine, address string) prometheusv1.API {
	client, err := api.NewClient(api.Config{Address: "http://" + address, RoundTripper: &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return p.Lab.Dial(ctx, machine, address)
		},
	}})
	p.Must(err)
	return prometheusv1.NewAPI(client)
}

// discovers gives Prometheus what its operator's guide gives it: a ServiceAccount that may see where Services lead. It returns
// how to find those of a ServiceMonitor.
func (p *prometheus) discovers() map[string]any {
	core := p.Cloud.CoreV1()
	_, err := core.Namespaces().Create(p.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: monitoring}},
		metav1.CreateOptions{})
	p.Must(err)
	_, err = core.ServiceAccounts(monitoring).Create(p.Ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}}, metav1.CreateOptions{})
	p.Must(err)
	reads := []string{"get", "list", "watch"}
	meta := metav1.ObjectMeta{Name: "prometheus"}
	sees := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "pods"}, Verbs: reads},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: reads},
	}
	_, err = p.Cloud.RbacV1().Roles(edge.NamespaceSystem).Create(p.Ctx, &rbacv1.Role{ObjectMeta: meta, Rules: sees},
		metav1.CreateOptions{})
	p.Must(err)
	_, err = p.Cloud.RbacV1().RoleBindings(edge.NamespaceSystem).Create(p.Ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "prometheus"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: monitoring, Name: "prometheus"}},
	}, metav1.CreateOptions{})
	p.Must(err)
	token, err := core.ServiceAccounts(monitoring).CreateToken(p.Ctx, "prometheus", &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	p.Must(err)
	access, err := p.Lab.CloudConfig()
	p.Must(err)
	return map[string]any{
		"role": "endpointslice", "namespaces": map[string]any{"names": []string{edge.NamespaceSystem}},
		"api_server":    access.Host,
		"authorization": map[string]any{"credentials_file": p.file("own.token", []byte(token.Status.Token))},
		"tls_config":    map[string]any{"ca_file": p.Lab.CloudAuthority()},
	}
}

// file writes a file of Prometheus', and returns its path.
func (p *prometheus) file(name string, content []byte) string {
	path := filepath.Join(p.dir, name)
	p.Must(os.WriteFile(path, content, 0o600))
	return path
}

// secret writes a key of a Secret into a file, as the operator does for Prometheus.
func (p *prometheus) secret(key corev1.SecretKeySelector) string {
	var content []byte
	p.Eventually(patience, "the Secret "+key.Name+" has "+key.Key, func() error {
		s, err := p.Cloud.CoreV1().Secrets(edge.NamespaceSystem).Get(p.Ctx, key.Name, metav1.GetOptions{})
		if err == nil && len(s.Data[key.Key]) == 0 {
			err = errors.New("it has none")
		}
		if err == nil {
			content = s.Data[key.Key]
		}
		return err
	})
	return p.file(key.Name+"-"+key.Key, content)
}

// jobs makes of the chart's ServiceMonitors what an operator makes of them.
func (p *prometheus) jobs() []scrapeJob {
	finding := p.discovers()
	list, err := p.Cloud.Objects.Resource(serviceMonitors).Namespace(edge.NamespaceSystem).List(p.Ctx, metav1.ListOptions{})
	p.Must(err)
	var jobs []scrapeJob
	for _, item := range list.Items {
		written, err := item.MarshalJSON()
		p.Must(err)
		var m serviceMonitor
		p.Must(json.Unmarshal(written, &m))
		for i, e := range m.Spec.Endpoints {
			if e.TLSConfig.InsecureSkipVerify || e.TLSConfig.ServerName == "" || e.Scheme != "https" {
				p.Fail("the ServiceMonitor %s verifies nobody: %+v", item.GetName(), e)
			}
			relabel := []map[string]any{}
			for name, value := range m.Spec.Selector.MatchLabels {
				label := regexp.MustCompile(`[^a-zA-Z0-9_]`).ReplaceAllString(name, "_")
				relabel = append(relabel, map[string]any{
					"action": "keep", "source_labels": []string{"__meta_kubernetes_service_label_" + label}, "regex": value,
				})
			}
			relabel = append(relabel, map[string]any{
				"action": "keep", "source_labels": []string{"__meta_kubernetes_endpointslice_port_name"}, "regex": e.Port,
			})
			for target, source := range map[string]string{
				"job": "service_name", "service": "service_name", "namespace": "namespace", "pod": "pod_name",
				"container": "pod_container_name", "endpoint": "endpointslice_port_name",
			} {
				relabel = append(relabel, map[string]any{
					"source_labels": []string{"__meta_kubernetes_" + source}, "target_label": target,
				})
			}
			jobs = append(jobs, scrapeJob{
				Name:   fmt.Sprintf("serviceMonitor/%s/%s/%d", item.GetNamespace(), item.GetName(), i),
				Scheme: e.Scheme, Interval: e.Interval, Timeout: e.Interval,
				Authorization: map[string]string{"credentials_file": p.secret(e.Authorization.Credentials)},
				TLS:           scrapeTLS{p.secret(e.TLSConfig.CA.Secret), e.TLSConfig.ServerName},
				Discovery:     []map[string]any{finding}, Relabel: relabel,
			})
		}
	}
	if len(jobs) != 2 {
		p.Fail("%d ServiceMonitors are there, want 2", len(jobs))
	}
	return jobs
}

// deceived is the job of a target that a job would be deceived about, if it verified nobody.
const deceived = "deceived"

// deceivedTwins returns the same jobs, but they verify by another authority: the cloud's. They must get no answer.
func (p *prometheus) deceivedTwins(jobs []scrapeJob) []scrapeJob {
	var twins []scrapeJob
	for _, job := range jobs {
		job.Name = deceived + "/" + job.Name
		job.TLS.CAFile = p.Lab.CloudAuthority()
		job.Relabel = append(slices.Clone(job.Relabel), map[string]any{"target_label": "job", "replacement": deceived})
		twins = append(twins, job)
	}
	return twins
}

// start starts Prometheus in the cloud, with the jobs of the chart's ServiceMonitors, their deceived twins, and these alerts.
func (p *prometheus) start(rules []byte) {
	jobs := p.jobs()
	config, err := yaml.Marshal(map[string]any{
		"global": map[string]any{
			"scrape_interval": scrapeEvery.String(), "scrape_timeout": scrapeEvery.String(),
			"evaluation_interval": scrapeEvery.String(),
		},
		"rule_files": []string{p.file("alerts.yaml", rules)}, "scrape_configs": append(jobs, p.deceivedTwins(jobs)...),
	})
	p.Must(err)
	p.runs("cloud", "--config.file="+p.file("prometheus.yaml", config), "--storage.tsdb.path="+filepath.Join(p.dir, "data"),
		"--web.listen-address="+p.address, "--web.enable-remote-write-receiver")
	p.Eventually(patience, "Prometheus answers", func() error {
		built, err := p.api.Buildinfo(p.Ctx)
		if err == nil {
			p.Say("Prometheus %s", built.Version)
		}
		return err
	})
}

// runs starts a Prometheus on a machine. It ends with the lab.
func (p *prometheus) runs(machine string, flags ...string) {
	cmd, err := p.Lab.Inside(p.Ctx, machine, append([]string{p.program, "--log.level=warn"}, flags...)...)
	p.Must(err)
	log, err := os.Create(filepath.Join(p.dir, machine+".log"))
	p.Must(err)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, p.dir
	cmd.Env = append(cmd.Env, "GOMAXPROCS=1") // it is a guest on this machine
	p.Must(cmd.Start())
	p.Background.Go(func() {
		_ = cmd.Wait() // the queries say whether it runs
		_ = log.Close()
	})
}

// agentConfig returns the configuration in docs/metrics.md of an agent on site.
func agentConfig(page string) (string, error) {
	_, section, found := strings.Cut(page, "\n### An agent on site\n")
	_, block, begins := strings.Cut(section, "\n```yaml\n")
	config, _, ends := strings.Cut(block, "\n```\n")
	if !found || !begins || !ends {
		return "", errors.New("docs/metrics.md has no configuration of an agent on site")
	}
	return config, nil
}

// agents starts an agent on each node, as docs/metrics.md says. The first one scrapes the pool's coordinator, too. They send to
// the cloud what they read.
func (p *prometheus) agents() {
	page, err := os.ReadFile(filepath.Join(p.Repository(), "docs", "metrics.md"))
	p.Must(err)
	text, err := agentConfig(string(page))
	p.Must(err)
	p.siteFiles()
	for i, node := range p.Pool.Nodes() {
		own := strings.NewReplacer("POOL", "p1", "NODE_ADDRESS", p.Node(node).Address(), "NODE", node).Replace(text)
		var config map[string]any
		p.Must(yaml.UnmarshalStrict([]byte(own), &config))
		jobs, ok := config["scrape_configs"].([]any)
		if !ok || len(jobs) != 2 {
			p.Fail("docs/metrics.md has an agent with %v", config)
		}
		if i > 0 {
			config["scrape_configs"] = jobs[:1] // the coordinator is scraped from one node
		}
		config["global"] = map[string]any{"scrape_interval": scrapeEvery.String(), "scrape_timeout": scrapeEvery.String()}
		config["remote_write"] = []any{map[string]any{"url": "http://" + p.address + "/api/v1/write"}}
		written, err := yaml.Marshal(config)
		p.Must(err)
		p.runs(node, "--agent", "--config.file="+p.file(node+".yaml", written),
			"--storage.agent.path="+filepath.Join(p.dir, node+"-data"), "--web.listen-address=127.0.0.1:"+prometheusPort)
		p.sites[node] = p.speaks(node, "127.0.0.1:"+prometheusPort)
	}
}

// scrapesAll waits until everything is scraped, and looks at why what a deceived job scrapes is not.
func (p *prometheus) scrapesAll() {
	want := map[string]int{
		"coordinator-controller-metrics": int(p.replicas()), "coordinator-approver-metrics": 1, "yurthub": p.Config.Nodes,
		"yurt-coordinator": 1,
	}
	took := p.Eventually(patience, "Prometheus has metrics of all programs", func() error {
		answer, _, err := p.api.Query(p.Ctx, `sum by (job) (up{job!="`+deceived+`"})`, time.Now())
		if err != nil {
			return err
		}
		got := map[string]int{}
		for _, s := range asVector(answer) {
			got[string(s.Metric["job"])] = int(s.Value)
		}
		if !maps.Equal(got, want) {
			return errors.Join(fmt.Errorf("up are %v, want %v", got, want), p.failures())
		}
		return nil
	})
	p.Figure("start_to_all_scraped_s", took.Seconds())
	p.Eventually(patience, "who verifies by another authority knows none of them", func() error {
		found, err := p.api.Targets(p.Ctx)
		if err != nil {
			return err
		}
		twins := 0
		for _, target := range found.Active {
			if !strings.HasPrefix(target.ScrapePool, deceived+"/") {
				continue
			}
			twins++
			if !strings.Contains(target.LastError, "certificate signed by unknown authority") {
				return fmt.Errorf("%s is %s: %q", target.ScrapeURL, target.Health, target.LastError)
			}
		}
		if want := int(p.replicas()) + 1; twins != want {
			return fmt.Errorf("%d deceived targets, want %d", twins, want)
		}
		return nil
	})
}

// nobodyDeceived fails if a deceived job has had an answer since.
func (p *prometheus) nobodyDeceived(since time.Time) {
	answer, _, err := p.api.Query(p.Ctx, fmt.Sprintf(`max(max_over_time(up{job="%s"}[%ds]))`, deceived,
		int(time.Since(since).Seconds())+1), time.Now())
	p.Must(err)
	if v := asVector(answer); len(v) != 1 || v[0].Value != 0 {
		p.Fail("who verifies by another authority has scraped: %v", answer)
	}
}

// failures says why targets are not scraped.
func (p *prometheus) failures() error {
	asked := maps.Clone(p.sites)
	asked["cloud"] = p.api
	var all []error
	for _, machine := range slices.Sorted(maps.Keys(asked)) {
		targets, err := asked[machine].Targets(p.Ctx)
		if err != nil {
			all = append(all, fmt.Errorf("the Prometheus of %s: %w", machine, err))
		}
		for _, target := range targets.Active {
			if target.LastError != "" && !strings.HasPrefix(target.ScrapePool, deceived+"/") {
				all = append(all, fmt.Errorf("%s: %s: %s", machine, target.ScrapePool, target.LastError))
			}
		}
	}
	return errors.Join(all...)
}

// replicas returns how many replicas of coordinator-controller there are to be.
func (p *prometheus) replicas() int32 {
	d, err := p.Cloud.AppsV1().Deployments(edge.NamespaceSystem).Get(p.Ctx, string(lab.CoordinatorController),
		metav1.GetOptions{})
	p.Must(err)
	return *d.Spec.Replicas
}

func asVector(v model.Value) model.Vector {
	if vector, ok := v.(model.Vector); ok {
		return vector
	}
	return nil
}
