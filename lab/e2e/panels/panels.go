// Package panels reads what a person on call asks Prometheus: the panels and variables of Grafana dashboards. It also says what
// that person would find wrong with the answers. It sends no requests itself.
package panels

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Dashboard has the queries that a Grafana dashboard sends to Prometheus.
type Dashboard struct {
	UID       string
	Variables []Variable
	Queries   []Query
}

// Variable is a variable whose values are those of a metric's label.
type Variable struct{ Name, Metric, Label string }

// Query is one query of a panel.
type Query struct {
	// Panel is the panel's title; Ref tells its queries apart.
	Panel, Ref string
	// Expr is the expression, with the dashboard's variables in it.
	Expr string
	// Legend is the name of each series, with labels as {{label}}; empty means that the panel needs none.
	Legend string
	// Unit is Grafana's name of the unit.
	Unit string
	// Lowest is the least possible value. It is below zero if the panel has a name for such a value.
	Lowest float64
	// Single means that the panel shows one value.
	Single bool
	// Table means that the panel has a row for each series, as they are at one moment.
	Table bool
}

// labelValues is the only kind of variable that these dashboards have, besides the data source.
var labelValues = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)

// Read reads a dashboard.
func Read(content []byte) (Dashboard, error) {
	var model struct {
		UID        string
		Templating struct {
			List []struct {
				Name, Type string
				Query      json.RawMessage
			}
		}
		Panels []struct {
			Type, Title string
			FieldConfig struct {
				Defaults struct {
					Unit     string
					Mappings []struct{ Options map[string]any }
				}
			}
			Targets []struct{ RefID, Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(content, &model); err != nil {
		return Dashboard{}, fmt.Errorf("dashboard: %w", err)
	}
	d := Dashboard{UID: model.UID}
	for _, v := range model.Templating.List {
		if v.Type == "datasource" {
			continue
		}
		var asked struct{ Query string }
		if err := json.Unmarshal(v.Query, &asked); err != nil {
			return Dashboard{}, fmt.Errorf("dashboard %s: the variable %s: %w", d.UID, v.Name, err)
		}
		of := labelValues.FindStringSubmatch(asked.Query)
		if of == nil {
			return Dashboard{}, fmt.Errorf("dashboard %s: the variable %s is %q, want label_values(METRIC, LABEL)", d.UID, v.Name,
				asked.Query)
		}
		d.Variables = append(d.Variables, Variable{v.Name, of[1], of[2]})
	}
	for _, p := range model.Panels {
		lowest := 0.0
		for _, m := range p.FieldConfig.Defaults.Mappings {
			for value := range m.Options {
				if f, err := strconv.ParseFloat(value, 64); err == nil {
					lowest = min(lowest, f)
				}
			}
		}
		for _, t := range p.Targets {
			d.Queries = append(d.Queries, Query{
				Panel: p.Title, Ref: t.RefID, Expr: t.Expr, Legend: t.LegendFormat, Unit: p.FieldConfig.Defaults.Unit,
				Lowest: lowest, Single: p.Type == "stat", Table: p.Type == "table",
			})
		}
	}
	return d, nil
}

var variable = regexp.MustCompile(`\$(\w+)`)

// With returns the query's expression with these values in the place of variables.
func (q Query) With(values map[string]string) (string, error) {
	var unknown []string
	expr := variable.ReplaceAllStringFunc(q.Expr, func(name string) string {
		value, ok := values[name[1:]]
		if !ok {
			unknown = append(unknown, name)
		}
		return value
	})
	if len(unknown) > 0 {
		return "", fmt.Errorf("panel %q asks for %v, which has no value", q.Panel, unknown)
	}
	return expr, nil
}

// legendLabel is a label in a legend.
var legendLabel = regexp.MustCompile(`{{\s*(\w+)\s*}}`)

// Wrong says what a person on call would find wrong with an answer: a legend that names nothing, or two series with the same
// legend; several series where the panel shows one; and values that can't be.
func (q Query) Wrong(answer model.Matrix) error {
	named := map[string]bool{}
	for _, series := range answer {
		legend := legendLabel.ReplaceAllStringFunc(q.Legend, func(l string) string {
			value := series.Metric[model.LabelName(legendLabel.FindStringSubmatch(l)[1])]
			if value == "" {
				return "\x00"
			}
			return string(value)
		})
		if strings.Contains(legend, "\x00") {
			return fmt.Errorf("the legend %q names nothing in %v", q.Legend, series.Metric)
		}
		if named[legend] && !q.Table {
			return fmt.Errorf("two series are called %q", legend)
		}
		named[legend] = true
		if err := q.impossible(series.Values); err != nil {
			return fmt.Errorf("%v: %w", series.Metric, err)
		}
	}
	if q.Single && len(answer) > 1 {
		return fmt.Errorf("%d series, and the panel shows one", len(answer))
	}
	return nil
}

func (q Query) impossible(values []model.SamplePair) error {
	for _, v := range values {
		switch f := float64(v.Value); {
		case math.IsNaN(f), math.IsInf(f, 0):
			return fmt.Errorf("%v at %v", v.Value, v.Timestamp.Time().UTC().Format(time.TimeOnly))
		case f < q.Lowest:
			return fmt.Errorf("%v, which can't be negative, at %v", v.Value, v.Timestamp.Time().UTC().Format(time.TimeOnly))
		case q.Unit == "percentunit" && f > 1:
			return fmt.Errorf("a share of %v", v.Value)
		}
	}
	return nil
}

// Highest returns the highest value of an answer; of none, zero.
func Highest(answer model.Matrix) (highest float64) {
	for _, series := range answer {
		for _, v := range series.Values {
			highest = max(highest, float64(v.Value))
		}
	}
	return highest
}
