package bench

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// rounds makes rounds of 1 s with these numbers of requests, and a p50 that is their inverse.
func rounds(requests ...int) []Round {
	var all []Round
	for _, n := range requests {
		latency := time.Second / time.Duration(n)
		all = append(all, Round{
			Requests: n, Bytes: int64(n) * 1e6, Elapsed: time.Second,
			Latency: Quantiles{P50: latency, P99: 2 * latency},
			Hub:     time.Duration(n) * 50 * time.Microsecond, Server: time.Duration(n) * 300 * time.Microsecond,
			Client: time.Duration(n) * 40 * time.Microsecond, Proxy: time.Duration(n) * 80 * time.Microsecond,
		})
	}
	return all
}

func TestCompareTakesTheHarderReference(t *testing.T) {
	trial := Trial{HTTP2: rounds(1000, 1000, 500), HTTP1: rounds(1250, 800, 800), Hub: rounds(900, 500, 900)}
	for _, c := range []struct {
		name        string
		by          better
		figure      func(Round) float64
		against     Way
		ours, ratio float64
	}{
		{"rate", higher, Round.perSecond, HTTP2, 900, 0.9},
		{"p50", lower, Round.p50, HTTP2, 1.111, 1.111},
		{"p99", lower, Round.p99, HTTP2, 2.222, 1.111},
	} {
		row := compare(trial, c.by, c.figure, Row{Key: c.name})
		if row.Against != c.against || math.Abs(row.Ours-c.ours) > 0.001 || math.Abs(row.Ratio-c.ratio) > 0.001 {
			t.Errorf("%s: %+v, want %v against %s, ratio %v", c.name, row, c.ours, c.against, c.ratio)
		}
	}
	plain := Trial{HTTP2: rounds(1000, 1000, 1000), Proxy: rounds(500, 1000, 500), Hub: rounds(400, 500, 400)}
	if row := compare(plain, higher, Round.perSecond, Row{}); row.Floor != 500 || row.ToFloor != 0.8 || row.Ratio != 0.4 {
		t.Errorf("%+v, want the ratio of each round to the plain proxy's, 0.8", row)
	}
	slowed := Trial{HTTP2: rounds(800, 800, 800), HTTP1: rounds(1250, 1250, 500), Hub: rounds(1000, 1000, 400)}
	row := compare(slowed, higher, Round.perSecond, Row{})
	if row.Against != HTTP1 || row.Ratio != 0.8 {
		t.Errorf("%+v, want the ratio of each round, 0.8, against HTTP/1.1", row)
	}
}

func TestOver(t *testing.T) {
	for _, c := range []struct {
		row  Row
		want bool
		text string
	}{
		{Row{Ratio: 9, Ours: 9, Added: 9}, false, ""},
		{Row{Ratio: 1.3, Budget: Budget{RatioAtMost, 1.3}}, false, "≤ 1.3×"},
		{Row{Ratio: 1.31, Budget: Budget{RatioAtMost, 1.3}}, true, "≤ 1.3×"},
		{Row{Ratio: 0.9, Budget: Budget{RatioAtLeast, 0.9}}, false, "≥ 0.9×"},
		{Row{Ratio: 0.89, Budget: Budget{RatioAtLeast, 0.9}}, true, "≥ 0.9×"},
		{Row{Ours: 32.1, Unit: "MB", Budget: Budget{OursAtMost, 32}}, true, "≤ 32 MB"},
		{Row{Ours: 31.9, Unit: "MB", Budget: Budget{OursAtMost, 32}}, false, "≤ 32 MB"},
		{Row{Added: 21, Unit: "ms", Budget: Budget{AddedAtMost, 20}}, true, "≤ +20 ms"},
		{Row{Added: -1, Unit: "ms", Budget: Budget{AddedAtMost, 20}}, false, "≤ +20 ms"},
		{Row{ToFloor: 1.11, Budget: Budget{FloorAtMost, 1.1}}, true, "≤ 1.1× proxy"},
		{Row{ToFloor: 1.1, Ratio: 9, Budget: Budget{FloorAtMost, 1.1}}, false, "≤ 1.1× proxy"},
		{Row{ToFloor: 0.89, Ratio: 9, Budget: Budget{FloorAtLeast, 0.9}}, true, "≥ 0.9× proxy"},
		{Row{ToFloor: 0.9, Budget: Budget{FloorAtLeast, 0.9}}, false, "≥ 0.9× proxy"},
	} {
		if got := c.row.Over(); got != c.want {
			t.Errorf("%+v: over %v, want %v", c.row, got, c.want)
		}
		if got := c.row.budget(); got != c.text {
			t.Errorf("%+v: budget %q, want %q", c.row, got, c.text)
		}
	}
}

