package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestThePicturesAreOfTheData holds the pictures to the results that they are drawn of, and the page to the pictures.
func TestThePicturesAreOfTheData(t *testing.T) {
	const data, out = "../../docs/data", "../../docs/img"
	made := t.TempDir()
	if err := start([]string{"--data", data, "--out", made}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range pictures {
		want, err := os.ReadFile(filepath.Join(made, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/img/%s is not what docs/data/%s makes (%v): make plots", name, of.data, err)
		}
		wellFormed(t, name, want)
		if !bytes.Contains(page, []byte("](img/"+name+")")) {
			t.Errorf("docs/benchmarks.md does not show %s", name)
		}
		results, err := load(filepath.Join(data, of.data))
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range results.Runs {
			if run.Date == "" || run.Commit == "" || results.Machine == "" || results.Command == "" {
				t.Errorf("%s: %s: want date, commit, machine and command", of.data, run.Of)
			}
		}
	}
}

// wellFormed expects XML, with no number that is none.
func wellFormed(t *testing.T, name string, svg []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"NaN", "Inf"} {
		if bytes.Contains(svg, []byte(bad)) {
			t.Errorf("%s has %s", name, bad)
		}
	}
}

func TestMarks(t *testing.T) {
	for _, c := range []struct {
		of   axis
		want []float64
	}{
		{axis{to: 1}, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{axis{to: 60}, []float64{0, 10, 20, 30, 40, 50, 60}},
		{axis{to: 280}, []float64{0, 50, 100, 150, 200, 250}},
		{axis{from: -2, to: 2}, []float64{-2, -1, 0, 1, 2}},
		{axis{from: 9, to: 12}, []float64{9, 9.5, 10, 10.5, 11, 11.5, 12}},
		{axis{from: 1e5, to: 1e7, log: true}, []float64{1e5, 1e6, 1e7}},
		{axis{from: 3, to: 30, log: true, ticks: []float64{3, 10}}, []float64{3, 10}},
	} {
		var got, want []string
		for _, v := range c.of.marks() {
			got = append(got, c.of.text(v))
		}
		for _, v := range c.want {
			want = append(want, c.of.text(v))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: %v, want %v", c.of, got, want)
		}
	}
}

func TestChart(t *testing.T) {
	c := chart{
		title: "a <title>", x: axis{to: 10}, y: axis{from: 1, to: 100, log: true},
		lines: []line{
			{name: "measured", points: []point{{0, 1}, {10, 100}}},
			{name: "steps", steps: true, points: []point{{0, 10}, {5, 100}}},
			{name: "a bound", dashed: true, points: []point{{0, 10}, {10, 10}}},
		},
	}
	svg := c.svg()
	wellFormed(t, "the chart", svg)
	if again := c.svg(); !bytes.Equal(svg, again) {
		t.Error("the same chart gives other bytes")
	}
	for _, has := range []string{
		"a &lt;title&gt;", `class="line s0" d="M78 364L738 100"`, `class="line s1" d="M78 232H408V100"`,
		`class="line s2 dashed" d="M78 232L738 232"`, "prefers-color-scheme: dark",
	} {
		if !strings.Contains(string(svg), has) {
			t.Errorf("it has no %s:\n%s", has, svg)
		}
	}
	if n := strings.Count(string(svg), "<circle"); n != 2 {
		t.Errorf("it has %d points, want those of the first line", n)
	}
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		log  string
		want Run
	}{
		"a result": {
			"  0.1s  figure: a = 9\n" + `{"scenario":"one-copy-3","passed":true,"figures":{"a":1.5}}` + "\n",
			Run{Of: "one-copy-3", Figures: map[string]float64{"a": 1.5}},
		},
		"a bench": {`{"bench":"hub","figures":{"a":1}}`, Run{Of: "hub", Figures: map[string]float64{"a": 1}}},
		"a transcript": {
			"    0.0s  scenario cut-one: It does.\n   1.0s  figure: a = 1\n" +
				"  20.0s  figure: a = 50\n   2.0s  figure: b = 1e+06\n 3.0s  passed\n",
			Run{Of: "cut-one", Figures: map[string]float64{"a": 1, "b": 1e6}},
		},
		"a benchmark": {
			"BenchmarkMemory/PodsAndNodes-2   \t1\t        46.5 loaded-anon-MB\t  125 loaded-rss-MB\t  562 patches/s\n" +
				"    memory_test.go:91: 10 s: map[anon-MB:52.5 rss-MB:143]\n" +
				"    memory_test.go:91: 20 s: map[anon-MB:53 rss-MB:144]\n",
			Run{
				Of: "BenchmarkMemory/PodsAndNodes", Figures: map[string]float64{"loaded-anon-MB": 46.5, "loaded-rss-MB": 125},
				Series: map[string][]point{"anon-MB": {{10, 52.5}, {20, 53}}, "rss-MB": {{10, 143}, {20, 144}}},
			},
		},
	} {
		got, err := read(c.log)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for name, log := range map[string]string{
		"nothing": "", "a run that failed": `{"scenario":"x","passed":false,"figures":{"a":1}}`,
		"a transcript that failed":  "  0.0s  scenario x: It.\n  1.0s  figure: a = 1\n  2.0s  FAILED: no\n",
		"a transcript that ends":    "  0.0s  scenario x: It.\n  1.0s  figure: a = 1\n",
		"a benchmark without times": "BenchmarkMemory/X-2 \t1\t 46.5 loaded-anon-MB\n",
	} {
		if got, err := read(log); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}
}

func TestKeep(t *testing.T) {
	dir := t.TempDir()
	log, kept := filepath.Join(dir, "log"), filepath.Join(dir, "kept.json")
	keep := func(text, date string, more ...string) Results {
		t.Helper()
		if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := start(append(append([]string{"--keep", kept, "--commit", "c", "--date", date}, more...), log)); err != nil {
			t.Fatal(err)
		}
		r, err := load(kept)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	keep(`{"scenario":"b","passed":true,"figures":{"x":1,"y":2}}`, "d1")
	keep(`{"scenario":"a","passed":true,"figures":{"x":1,"y":2}}`, "d2", "--only", "x,z")
	got := keep(`{"scenario":"b","passed":true,"figures":{"x":3}}`, "d3")
	want := []Run{
		{Of: "a", Date: "d2", Commit: "c", Figures: map[string]float64{"x": 1}},
		{Of: "b", Date: "d3", Commit: "c", Figures: map[string]float64{"x": 3}},
	}
	if !reflect.DeepEqual(got.Runs, want) {
		t.Errorf("kept %+v, want %+v", got.Runs, want)
	}
	for _, bad := range [][]string{{}, {"--keep", kept, log}, {"--data", dir, "--out", dir, log}} {
		if err := start(bad); err == nil {
			t.Errorf("%v: want an error", bad)
		}
	}
}

func TestPicturesWantWhatTheyShow(t *testing.T) {
	for name, of := range pictures {
		for _, r := range []Results{{}, {Runs: []Run{{Of: "x"}, {Of: "one-copy-3"}}}} {
			if c, err := of.chart(r); err == nil {
				t.Errorf("%s of %+v: %+v, want an error", name, r, c)
			}
		}
	}
}
