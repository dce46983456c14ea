package yurtlab

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"yurtcoordinator/lab/bench/cloudscale"
	"yurtcoordinator/lab/build"
)

func cloudScaleCommand() *cobra.Command {
	var output string
	cfg := cloudscale.Default()
	cmd := &cobra.Command{
		Use: "cloud-scale", Short: "Measure coordinator-controller in a cluster of 1000 pools of 10 nodes",
		Args: cobra.NoArgs,
		Long: `Start an etcd and a kube-apiserver on the loopback interface, with Nodes, Leases and a load that renews them, and
measure what coordinator-controller needs to fill it and to watch it, and how soon it reports which links are down. On two
busy cores 1000 pools took 24 minutes, --pools 400 --steady 20s took 12. A figure over its budget
is marked, but is no failure.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			root, _, err := places()
			if err != nil {
				return err
			}
			kubernetes, err := ensureOnly(ctx, out, build.SetKubernetes, false)
			if err != nil {
				return err
			}
			programs, err := ensureOnly(ctx, out, build.SetPrograms, false)
			if err != nil {
				return err
			}
			cfg.Etcd, cfg.KubeAPIServer = kubernetes.Etcd, kubernetes.KubeAPIServer
			cfg.KubeControllerManager = kubernetes.KubeControllerManager
			cfg.CoordinatorController = programs.CoordinatorController
			cfg.Chart = filepath.Join(root, "deploy", "charts", "yurt-coordinator")
			cfg.Progress = func(step string) { fmt.Fprintln(out, "       ", step) }
			report, err := cloudscale.Run(ctx, cfg)
			if err != nil {
				return err
			}
			if err := report.Table(out); err != nil {
				return err
			}
			if output == "json" {
				return printJSONLine(out, benchResult{Bench: "cloud-scale", Figures: report.Figures()})
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	f := cmd.Flags()
	f.IntVar(&cfg.Pools, "pools", cfg.Pools, "how many pools")
	f.IntVar(&cfg.Nodes, "nodes", cfg.Nodes, "nodes in each pool")
	f.IntVar(&cfg.Cut, "cut", cfg.Cut, "nodes of each pool whose heartbeats are delegated all the time")
	f.IntVar(&cfg.Rate, "rate", cfg.Rate, "heartbeats a second to aim at in the steady state")
	f.StringVar(&cfg.Profiles, "profile", "", "directory for profiles of coordinator-controller and kube-apiserver")
	f.DurationVar(&cfg.Steady, "steady", cfg.Steady, "how long the steady state is measured")
	return cmd
}