// measured is what a Load might answer: GETs over budget in p50 but not in rate, everything else within.
func measured() Measured {
	m := Measured{
		GetOne: map[Encoding]Trial{}, GetMany: map[Encoding]Trial{},
		Heartbeat:       Trial{HTTP2: rounds(500), Hub: rounds(250)},
		HubIdle:         Memory{RSS: 30e6, Anonymous: 6e6},
		HubLoaded:       Memory{RSS: 40e6, Anonymous: 16e6},
		CoordinatorIdle: Memory{RSS: 120e6, Anonymous: 45e6},
	}
	for _, e := range []Encoding{JSON, Protobuf} {
		m.GetOne[e] = Trial{HTTP2: rounds(1000), HTTP1: rounds(900), Proxy: rounds(800), Hub: rounds(500)}
		m.GetMany[e] = Trial{HTTP2: rounds(900), HTTP1: rounds(1000), Proxy: rounds(950), Hub: rounds(950)}
	}
	return m
}

func TestReport(t *testing.T) {
	starts := []time.Duration{3 * time.Second, 200 * time.Millisecond, 300 * time.Millisecond}
	r := newReport(measured(), starts)
	got := r.Figures()
	for name, want := range map[string]float64{
		"over_budget":        2,
		"get_json_p50_ratio": 2, "get_json_p50_hub_ms": 2, "get_json_p50_direct_ms": 1,
		"get_json_p50_proxy_ms": 1.25, "get_json_p50_to_proxy_ratio": 1.6, "get_json_rate_to_proxy_ratio": 1,
		"get_protobuf_rate_ratio": 0.95, "get_protobuf_rate_direct_per_s": 1000,
		"get_protobuf_rate_http2_per_s": 900,
		"heartbeat_p50_ratio":           2,
		"hub_cpu_per_1000_gets_proxy_s": 0.08, "hub_cpu_per_1000_gets_to_proxy_ratio": 0.625,
		"hub_cpu_per_1000_gets_s": 0.05, "server_cpu_per_1000_gets_direct_s": 0.3, "client_cpu_per_1000_gets_ratio": 1,
		"hub_idle_rss_mb": 30, "hub_loaded_anonymous_mb": 16, "coordinator_idle_anonymous_mb": 45,
		"coordinator_start_s": 0.3,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("figure %s: %v (there: %v), want %v", name, v, ok, want)
		}
	}
	var table bytes.Buffer
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(table.String(), "\n")
	if n := strings.Count(table.String(), "OVER BUDGET"); n != 2 {
		t.Errorf("%d lines are marked, want 2:\n%s", n, table.String())
	}
	i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "GET p50, 1 connection, JSON") })
	if i < 0 || !strings.Contains(lines[i], "1.00 ms (HTTP/2)") || !strings.Contains(lines[i], "2.00×") ||
		!strings.Contains(lines[i], "1.25 ms") || !strings.Contains(lines[i], "1.60×") ||
		!strings.HasSuffix(lines[i], "OVER BUDGET") {
		t.Errorf("no line says that a GET takes 2 ms instead of 1:\n%s", table.String())
	}
}

// TestEveryFigureHasAName: a key that is given twice would hide one of the two.
func TestEveryFigureHasAName(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range newReport(measured(), nil).Rows {
		if row.Key == "" || row.What == "" || row.Unit == "" || seen[row.Key] {
			t.Errorf("row %+v: want a key of its own, a text and a unit", row)
		}
		seen[row.Key] = true
	}
}

func TestMedianAndQuantiles(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.in); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
	var all []time.Duration
	for i := 200; i > 0; i-- {
		all = append(all, time.Duration(i))
	}
	if got := quantiles(all); got != (Quantiles{P50: 100, P99: 198}) {
		t.Errorf("quantiles of 1 to 200: %v", got)
	}
	if got := quantiles(nil); got != (Quantiles{}) {
		t.Errorf("quantiles of nothing: %v", got)
	}
}
