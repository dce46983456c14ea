package wanday

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/bench"
	"yurtcoordinator/lab/wire"
)

// reading is what has been counted up to a moment.
type reading struct {
	at     time.Time
	cables map[string]wire.Bytes
	// spent is what the hubs' connections to the cloud have carried both ways, by node and kind: TCP's payload.
	spent map[string]map[string]uint64
}

// counter is the hubs' metric.
const counter = "yurthub_upstream_bytes_total"

// read reads the hubs first: what they send meanwhile is at most some hundred bytes.
func (c Config) read(ctx context.Context, kinds map[string]Kind) (reading, error) {
	r := reading{spent: map[string]map[string]uint64{}}
	for node, kind := range kinds {
		if kind == NoHub {
			continue
		}
		spent, err := c.spent(ctx, node)
		if err != nil {
			return reading{}, fmt.Errorf("metrics of %s: %w", node, err)
		}
		r.spent[node] = spent
	}
	var err error
	r.cables, err = c.Lab.Traffic(ctx, false)
	r.at = time.Now()
	return r, err
}

// spent asks a node's hub, over the node's own loopback.
func (c Config) spent(ctx context.Context, node string) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, to string) (net.Conn, error) {
		return c.Lab.Dial(ctx, node, to)
	}}
	content, err := bench.Get(ctx, &http.Client{Transport: transport},
		fmt.Sprintf("http://127.0.0.1:%d/metrics", edge.PortHubHealth))
	if err != nil {
		return nil, err
	}
	return spentOn(bytes.NewReader(content))
}

// spentOn returns what connections to the cloud have carried, by kind.
func spentOn(metrics io.Reader) (map[string]uint64, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return nil, err
	}
	spent := map[string]uint64{}
	for _, m := range families[counter].GetMetric() {
		if labelled(m, "upstream") == "cloud" {
			spent[labelled(m, "kind")] += uint64(m.GetCounter().GetValue())
		}
	}
	if len(spent) == 0 {
		return nil, fmt.Errorf("there is no %s of the cloud", counter)
	}
	return spent, nil
}

func labelled(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// since returns what was spent from an earlier reading of the same hub on.
func since(before, after map[string]uint64) map[string]uint64 {
	spent := map[string]uint64{}
	for kind, n := range after {
		spent[kind] = n - before[kind]
	}
	return spent
}

// countRequests counts requests by their node and by what they are.
func countRequests(all []lab.Request) map[string]map[string]int {
	counts := map[string]map[string]int{}
	for _, r := range all {
		if counts[r.Node] == nil {
			counts[r.Node] = map[string]int{}
		}
		counts[r.Node][r.Agent+" "+r.Verb+" "+r.What]++
	}
	return counts
}
