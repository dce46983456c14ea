package cloud

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/e2e/panels"
	"yurtcoordinator/lab/wire"
)

var dashboardScenarios = []kit.Scenario{{
	Name: "dashboards", Tier: kit.Field, Lab: withPrometheus(kit.Joining(kit.OnePool.AsInstalled(), 0)), Run: dashboards,
	Doc: "A real Prometheus scrapes the cloud's programs with a token; one on each node sends what it reads of the hub and, " +
		"with a certificate that opens nothing else, of the coordinator, as docs/metrics.md says. Links are cut. Each query of " +
		"each dashboard has an answer that makes sense.",
}}

const (
	// rateInterval is the value that Grafana gives $__rate_interval: four times the interval of scrapes.
	rateInterval = 4 * scrapeEvery
	// patience is how long to wait for what comes within seconds on a machine with nothing else to do.
	patience = 3 * time.Minute
)

// silent are the queries that may have no series here, and why; the letter is the query's target. They are sent all the same.
var silent = map[string]string{
	"fleet/Heartbeats without an answer in ten minutes, ten worst pools A": "of pools with any",
	"pool/Heartbeats without an answer in ten minutes A":                   "of pools with any",
	"fleet/Hubs with trouble A":                                            "no disk is full here, and no certificate old",
	"pool/Hubs with trouble A":                                             "no disk is full here, and no certificate old",
	"fleet/Failures of controllers B":                                      "of controllers that fail",
	"fleet/Nodes by what became of their settings A":                       "there is no PoolSettings here",
	"pool/What the pool shares and its coordinator lacks A":                "only until the leader has filled it",
	"pool/What the pool shares and its coordinator lacks B":                "only until the leader has filled it",
	"pool/Oldest generation of settings that a hub runs with A":            "only while hubs run with several",
}

// moved are the panels that must have shown what has happened here.
var moved = []string{
	"fleet/Nodes without a link", "fleet/Nodes without a link, the ten worst pools", "fleet/Pools cut off as a whole",
	"fleet/Hubs by the state of their link", "fleet/Nodes whose link is down, and for how long",
	"fleet/By purpose, all pools", "fleet/Ten pools that carry most", "pool/Nodes without a link",
	"pool/Not at the coordinator", "pool/Evictions held", "pool/What the WAN carries",
	"pool/Nodes whose link is down, and for how long", "hub/Relayed", "hub/Leads", "hub/Changes of links",
	"hub/What the line carries, by purpose", "hub/Heartbeats", "hub/Relayed for neighbours",
	"coordinator/Hubs that are cut off", "coordinator/Requests by code",
}

func withPrometheus(c lab.Config) lab.Config {
	c.Prometheus = true
	return c
}

// seriesTo is an environment variable. It names a directory that the scenario makes for the series that Prometheus has stored,
// and that `make pictures` draws.
const seriesTo = "YURTLAB_SERIES"

func dashboards(t *kit.T) {
	t.Pool.Settled(patience)
	p := newPrometheus(t)
	began := time.Now()
	p.start()
	p.agents()
	p.scrapesAll()
	p.linksOfTwo()
	p.lanOfOne()
	p.wholePool()
	p.asksAll(began)
	if to := os.Getenv(seriesTo); to != "" {
		p.Must(os.CopyFS(to, os.DirFS(filepath.Join(p.dir, "data"))))
	}
}

// shown waits until a query has so many series.
func (p *prometheus) shown(what, query string, count int) {
	// The leader tells with its next report, after 3 minutes at most.
	took := p.Eventually(3*time.Minute+patience, what, func() error {
		answer, _, err := p.api.Query(p.Ctx, query, time.Now())
		if v := asVector(answer); err == nil && len(v) != count {
			err = fmt.Errorf("%s: shown are %v", query, v)
		}
		return err
	})
	p.Figure("slowest_to_show_s", took.Seconds())
}

// linksOfTwo cuts the links of two nodes, which the rest of the pool speaks for.
func (p *prometheus) linksOfTwo() {
	leader := p.Pool.Settled(patience)
	cut := slices.DeleteFunc(p.Pool.Nodes(), func(node string) bool { return node == leader })
	p.Say("cutting the WAN links of %v", cut)
	for _, node := range cut {
		p.Cut(node)
	}
	p.shown("both are shown, and since when", `max by (node) (coordinator_controller_node_cut_since_timestamp_seconds)`, len(cut))
	p.shown("the fleet shows relayed hubs, and one whose link is up", `sum by (state) (coordinator_controller_hub_links) > 0`, 2)
	for _, node := range cut {
		p.Heal(node)
	}
	p.Pool.Settled(patience)
}

// lanOfOne cuts the LAN link of a node, which then does not reach its coordinator.
func (p *prometheus) lanOfOne() {
	node := p.Pool.Follower(p.Pool.Settled(patience))
	p.Say("cutting the LAN link of %s", node)
	p.Must(p.Lab.Cut(p.Ctx, lab.LAN, node, wire.Drop))
	p.shown("the node does not reach its coordinator", `max by (pool) (coordinator_controller_outside_pool_nodes) > 0`, 1)
	p.Must(p.Lab.Heal(p.Ctx, lab.LAN, node))
	p.Pool.Settled(patience)
}

