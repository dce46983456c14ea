package cloud

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/e2e/panels"
	"yurtcoordinator/internal/lab"
)

var dashboardScenarios = []kit.Scenario{{
	Name: "dashboards", Tier: kit.Field, Lab: withPrometheus(kit.Joining(kit.OnePool.AsInstalled(), 0)), Run: dashboards,
	Doc: "A real Prometheus scrapes coordinator-controller by the chart's ServiceMonitors, over TLS that it verifies and with " +
		"their token; one on each node sends what it reads of the hub and, with a certificate that opens nothing else, of the " +
		"coordinator, as docs/metrics.md says. Links are cut, a leader and the controller are lost. The alerts that are about " +
		"this fire, sixty times as fast, and no others, ten times as fast; the commands of their runbooks work. Each query of " +
		"each dashboard has an answer that makes sense.",
}}

const (
	// rateInterval is what Grafana puts in the place of $__rate_interval: four times the interval of scrapes.
	rateInterval = 4 * scrapeEvery
	// patience is how long is waited for what comes within seconds on a machine with nothing else to do.
	patience = 3 * time.Minute
)

// silent are the queries (the letter is its target) that may have no series here, and why. They are asked all the same.
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

// seriesTo names the environment variable with a directory to be made, which gets what Prometheus has stored. `make pictures`
// draws it.
const seriesTo = "YURTLAB_SERIES"

func dashboards(t *kit.T) {
	alertsHold(t)
	t.Pool.Settled(patience)
	groups := monitored(t)
	p := newPrometheus(t)
	o := newOnCall(p, groups)
	began := time.Now()
	p.start(o.hastened())
	p.agents()
	p.scrapesAll()
	onlyMetrics(t)

	o.judged()
	o.quiet()
	o.linksOfTwo()
	o.leaderDies()
	o.lanOfOne()
	o.controllerGone()
	o.wholePool()
	o.judged()
	o.onlyThese(began)
	p.nobodyDeceived(began)
	p.asksAll(began)
	if to := os.Getenv(seriesTo); to != "" {
		p.Must(os.CopyFS(to, os.DirFS(filepath.Join(p.dir, "data"))))
	}
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
	if !q.Table {
		p.Say("%s/%s %s: %s", dashboard, q.Panel, q.Ref, panels.Shown(matrix))
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
