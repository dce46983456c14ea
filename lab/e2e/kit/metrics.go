package kit

import (
	"fmt"
	"strconv"
	"strings"
)

// SumOf adds up the series of a metric, in the format of Prometheus, that have each of these labels, as name="value".
func SumOf(text, name string, labels []string) (sum float64, err error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		at := strings.LastIndexByte(rest, ' ')
		if !hasAll(rest[:at], labels) {
			continue
		}
		value, err := strconv.ParseFloat(rest[at+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("the metric %s: %w", name, err)
		}
		sum += value
	}
	return sum, nil
}

func hasAll(series string, labels []string) bool {
	for _, label := range labels {
		if !strings.Contains(series, "{"+label) && !strings.Contains(series, ","+label) {
			return false
		}
	}
	return true
}

// Metric is Node.Metric for the cloud's API server.
func (cloud Cloud) Metric(name string, labels ...string) float64 {
	text, err := cloud.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(cloud.t.Ctx)
	cloud.t.Must(err)
	sum, err := SumOf(string(text), name, labels)
	cloud.t.Must(err)
	return sum
}
