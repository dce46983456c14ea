package yurtlab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/bench/wanday"
)

func wanDayCommand() *cobra.Command {
	var output, kubelet string
	var quick bool
	setup := wanday.Setup{Nodes: 3, Others: 1}
	lasting := map[wanday.Cluster]*time.Duration{}
	cmd := &cobra.Command{
		Use: "wan-day", Short: "Measure what a node costs on its WAN link in a day, with and without a hub",
		Args: cobra.NoArgs,
		Long: `Boot a lab with Kubernetes' own timing, of three pools: nodes without a hub, nodes whose hubs have no
coordinator, and a pool with a coordinator. Measure at the same time what each node's WAN cable carries, in
whole frames, while nothing changes in the cluster, while a Pod is replaced each minute, and while a Deployment
of 20 Pods is rolled over each minute. Print it for a day, with what the hubs spent it on. This takes 55
minutes, with --quick 10. A figure over its budget is marked, but is no failure.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			cfg := wanday.Config{For: map[wanday.Cluster]time.Duration{}}
			for cluster, d := range lasting {
				cfg.For[cluster] = *d
				if quick && !cmd.Flags().Changed(string(cluster)) {
					cfg.For[cluster] = quickFor[cluster]
				}
			}
			setup.Kubelet = lab.Kubelet(kubelet)
			report, err := runWanDay(ctx, cmd, wanday.Lab(nameOr(cmd, "wan-day"), setup), cfg)
			if err != nil {
				return err
			}
			if err := report.Table(out); err != nil {
				return err
			}
			if output == "json" {
				return printJSONLine(out, benchResult{Bench: "wan-day", Figures: report.Figures()})
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	f := cmd.Flags()
	for cluster, d := range map[wanday.Cluster]time.Duration{
		wanday.Idle: 30 * time.Minute, wanday.Quiet: 10 * time.Minute, wanday.Busy: 10 * time.Minute,
	} {
		lasting[cluster] = f.Duration(string(cluster), d,
			fmt.Sprintf("how long to measure a cluster that is %s; 0: not at all", cluster))
	}
	f.BoolVar(&quick, "quick", false,
		"5 minutes of an idle cluster and 2 of a busy one, for a trial; other flags override these")
	f.IntVar(&setup.Nodes, "nodes", setup.Nodes, "nodes in the pool with a coordinator")
	f.IntVar(&setup.Others, "others", setup.Others, "nodes in each of the other two pools")
	f.StringVar(&kubelet, "kubelet", kubelet, "real or hollow; default: real if containers can run")
	f.BoolVar(&setup.Installed, "installed", false, "use a lab in which the system is installed as in a real cluster")
	f.StringSliceVar(&setup.HubFlags, "hub-flag", nil, "flags for every hub, such as --link-profile=metered")
	return cmd
}

// quickFor are the times of --quick.
var quickFor = map[wanday.Cluster]time.Duration{wanday.Idle: 5 * time.Minute, wanday.Busy: 2 * time.Minute}

// wanDayMargin is how long a run may take beyond what it measures.
const wanDayMargin = 15 * time.Minute

func runWanDay(ctx context.Context, cmd *cobra.Command, boot lab.Config, cfg wanday.Config) (report wanday.Report, err error) {
	out := cmd.OutOrStdout()
	if cfg.Lab, err = start(ctx, out, boot, false); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, lab.Down(context.WithoutCancel(ctx), boot.Name)) }()
	atMost := wanDayMargin
	for _, d := range cfg.For {
		atMost += d
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	cfg.Progress = func(step string) { fmt.Fprintln(out, "       ", step) }
	return wanday.Run(ctx, cfg)
}
