package yurtlab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e"
	"yurtcoordinator/lab/e2e/kit"
)

func TestMatrix(t *testing.T) {
	for _, tt := range []struct{ versions, want string }{
		{"1.36", "1.36/1.36"},
		{"1.33 1.34", "1.33/1.33 1.34/1.33"},
		{"1.33 1.34 1.35 1.36 1.37",
			"1.33/1.33 1.34/1.33 1.35/1.34 1.35/1.33 1.36/1.35 1.36/1.34 1.36/1.33 1.37/1.36 1.37/1.35 1.37/1.34"},
		{"1.33 1.37", "1.33/1.33 1.37/1.37"},
		{"1.8 1.9 1.10", "1.8/1.8 1.9/1.8 1.10/1.9 1.10/1.8"},
	} {
		var got []string
		for _, p := range matrix(strings.Fields(tt.versions)) {
			got = append(got, p.Cloud+"/"+p.Kubelet)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", tt.versions, got, tt.want)
		}
	}
}

func TestPairs(t *testing.T) {
	got, err := pairs([]string{"1.34", "1.37"}, []string{"1.33", "1.36"})
	if want := []pair{{"1.34", "1.33"}, {"1.37", "1.36"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if got, err := pairs(nil, nil); got != nil || err != nil {
		t.Errorf("nothing is said: %v, %v", got, err)
	}
	if _, err := pairs([]string{"1.34"}, nil); err == nil || !strings.Contains(err.Error(), "--kubelet 0 times") {
		t.Errorf("a cloud without kubelets: %v", err)
	}
}

// TestCore: the names are scenarios, and their labs can be had in other versions.
func TestCore(t *testing.T) {
	for _, name := range core {
		s, err := e2e.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := pair{"1.34", "1.33"}.of(s.Lab)
		if cfg.Name = "x"; cfg.Kubelet == "" {
			t.Errorf("%s: %+v", name, cfg)
		}
		if err := cfg.Validate(); err != nil || cfg.Kubernetes != "1.34" || cfg.KubeletVersion != "1.33" {
			t.Errorf("%s: %+v: %v", name, cfg, err)
		}
	}
}

func TestSkew(t *testing.T) {
	scenarios := []kit.Scenario{{Name: "one"}, {Name: "two"}}
	all := []pair{{"1.34", "1.33"}, {"1.37", "1.36"}}
	var out strings.Builder
	var ran []string
	err := skew(t.Context(), &out, all, scenarios, true, func(_ context.Context, _ io.Writer, p pair, s kit.Scenario) kit.Result {
		ran = append(ran, fmt.Sprintf("%s %s", p, s.Name))
		if p.Cloud == "1.34" && s.Name == "one" {
			return kit.Result{Error: "it does not boot"}
		}
		return kit.Result{Passed: true}
	})
	if err == nil || err.Error() != "1 of 4 failed" {
		t.Errorf("%v, want that one failed", err)
	}
	want := []string{
		"1.34 with kubelets 1.33 one", "1.34 with kubelets 1.33 two",
		"1.37 with kubelets 1.36 one", "1.37 with kubelets 1.36 two",
	}
	if !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, want := range []string{
		"CLOUD  KUBELETS  ONE          TWO",
		"1.34   1.33      FAILED (0s)  passed (0s)",
		"1.37   1.36      passed (0s)  passed (0s)",
		"1.34 with kubelets 1.33: one: it does not boot",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q in:\n%s", want, out.String())
		}
	}
	var outcomes []outcome
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &outcomes); err != nil || len(outcomes) != 4 ||
		outcomes[0].Passed || !outcomes[3].Passed || outcomes[3].Kubelet != "1.36" {
		t.Errorf("the last line: %v, %+v", err, outcomes)
	}

	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := skew(stopped, io.Discard, all, scenarios, false, nil); err == nil {
		t.Error("what was stopped has passed")
	}
}

// TestPairOf: a lab without kubelets stays one, and an installed one stays installed.
func TestPairOf(t *testing.T) {
	p := pair{"1.37", "1.36"}
	if cfg := p.of(kit.HubsAlone); !cfg.NoKubelet || cfg.Kubelet != lab.Hollow {
		t.Errorf("without kubelets: %+v", cfg)
	}
	if cfg := p.of(lab.Config{Kubelet: lab.Hollow}); cfg.Kubelet != lab.Real {
		t.Errorf("hollow kubelets: %+v", cfg)
	}
	if cfg := p.of(kit.OnePool.AsInstalled()); !cfg.Installed || cfg.KubeletVersion != "1.36" {
		t.Errorf("installed: %+v", cfg)
	}
}
