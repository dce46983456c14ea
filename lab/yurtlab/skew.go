package yurtlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/version"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/build"
	"yurtcoordinator/lab/e2e"
	"yurtcoordinator/lab/e2e/kit"
)

// pair is the minor version of Kubernetes of a cloud, and that of its nodes.
type pair struct {
	Cloud   string `json:"cloud"`
	Kubelet string `json:"kubelet"`
}

func (p pair) String() string { return p.Cloud + " with kubelets " + p.Kubelet }

// matrix returns the pairs of versions to run. Each cloud is paired with the kubelets of up to three minor versions before its
// own; a cloud without such kubelets is paired with its own version. versions must be in order.
func matrix(versions []string) []pair {
	var all []pair
	for i, cloud := range versions {
		before := versions[max(0, i-build.KubeletSkew):i]
		before = slices.DeleteFunc(slices.Clone(before), func(kubelet string) bool {
			oldest := version.MustParseMajorMinor(kubelet).AddMinor(build.KubeletSkew)
			return oldest.LessThan(version.MustParseMajorMinor(cloud))
		})
		slices.Reverse(before)
		if len(before) == 0 {
			before = []string{cloud}
		}
		for _, kubelet := range before {
			all = append(all, pair{cloud, kubelet})
		}
	}
	return all
}

// pairs returns the pairs that the command line names; nil if it names none.
func pairs(clouds, kubelets []string) ([]pair, error) {
	if len(clouds) != len(kubelets) {
		return nil, fmt.Errorf("--cloud is given %d times, and --kubelet %d times: want one of each for a pair", len(clouds),
			len(kubelets))
	}
	var all []pair
	for i := range clouds {
		all = append(all, pair{clouds[i], kubelets[i]})
	}
	return all, nil
}

// core are the scenarios that show whether a version of Kubernetes works. They cover the loss of a node, what the pool shares
// and keeps, what operators see, what programs get through a hub, and the chart.
var core = []string{"cut-one", "offline-restart", "installed", "kill-one", "handover", "machinery", "ops-while-cut"}

// outcome is the result of one scenario with one pair.
type outcome struct {
	pair
	Scenario string  `json:"scenario"`
	Passed   bool    `json:"passed"`
	Error    string  `json:"error,omitempty"`
	Seconds  float64 `json:"seconds"`
}

func skewCommand() *cobra.Command {
	var output string
	var clouds, kubelets []string
	names := core
	cmd := &cobra.Command{
		Use: "skew", Short: "Run the core of the scenarios with clouds and kubelets of other versions, and print a table",
		Args: cobra.NoArgs,
		Long: `Run the core of the scenarios with clouds and kubelets of other versions of Kubernetes, and print a table of what
passed. Each --cloud goes with the --kubelet at the same position. Without them it runs all pairs: each available version
with kubelets one to three minor versions older. Hubs and coordinators are ours. A version is built when it is first
needed, which takes minutes.`,
		Example: "  yurtlab skew --cloud 1.34 --kubelet 1.33 --cloud 1.37 --kubelet 1.36 --scenarios cut-one,installed",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := pairs(clouds, kubelets)
			if err != nil {
				return err
			}
			if all == nil {
				root, err := moduleRoot()
				if err != nil {
					return err
				}
				versions, _, err := build.Versions(cmd.Context(), root)
				if err != nil {
					return err
				}
				all = matrix(versions)
			}
			var scenarios []kit.Scenario
			for _, name := range names {
				s, err := e2e.Find(name)
				if err != nil {
					return err
				}
				scenarios = append(scenarios, s)
			}
			run := func(ctx context.Context, out io.Writer, p pair, s kit.Scenario) kit.Result {
				return runPair(ctx, out, nameOr(cmd, s.LabName("skew")), p, s)
			}
			return skew(cmd.Context(), cmd.OutOrStdout(), all, scenarios, output == "json", run)
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().StringArrayVar(&clouds, "cloud", nil, "minor version of a pair's cloud; may be repeated")
	cmd.Flags().StringArrayVar(&kubelets, "kubelet", nil, "minor version of that pair's kubelets; may be repeated")
	cmd.Flags().StringSliceVar(&names, "scenarios", names, "which scenarios to run")
	return cmd
}

// skew runs every scenario with every pair, each in its own lab, and then prints all outcomes. It goes on after a failure.
func skew(ctx context.Context, out io.Writer, all []pair, scenarios []kit.Scenario, asJSON bool,
	run func(context.Context, io.Writer, pair, kit.Scenario) kit.Result,
) error {
	var outcomes []outcome
	failed := 0
	for _, p := range all {
		for _, s := range scenarios {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			fmt.Fprintf(out, "== %s: %s\n", p, s.Name)
			began := time.Now()
			r := run(ctx, out, p, s)
			if !r.Passed {
				failed++
			}
			outcomes = append(outcomes, outcome{p, s.Name, r.Passed, r.Error, time.Since(began).Round(time.Second).Seconds()})
		}
	}
	fmt.Fprintln(out)
	if err := skewTable(out, scenarios, outcomes); err != nil {
		return err
	}
	if asJSON {
		if err := json.NewEncoder(out).Encode(outcomes); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d failed", failed, len(outcomes))
	}
	return nil
}

// runPair runs a scenario in a lab of this name and these versions.
func runPair(ctx context.Context, out io.Writer, name string, p pair, s kit.Scenario) kit.Result {
	return kit.Run(ctx, s, kit.Options{
		LabName: name, Out: out,
		Start: func(ctx context.Context, cfg lab.Config) (*lab.Client, error) {
			return start(ctx, out, p.of(cfg), false)
		},
	})
}

// of returns a scenario's lab in these versions. Its kubelets are real: hollow ones are of our own version.
func (p pair) of(cfg lab.Config) lab.Config {
	cfg.Kubernetes, cfg.KubeletVersion = p.Cloud, p.Kubelet
	if !cfg.NoKubelet {
		cfg.Kubelet = lab.Real
	}
	return cfg
}

// skewTable prints a row for each pair and a column for each scenario; failures are told below it.
func skewTable(w io.Writer, scenarios []kit.Scenario, outcomes []outcome) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := []string{"CLOUD", "KUBELETS"}
	for _, s := range scenarios {
		head = append(head, strings.ToUpper(s.Name))
	}
	fmt.Fprintln(t, strings.Join(head, "\t"))
	var why []error
	for row := range slices.Chunk(outcomes, max(1, len(scenarios))) {
		cells := []string{row[0].Cloud, row[0].Kubelet}
		for _, o := range row {
			cell := "passed"
			if !o.Passed {
				cell = "FAILED"
				why = append(why, fmt.Errorf("%s: %s: %s", o.pair, o.Scenario, o.Error))
			}
			cells = append(cells, fmt.Sprintf("%s (%.0fs)", cell, o.Seconds))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(why) > 0 {
		fmt.Fprintf(w, "\n%v\n", errors.Join(why...))
	}
	return nil
}
