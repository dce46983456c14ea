package kit

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/lab"
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
	return cloud.t.metric(cloud, name, labels)
}

// Metric is Node.Metric for the first pool's coordinator.
func (pool Pool) Metric(name string, labels ...string) float64 {
	return pool.t.metric(pool.Coordinator(lab.Operator), name, labels)
}

func (t *T) metric(server kubernetes.Interface, name string, labels []string) float64 {
	text, err := server.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Ctx)
	t.Must(err)
	sum, err := SumOf(string(text), name, labels)
	t.Must(err)
	return sum
}