// wholePool cuts all links of the pool, so that its evictions are held.
func (p *prometheus) wholePool() {
	p.Say("cutting the WAN links of all nodes")
	p.Cut("pool/p1")
	p.shown("the pool is shown as cut off", `max by (pool) (coordinator_controller_pool_evictions_held) == 1`, 1)
	p.Heal("pool/p1")
	p.Eventually(patience, "all nodes are Ready", p.Pool.NodesReady)
	// What the agents have kept during the cut arrives.
	p.shown("all hubs are seen as they are now", fmt.Sprintf(`timestamp(up{job="yurthub"}) > %d`, time.Now().Unix()),
		p.Config.Nodes)
}

// asksAll asks every query of every dashboard about the time since, and judges the answers.
func (p *prometheus) asksAll(since time.Time) {
	files, err := filepath.Glob(filepath.Join(p.Config.Chart, "..", "..", "dashboards", "*.json"))
	if err != nil || len(files) != 4 {
		p.Fail("dashboards: %v, %v", files, err)
	}
	asked, wrong := 0, []string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		p.Must(err)
		d, err := panels.Read(content)
		p.Must(err)
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		for _, values := range p.choices(d, since) {
			for _, q := range d.Queries {
				asked++
				if err := p.asks(name, q, values, since); err != nil {
					wrong = append(wrong, fmt.Sprintf("%s/%s %s with %v: %v", name, q.Panel, q.Ref, values, err))
				}
			}
		}
	}
	p.Figure("queries", float64(asked))
	for _, panel := range moved {
		if p.highest[panel] <= 0 {
			wrong = append(wrong, panel+" shows nothing of what has happened")
		}
	}
	if len(wrong) > 0 {
		p.Fail("of %d queries %d are wrong:\n%s", asked, len(wrong), strings.Join(wrong, "\n"))
	}
}

// choices returns what a person can choose for a dashboard's variables, as Grafana finds it out.
func (p *prometheus) choices(d panels.Dashboard, since time.Time) []map[string]string {
	all := []map[string]string{{"__rate_interval": rateInterval.String()}}
	for _, v := range d.Variables {
		found, _, err := p.api.LabelValues(p.Ctx, v.Label, []string{v.Metric}, since, time.Now())
		p.Must(err)
		if len(found) == 0 {
			p.Fail("the variable %s of %s has no values", v.Name, d.UID)
		}
		p.Say("%s: %s is one of %v", d.UID, v.Name, found)
		var more []map[string]string
		for _, values := range all {
			for _, value := range found {
				chosen := maps.Clone(values)
				chosen[v.Name] = string(value)
				more = append(more, chosen)
			}
		}
		all = more
	}
	return all
}

// asks asks one query, and returns what is wrong with the answer.
func (p *prometheus) asks(dashboard string, q panels.Query, values map[string]string, since time.Time) error {
	expr, err := q.With(values)
	if err != nil {
		return err
	}
	var matrix model.Matrix
	if q.Table {
		matrix, err = p.moments(expr, since)
	} else {
		matrix, err = p.course(expr, since)
	}
	if err != nil {
		return err
	}
	reason, maySay := silent[dashboard+"/"+q.Panel+" "+q.Ref]
	switch {
	case len(matrix) == 0 && maySay:
		p.Say("%s/%s %s: nothing (%s)", dashboard, q.Panel, q.Ref, reason)
		return nil
	case len(matrix) == 0:
		return fmt.Errorf("no series: %s", expr)
	}
	p.highest[dashboard+"/"+q.Panel] = max(p.highest[dashboard+"/"+q.Panel], panels.Highest(matrix))
	return q.Wrong(matrix)
}

// course asks as a panel with lines does.
func (p *prometheus) course(expr string, since time.Time) (model.Matrix, error) {
	answer, warnings, err := p.api.QueryRange(p.Ctx, expr, prometheusv1.Range{Start: since, End: time.Now(), Step: scrapeEvery})
	if err != nil {
		return nil, err
	}
	if len(warnings) > 0 {
		return nil, fmt.Errorf("a warning: %v", warnings)
	}
	matrix, ok := answer.(model.Matrix)
	if !ok {
		return nil, fmt.Errorf("the answer is a %s", answer.Type())
	}
	return matrix, nil
}

// moments asks as a table does that somebody looks at now and then.
func (p *prometheus) moments(expr string, since time.Time) (all model.Matrix, err error) {
	for at := since; at.Before(time.Now()); at = at.Add(2 * scrapeEvery) {
		answer, warnings, err := p.api.Query(p.Ctx, expr, at)
		if err != nil {
			return nil, err
		}
		if len(warnings) > 0 {
			return nil, fmt.Errorf("a warning: %v", warnings)
		}
		for _, s := range asVector(answer) {
			all = append(all, &model.SampleStream{
				Metric: s.Metric, Values: []model.SamplePair{{Timestamp: s.Timestamp, Value: s.Value}},
			})
		}
	}
	return all, nil
}
