package yurtlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"yurtcoordinator/lab"
)

func upCommand(name *string) *cobra.Command {
	cfg := lab.Config{Pools: 1, Nodes: 3, Timing: lab.Quick}
	var detach, stock bool
	kubelet := ""
	cmd := &cobra.Command{
		Use: "up", Short: "Start a lab; the first time, build it", Args: cobra.NoArgs,
		Long: `Start a lab: a control plane in the cloud and pools of nodes, each node a separate host with a WAN
link to the cloud and a LAN that it shares with its pool. In the foreground, show a live table of the nodes until
interrupted, then end the lab. The first start builds Kubernetes from its Go modules, which takes minutes; later
starts take seconds.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Name, cfg.Kubelet = *name, lab.Kubelet(kubelet)
			if stock {
				cfg.Timing = lab.Stock
			}
			out := cmd.OutOrStdout()
			c, err := start(cmd.Context(), out, cfg, false)
			if err != nil {
				return err
			}
			if detach {
				fmt.Fprintf(out, "lab %q is up; end it with: yurtlab down --name %s\n", cfg.Name, cfg.Name)
				return nil
			}
			err = watch(cmd.Context(), out, c)
			return errors.Join(err, lab.Down(context.WithoutCancel(cmd.Context()), cfg.Name))
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Pools, "pools", cfg.Pools, "how many pools")
	flags.IntVar(&cfg.Nodes, "nodes", cfg.Nodes, "how many nodes in each pool")
	flags.StringVar(&kubelet, "kubelet", kubelet,
		"real (containerd and runc) or hollow (no containers); default: real if containers can run")
	versionFlags(flags, &cfg.Kubernetes, &cfg.KubeletVersion)
	familyFlag(flags, &cfg.IPFamily)
	flags.BoolVar(&detach, "detach", false, "return when the lab is up, and leave it running")
	flags.BoolVar(&stock, "stock-timing", false,
		"Kubernetes' own timing (50 s grace period, 10 s heartbeats) instead of a fast one")
	flags.IntVar(&cfg.Coordinators, "coordinators", 1, "coordinators in each pool, 1 to 3: on its first nodes")
	flags.BoolVar(&cfg.NoCoordinator, "no-coordinator", false, "hubs without a coordinator")
	flags.BoolVar(&cfg.NoProxy, "no-kube-proxy", false, "nodes without kube-proxy")
	flags.BoolVar(&cfg.NoKubelet, "no-kubelet", false, "nodes with a hub and nothing else")
	flags.BoolVar(&cfg.CoreDNS, "coredns", false, "a CoreDNS on every node; the first time, this builds it")
	flags.BoolVar(&cfg.Installed, "installed", false,
		"install the system as in a real cluster: the chart in the cloud, and coordinators that run as Pods")
	return cmd
}

// start builds what is missing and starts a lab.
func start(ctx context.Context, out io.Writer, cfg lab.Config, race bool) (*lab.Client, error) {
	p, err := prepare(ctx, out, wanted{
		kubelet: cfg.Kubelet, coreDNS: cfg.CoreDNS, kubectlOlder: cfg.KubectlOlder, openYurt: cfg.OpenYurt, race: race,
		releases: cfg.Releases, former: cfg.Former, prometheus: cfg.Prometheus, supply: cfg.Supply,
		installed: cfg.Installed, bare: cfg.Bare, kubernetes: cfg.Kubernetes, kubeletVersion: cfg.KubeletVersion,
	})
	if err != nil {
		return nil, err
	}
	cfg.Kubelet, cfg.Chart = p.kubelet, p.chart
	return lab.Up(ctx, cfg, p.bins, p.images, func(s lab.Step) {
		switch {
		case s.Done:
			fmt.Fprintf(out, "%5.1fs  lab %q is up\n", s.At.Seconds(), cfg.Name)
		case s.Error == "":
			fmt.Fprintf(out, "%5.1fs  %s\n", s.At.Seconds(), s.Text)
		}
	})
}

// watch shows the lab until ctx ends or somebody ends it. On anything but a terminal it shows it once.
func watch(ctx context.Context, out io.Writer, c *lab.Client) error {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return watchLive(ctx, f, c)
	}
	s, err := c.Status(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // interrupted
	}
	if err == nil {
		err = statusTable(out, s)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nTry, in another terminal:\n"+
		"  yurtlab link cut wan %[1]s     yurtlab link heal wan %[1]s     yurtlab node kill %[1]s\n"+
		"Ctrl-C ends the lab.\n", s.Nodes[len(s.Nodes)-1].Name)
	<-ctx.Done()
	return nil
}
