package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

const (
	// scrapeEvery is how often everything is scraped.
	scrapeEvery = 5 * time.Second
	// prometheusPort is where Prometheus listens in the cloud.
	prometheusPort = "9090"
)

// programs are the cloud's programs that have metrics.
var programs = []string{string(lab.CoordinatorController), "coordinator-approver"}

// prometheus is a real Prometheus in the lab's cloud.
type prometheus struct {
	*kit.T
	dir     string // its files, in the lab's directory
	program string
	address string // where the lab's nodes reach it
	api     prometheusv1.API
	// highest is the highest value that each panel has shown.
	highest map[string]float64
}

// newPrometheus returns a Prometheus that does not run yet.
func newPrometheus(t *kit.T) *prometheus {
	bins, err := t.Lab.Programs()
	t.Must(err)
	p := &prometheus{
		T: t, dir: filepath.Join(t.Lab.Dir(), "prometheus"), program: bins.Prometheus,
		highest: map[string]float64{},
	}
	t.Must(os.MkdirAll(p.dir, 0o700))
	access, err := t.Lab.CloudConfigFrom(t.Pool.Nodes()[0])
	t.Must(err)
	server, err := url.Parse(access.Host)
	t.Must(err)
	p.address = net.JoinHostPort(server.Hostname(), prometheusPort)
	client, err := api.NewClient(api.Config{Address: "http://" + p.address, RoundTripper: &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return p.Lab.Dial(ctx, "cloud", address)
		},
	}})
	t.Must(err)
	p.api = prometheusv1.NewAPI(client)
	return p
}

// file writes a file of Prometheus', and returns its path.
func (p *prometheus) file(name string, content []byte) string {
	path := filepath.Join(p.dir, name)
	p.Must(os.WriteFile(path, content, 0o600))
	return path
}

// jobs are how the cloud's programs are scraped, as docs/metrics.md says: by a ServiceAccount's token.
func (p *prometheus) jobs() (jobs []map[string]any) {
	const reader = "prometheus"
	p.MakeAccount(reader)
	p.Bind(reader, "openyurt:metrics-reader", kit.Account(reader))
	file := p.file("reader.token", []byte(p.Token(reader)))
	for _, program := range programs {
		pods, err := p.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(p.Ctx,
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + program})
		p.Must(err)
		var each []map[string]any
		for i := range pods.Items {
			each = append(each, map[string]any{
				"targets": []string{net.JoinHostPort(pods.Items[i].Status.PodIP, "8443")},
				"labels":  map[string]string{"pod": pods.Items[i].Name, "namespace": edge.NamespaceSystem},
			})
		}
		jobs = append(jobs, map[string]any{
			"job_name": program + "-metrics", "scheme": "https", "authorization": map[string]string{"credentials_file": file},
			"tls_config": map[string]any{"insecure_skip_verify": true}, "static_configs": each, // they sign their own
		})
	}
	return jobs
}

// start starts Prometheus in the cloud.
func (p *prometheus) start() {
	config, err := yaml.Marshal(map[string]any{
		"global": map[string]any{
			"scrape_interval": scrapeEvery.String(), "scrape_timeout": scrapeEvery.String(),
		},
		"scrape_configs": p.jobs(),
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

// agents starts an agent on each node, as docs/metrics.md says. The first agent also scrapes the pool's coordinator. The agents
// send what they scrape to the cloud.
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
	}
}

// scrapesAll waits until everything is scraped.
func (p *prometheus) scrapesAll() {
	want := map[string]int{
		"coordinator-controller-metrics": int(p.replicas()), "coordinator-approver-metrics": 1, "yurthub": p.Config.Nodes,
		"yurt-coordinator": 1,
	}
	took := p.Eventually(patience, "Prometheus has metrics of all programs", func() error {
		answer, _, err := p.api.Query(p.Ctx, `sum by (job) (up)`, time.Now())
		if err != nil {
			return err
		}
		got := map[string]int{}
		for _, s := range asVector(answer) {
			got[string(s.Metric["job"])] = int(s.Value)
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("up are %v, want %v", got, want)
		}
		return nil
	})
	p.Figure("start_to_all_scraped_s", took.Seconds())
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
