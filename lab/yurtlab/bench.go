package yurtlab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/balancer"
	"yurtcoordinator/lab/bench"
	"yurtcoordinator/lab/build"
	"yurtcoordinator/lab/connect"
	"yurtcoordinator/lab/converter"
	"yurtcoordinator/lab/prowl"
)

func benchCommand() *cobra.Command {
	var output, profiles string
	cmd := &cobra.Command{
		Use: "bench", Short: "Boot a lab, measure a hub against direct access in it, and end the lab",
		Args: cobra.NoArgs,
		Long: `Boot a lab of hubs and a coordinator, and measure what the hub adds to requests, heartbeats and
changes of pool resources, compared in the same run with direct access and with Caddy in the hub's place; and memory,
processor time and the coordinator's start. The load runs on a node's own network. This takes about six minutes; the
first time, Caddy is built. A figure over its budget is marked, but is no failure.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := runBench(cmd, nameOr(cmd, "bench"), profiles != "")
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if err := report.Table(out); err != nil {
				return err
			}
			if profiles != "" {
				if err := keepDetails(profiles, report); err != nil {
					return err
				}
			}
			if output == "json" {
				return printJSONLine(out, benchResult{Bench: "hub", Figures: report.Figures()})
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	cmd.AddCommand(cloudScaleCommand(), wanDayCommand())
	cmd.Flags().StringVar(&profiles, "profile", "",
		"directory for profiles of the hub and the figures of every round; profiling costs a little")
	return cmd
}

// keepDetails writes the profiles and every round to files in dir.
func keepDetails(dir string, r bench.Report) error {
	rounds, err := json.MarshalIndent(r.Measured, "", " ")
	if err != nil {
		return err
	}
	files := map[string][]byte{"rounds.json": rounds}
	maps.Copy(files, r.Profiles)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// benchResult is the last line of yurtlab bench -o json.
type benchResult struct {
	Bench   string             `json:"bench"`
	Figures map[string]float64 `json:"figures"`
}

func runBench(cmd *cobra.Command, labName string, profile bool) (report bench.Report, err error) {
	self, err := os.Executable()
	if err != nil {
		return report, err
	}
	out := cmd.OutOrStdout()
	proxy, err := ensureOnly(cmd.Context(), out, build.SetCaddy, false)
	if err != nil {
		return report, err
	}
	release, err := proxy.Hold()
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, release()) }()
	client, err := start(cmd.Context(), out, bench.Lab(labName), false)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, lab.Down(context.WithoutCancel(cmd.Context()), labName)) }()
	return bench.Run(cmd.Context(), bench.Config{
		Lab: client, Program: self, Proxy: proxy.Caddy, Profile: profile,
		Progress: func(step string) { fmt.Fprintln(out, "       ", step) },
	})
}

// insideCommands are the parts of bench and of scenarios that run on a machine's network. Each reads its order, in a line, first.
func insideCommands() []*cobra.Command {
	return []*cobra.Command{
		{Use: bench.LoadCommand, Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.Main(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		}},
		inside(balancer.Command, balancer.Main), inside(connect.Command, connect.Main), inside(prowl.Command, prowl.Main),
		inside(converter.Command, converter.Main),
	}
}

func inside[O any](name string, do func(ctx context.Context, order O, in io.Reader, out io.Writer) error) *cobra.Command {
	return &cobra.Command{Use: name, Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		in := bufio.NewReader(cmd.InOrStdin())
		text, err := in.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("no order: %w", err)
		}
		var order O
		if err := json.Unmarshal(text, &order); err != nil {
			return err
		}
		return do(cmd.Context(), order, in, cmd.OutOrStdout())
	}}
}
