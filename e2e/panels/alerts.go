package panels

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"
)

// Group is a group of rules, as a PrometheusRule and Prometheus' own files have it.
type Group struct {
	Name  string `json:"name"`
	Rules []Rule `json:"rules"`
}

// Rule is an alert.
type Rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// ReadAlerts reads groups of alerts, as the chart has them in a file.
func ReadAlerts(content []byte) ([]Group, error) {
	var groups []Group
	if err := yaml.UnmarshalStrict(content, &groups); err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	return groups, nil
}

// rangeSelector is the time that a query looks back.
var rangeSelector = regexp.MustCompile(`\[(\w+)\]|\boffset (\d\w*)`)

// Hastened returns the alerts as they are where time runs faster, for each alert by its own factor: they wait, and look back, for
// that much less. What an expression itself counts in seconds stays.
func Hastened(groups []Group, factor func(alert string) int) ([]Group, error) {
	hastened := slices.Clone(groups)
	for i := range hastened {
		hastened[i].Rules = slices.Clone(hastened[i].Rules)
		for j := range hastened[i].Rules {
			rule := &hastened[i].Rules[j]
			var err error
			faster := func(length string) string {
				d, failed := model.ParseDuration(length)
				if failed != nil {
					err = fmt.Errorf("alert %s: %w", rule.Alert, failed)
				}
				return model.Duration(time.Duration(d) / time.Duration(factor(rule.Alert))).String()
			}
			if rule.For != "" {
				rule.For = faster(rule.For)
			}
			rule.Expr = rangeSelector.ReplaceAllStringFunc(rule.Expr, func(selector string) string {
				of := rangeSelector.FindStringSubmatch(selector)
				if of[1] != "" {
					return "[" + faster(of[1]) + "]"
				}
				return "offset " + faster(of[2])
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return hastened, nil
}

// RulesFile returns groups as a file of Prometheus' own.
func RulesFile(groups []Group) ([]byte, error) {
	return yaml.Marshal(map[string]any{"groups": groups})
}
