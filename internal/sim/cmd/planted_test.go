package main

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

const root = "../../.."

// TestPlanted: what each fault changes is in the product, and what it is changed to is Go. Faults move with the code.
func TestPlanted(t *testing.T) {
	file, err := overlay(root, t.TempDir(), faults)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var is struct{ Replace map[string]string }
	if err := json.Unmarshal(content, &is); err != nil {
		t.Fatal(err)
	}
	for name, by := range is.Replace {
		if _, err := parser.ParseFile(token.NewFileSet(), by, nil, parser.SkipObjectResolution); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFaults: there are 20 at least, each clause of the oracle has one, and three changes are harmless.
func TestFaults(t *testing.T) {
	clauses := map[string]bool{}
	for file, has := range map[string]*regexp.Regexp{
		"oracle.go": regexp.MustCompile(`\{"(\w+)", func`), "readers.go": regexp.MustCompile(`j\.breach\("(\w+)", `),
	} {
		source, err := os.ReadFile(filepath.Join(root, "internal/sim/world", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range has.FindAllSubmatch(source, -1) {
			clauses[string(c[1])] = true
		}
	}
	names, caught, harmless := map[string]bool{}, map[string]bool{}, 0
	for _, f := range faults {
		if names[f.name] {
			t.Errorf("two faults are called %q", f.name)
		}
		names[f.name] = true
		if f.clause == "" {
			harmless++
			continue
		}
		caught[f.clause] = true
	}
	if len(faults)-harmless < 20 || harmless != 3 {
		t.Errorf("%d faults, and %d harmless changes", len(faults)-harmless, harmless)
	}
	if !maps.Equal(clauses, caught) {
		t.Errorf("the oracle has the clauses %q, and faults those of %q", slices.Sorted(maps.Keys(clauses)),
			slices.Sorted(maps.Keys(caught)))
	}
}

// TestOverlay: an original that is not there, or is there twice, or was changed by another fault, is an error.
func TestOverlay(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package a\n\nvar x, y = 1, 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plant := func(edits ...edit) error {
		_, err := overlay(dir, t.TempDir(), []fault{{name: "f", edits: edits}})
		return err
	}
	for what, edits := range map[string][]edit{
		"not there": {{"a.go", "z", "PLANTED"}}, "twice": {{"a.go", "1", "2"}}, "no such file": {{"b.go", "1", "2"}},
		"changed before": {{"a.go", "x, y", "y, x"}, {"a.go", "var x", "var z"}},
	} {
		if plant(edits...) == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if err := plant(edit{"a.go", "x, y", "y, x"}, edit{"a.go", "var", "const"}); err != nil {
		t.Error(err)
	}
}

// TestFind: a fault is found by its own clause, at a seed at which the product keeps that; what else breaks is noted.
func TestFind(t *testing.T) {
	simulation := filepath.Join(t.TempDir(), "simulation")
	if err := os.WriteFile(simulation, []byte(`#!/bin/sh
breach() {
	echo "    world_test.go:1: BREACH of seed $1: [\"$2: n1: it says \\\"no\\\"\" \"$3: n2: so\"]"
	exit 1
}
for seed in $(seq $SIM_FROM $((SIM_FROM + SIM_COUNT - 1))); do
	echo "    world_test.go:1: seed $seed: 200 simulated seconds for one of a processor"
	case "$SIM_PLANTED $seed" in
	*" 11") breach 11 alive alive ;;
	"late 12") breach 12 dead told ;;
	"late 19") breach 19 told alive ;;
	"gone 12") exit 3 ;;
	esac
done
`), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, want := (fault{name: "late", clause: "alive"}).find(t.Context(), simulation, t.TempDir(), 10), (found{
		by: "alive told, seed 19", other: "dead told, seed 12", seeds: 10,
	}); got.by != want.by || got.other != want.other || got.seeds != want.seeds || got.err != nil || got.spent <= 0 {
		t.Errorf("found %+v, want %+v", got, want)
	}
	got := (fault{name: "gone", clause: "alive"}).find(t.Context(), simulation, t.TempDir(), 10)
	if got.err == nil || got.by != "" {
		t.Errorf("a simulation that ends by itself: %+v", got)
	}
}
