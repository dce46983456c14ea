package panels

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
)

const example = `{"uid": "d", "templating": {"list": [
	{"name": "datasource", "type": "datasource"},
	{"name": "pool", "type": "query", "query": {"query": "label_values(led, pool)", "refId": "pool"}}]},
  "panels": [{"type": "row", "title": "Links"},
    {"type": "stat", "title": "Led", "fieldConfig": {"defaults": {"unit": "short", "mappings": [
       {"type": "value", "options": {"1": {"text": "yes"}, "-1": {"text": "not known"}}}]}}, "targets": [
       {"refId": "A", "expr": "led{pool=\"$pool\"}"}]},
    {"type": "table", "title": "Nodes", "targets": [{"refId": "A", "expr": "cut"}]},
    {"type": "timeseries", "title": "Life", "fieldConfig": {"defaults": {"unit": "percentunit"}}, "targets": [
       {"refId": "A", "expr": "rate(a[$__rate_interval])", "legendFormat": "{{state}}"}, {"refId": "B", "expr": "b"}]}]}`

func TestRead(t *testing.T) {
	d, err := Read([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if d.UID != "d" || !slices.Equal(d.Variables, []Variable{{"pool", "led", "pool"}}) {
		t.Errorf("%+v", d)
	}
	want := []Query{
		{Panel: "Led", Ref: "A", Expr: `led{pool="$pool"}`, Unit: "short", Lowest: -1, Single: true},
		{Panel: "Nodes", Ref: "A", Expr: "cut", Table: true},
		{Panel: "Life", Ref: "A", Expr: "rate(a[$__rate_interval])", Legend: "{{state}}", Unit: "percentunit"},
		{Panel: "Life", Ref: "B", Expr: "b", Unit: "percentunit"},
	}
	if !slices.Equal(d.Queries, want) {
		t.Errorf("queries\n%+v, want\n%+v", d.Queries, want)
	}
	for _, bad := range []string{"{", strings.Replace(example, "label_values(led, pool)", "query_result(led)", 1)} {
		if d, err := Read([]byte(bad)); err == nil {
			t.Errorf("%s: %+v", bad, d)
		}
	}
}

func TestWith(t *testing.T) {
	q := Query{Panel: "P", Expr: `rate(a{pool="$pool"}[$__rate_interval])`}
	expr, err := q.With(map[string]string{"pool": "p1", "__rate_interval": "10s"})
	if err != nil || expr != `rate(a{pool="p1"}[10s])` {
		t.Errorf("%s, %v", expr, err)
	}
	if expr, err = q.With(map[string]string{"pool": "p1"}); err == nil {
		t.Errorf("without an interval: %s", expr)
	}
}

// TestOurs: all of our dashboards can be read, and have variables for what they ask.
func TestOurs(t *testing.T) {
	files, err := filepath.Glob("../../../deploy/dashboards/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("dashboards: %v, %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Read(content)
		if err != nil || len(d.Queries) < 10 {
			t.Fatalf("%s: %+v, %v", file, d, err)
		}
		values := map[string]string{"__rate_interval": "4m"}
		for _, v := range d.Variables {
			values[v.Name] = "x"
		}
		for _, q := range d.Queries {
			if _, err := q.With(values); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

func series(labels model.Metric, values ...float64) *model.SampleStream {
	s := &model.SampleStream{Metric: labels}
	for i, v := range values {
		s.Values = append(s.Values, model.SamplePair{Timestamp: model.Time(i * 1000), Value: model.SampleValue(v)})
	}
	return s
}

func TestWrong(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	const two = "two series are called"
	up, down := model.Metric{"state": "up"}, model.Metric{"state": "down"}
	for name, test := range map[string]struct {
		query  Query
		answer model.Matrix
		why    string // empty: nothing is wrong
	}{
		"none":               {Query{}, nil, ""},
		"two states":         {Query{Legend: "hubs: {{state}}"}, model.Matrix{series(up, 1, 0), series(down, 0, 1)}, ""},
		"a label is missing": {Query{Legend: "{{kind}}"}, model.Matrix{series(up, 1)}, `the legend "{{kind}}" names nothing`},
		"two of one name":    {Query{Legend: "hubs"}, model.Matrix{series(up, 1), series(down, 1)}, two},
		"rows":               {Query{Table: true}, model.Matrix{series(up, 1), series(down, 1)}, ""},
		"a stat of two": {Query{Single: true, Legend: "{{state}}"}, model.Matrix{series(up, 1), series(down, 1)},
			"2 series"},
		"negative":      {Query{}, model.Matrix{series(up, 3, -1)}, "can't be negative"},
		"a name for it": {Query{Lowest: -1}, model.Matrix{series(up, 1, -1)}, ""},
		"infinite":      {Query{}, model.Matrix{series(up, 3, inf)}, "+Inf"},
		"not a number":  {Query{}, model.Matrix{series(up, 3, nan)}, "NaN"},
		"half":          {Query{Unit: "percentunit"}, model.Matrix{series(up, 0.5)}, ""},
		"more than all": {Query{Unit: "percentunit"}, model.Matrix{series(up, 50)}, "a share of 50"},
	} {
		err := test.query.Wrong(test.answer)
		if (err != nil) != (test.why != "") || err != nil && !strings.Contains(err.Error(), test.why) {
			t.Errorf("%s: %v, want %q", name, err, test.why)
		}
	}
}

func TestHighest(t *testing.T) {
	if got := Highest(model.Matrix{series(nil, 1, 3, 2), series(nil, 2)}); got != 3 {
		t.Errorf("%v, want 3", got)
	}
	if got := Highest(nil); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
