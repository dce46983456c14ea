// Package yurtlab is the command line of yurtlab: the lab, its scenarios and its benchmarks. It stands above the lab
// and the scenarios, which do not know it.
package yurtlab

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"yurtcoordinator/internal/version"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/wire"
)

// nameVariable is the environment variable with the lab's name, for a user with several shells, each with its own lab.
const nameVariable = "YURTLAB_NAME"

// New returns the yurtlab command.
func New() *cobra.Command {
	name := cmp.Or(os.Getenv(nameVariable), lab.DefaultName)
	root := &cobra.Command{
		Use: "yurtlab", Version: version.Get().Line("yurtlab"),
		Short: "A whole cloud and its edge pools on this machine, from real Kubernetes components, " +
			"with links that can be cut",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.PersistentFlags().StringVar(&name, "name", name, "name of the lab; labs with different names can run side by side. "+
		nameVariable+" is another default")
	root.AddCommand(
		upCommand(&name), statusCommand(&name), downCommand(&name), logsCommand(&name), linkCommand(&name),
		nodeCommand(&name), cloudCommand(&name), kubectlCommand(&name), trafficCommand(&name), runCommand(),
		skewCommand(), buildCommand(), helmCommand(), benchCommand(),
	)
	root.AddCommand(insideCommands()...)
	return root
}

// nameOr returns the lab's name for a command that ends its own lab: the name that the user has given, or else otherwise.
func nameOr(cmd *cobra.Command, otherwise string) string {
	if f := cmd.Flag("name"); f.Changed || os.Getenv(nameVariable) != "" {
		return f.Value.String()
	}
	return otherwise
}

// connected returns a command's function, which calls do with the lab that --name says.
func connected(name *string, do func(*lab.Client, *cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := lab.Connect(*name)
		if err != nil {
			return err
		}
		return do(c, cmd, args)
	}
}

func downCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End the lab and leave nothing behind", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return lab.Down(cmd.Context(), *name) },
	}
}

func statusCommand(name *string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "status", Short: "Show the nodes as the cloud sees them and as they see themselves", Args: cobra.NoArgs,
		RunE: connected(name, func(c *lab.Client, cmd *cobra.Command, _ []string) error {
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			return printAs(cmd.OutOrStdout(), output, s, func(w io.Writer) error { return statusTable(w, s) })
		}),
	}
	outputFlag(cmd, &output)
	return cmd
}

func trafficCommand(name *string) *cobra.Command {
	var output string
	var sinceMark, mark bool
	cmd := &cobra.Command{
		Use: "traffic", Short: "Show the bytes over each node's WAN link, each way", Args: cobra.NoArgs,
		RunE: connected(name, func(c *lab.Client, cmd *cobra.Command, _ []string) error {
			if mark {
				return c.MarkTraffic(cmd.Context())
			}
			t, err := c.Traffic(cmd.Context(), sinceMark)
			if err != nil {
				return err
			}
			return printAs(cmd.OutOrStdout(), output, t, func(w io.Writer) error { return trafficTable(w, t) })
		}),
	}
	outputFlag(cmd, &output)
	cmd.Flags().BoolVar(&sinceMark, "since-mark", false, "count from the last mark, not from the start of the lab")
	cmd.Flags().BoolVar(&mark, "mark", false, "set the mark")
	cmd.MarkFlagsMutuallyExclusive("since-mark", "mark")
	return cmd
}

func logsCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "logs NODE COMPONENT", Short: "Print the log of a component of a node, or of the cloud",
		Example: "  yurtlab logs p1-n1 hub\n  yurtlab logs cloud kube-apiserver", Args: cobra.ExactArgs(2),
		RunE: connected(name, func(c *lab.Client, cmd *cobra.Command, args []string) error {
			path, err := c.Log(args[0], args[1])
			if err != nil {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(cmd.OutOrStdout(), f)
			return err
		}),
	}
}

func linkCommand(name *string) *cobra.Command {
	mode := wire.Drop.String()
	cut := &cobra.Command{
		Use: "cut wan|lan NODE|pool/POOL", Short: "Cut the link of a node, or of all nodes of a pool",
		Args:    cobra.ExactArgs(2),
		Example: "  yurtlab link cut wan p1-n2\n  yurtlab link cut wan pool/p1 --mode reject",
		RunE: func(cmd *cobra.Command, args []string) error {
			fault, err := wire.ParseFault(mode)
			if err != nil {
				return fmt.Errorf("--mode: %w", err)
			}
			return onLink(*name, args, func(c *lab.Client, n lab.Network, target string) error {
				return c.Cut(cmd.Context(), n, target, fault)
			})
		},
	}
	cut.Flags().StringVar(&mode, "mode", mode,
		"drop: packets vanish silently; reject: senders get an error immediately; oneway: only the node's packets vanish")
	heal := &cobra.Command{
		Use: "heal wan|lan NODE|pool/POOL", Short: "Heal the link of a node, or of all nodes of a pool",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onLink(*name, args, func(c *lab.Client, n lab.Network, target string) error {
				return c.Heal(cmd.Context(), n, target)
			})
		},
	}
	link := &cobra.Command{Use: "link", Short: "Cut, heal and shape links", Args: cobra.NoArgs}
	link.AddCommand(cut, heal, shapeCommand(name))
	return link
}

func onLink(name string, args []string, do func(*lab.Client, lab.Network, string) error) error {
	network, err := lab.ParseNetwork(args[0])
	if err != nil {
		return err
	}
	c, err := lab.Connect(name)
	if err != nil {
		return err
	}
	return do(c, network, args[1])
}

func nodeCommand(name *string) *cobra.Command {
	node := &cobra.Command{
		Use: "node", Short: "Kill, start, restart, pause and resume nodes and their programs", Args: cobra.NoArgs,
	}
	for action, short := range map[lab.Action]string{
		lab.Kill:    "End a program with SIGKILL, or cut a node's power (all)",
		lab.Start:   "Start a program again, or power a node on again (all)",
		lab.Pause:   "Stop a program, or every process of a node (all), with SIGSTOP",
		lab.Resume:  "Continue what was paused",
		lab.Restart: "Kill and start in one",
	} {
		node.AddCommand(&cobra.Command{
			Use: string(action) + " NODE [hub|kubelet|kube-proxy|coredns|coordinator|containerd|all]", Short: short,
			Args: cobra.RangeArgs(1, 2),
			RunE: connected(name, func(c *lab.Client, cmd *cobra.Command, args []string) error {
				component := lab.All
				if len(args) > 1 {
					component = lab.Component(args[1])
				}
				return c.Node(cmd.Context(), action, args[0], component)
			}),
		})
	}
	return node
}

func cloudCommand(name *string) *cobra.Command {
	cloud := &cobra.Command{
		Use: "cloud", Short: "Kill, start, restart, pause and resume programs of the control plane", Args: cobra.NoArgs,
	}
	for action, short := range map[lab.Action]string{
		lab.Kill:    "End a program with SIGKILL, or cut the cloud's power (all)",
		lab.Start:   "Start a program again, with flags that replace its own, or power the cloud on again (all)",
		lab.Restart: "Kill and start in one",
		lab.Pause:   "Stop a program, or every one (all), with SIGSTOP",
		lab.Resume:  "Continue what was paused",
	} {
		cloud.AddCommand(&cobra.Command{
			Use:   string(action) + " etcd|kube-apiserver|kube-controller-manager|kube-scheduler|coordinator-controller|all",
			Short: short, Args: cobra.MinimumNArgs(1),
			Example: "  yurtlab cloud restart kube-apiserver -- --etcd-prefix=/empty --authorization-mode=AlwaysAllow",
			RunE: connected(name, func(c *lab.Client, cmd *cobra.Command, args []string) error {
				return c.Cloud(cmd.Context(), action, lab.Component(args[0]), args[1:]...)
			}),
		})
	}
	cloud.AddCommand(&cobra.Command{
		Use: "compact", Short: "Make the cloud's etcd forget its history", Args: cobra.NoArgs,
		RunE: connected(name, func(c *lab.Client, cmd *cobra.Command, _ []string) error {
			revision, err := c.Compact(cmd.Context())
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "compacted at revision %s\n", revision)
			}
			return err
		}),
	})
	return cloud
}

func kubectlCommand(name *string) *cobra.Command {
	var via string
	cmd := &cobra.Command{
		Use: "kubectl [--via cloud|hub/NODE|coordinator/POOL] -- ARGS…", Short: "Run kubectl in the lab",
		Example: "  yurtlab kubectl -- get nodes\n  yurtlab kubectl --via hub/p1-n2 -- get pods -A",
		RunE: connected(name, func(c *lab.Client, cmd *cobra.Command, args []string) error {
			kubectl, err := c.Kubectl(cmd.Context(), via, args)
			if err != nil {
				return err
			}
			return run(cmd, kubectl)
		}),
	}
	cmd.Flags().StringVar(&via, "via", "cloud", "cloud, hub/NODE or coordinator/POOL")
	return cmd
}

// ExitCode is an error that was already reported: the program only ends with this status.
type ExitCode int

// Error implements error.
func (e ExitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func runCommand() *cobra.Command {
	var output, kubernetes, kubeletVersion string
	kubelet, keep, race, installed := "", false, false, false
	var family lab.IPFamily
	cmd := &cobra.Command{
		Use: "run SCENARIO", Short: "Boot a lab, run one end-to-end scenario in it, and end the lab",
		Args: cobra.ExactArgs(1),
		Long: "Boot a lab, run one end-to-end scenario in it, and end the lab.\n\nScenarios:\n" + e2e.List(),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := e2e.Find(args[0])
			if err != nil {
				return err
			}
			labName := nameOr(cmd, s.LabName("run"))
			out := cmd.OutOrStdout()
			result := kit.Run(cmd.Context(), s, kit.Options{
				LabName: labName, Out: out, KeepFailed: keep,
				Start: func(ctx context.Context, cfg lab.Config) (*lab.Client, error) {
					if installed {
						cfg = cfg.AsInstalled()
					}
					cfg.Kubernetes, cfg.KubeletVersion = kubernetes, kubeletVersion
					if kubelet != "" {
						cfg.Kubelet = lab.Kubelet(kubelet)
					}
					if family != "" {
						cfg.IPFamily = family
					}
					return start(ctx, out, cfg, race)
				},
			})
			if output == "json" {
				if err := printJSONLine(out, result); err != nil {
					return err
				}
			}
			if !result.Passed {
				return fmt.Errorf("scenario %s failed: %s", s.Name, result.Error)
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	versionFlags(cmd.Flags(), &kubernetes, &kubeletVersion)
	familyFlag(cmd.Flags(), &family)
	cmd.Flags().StringVar(&kubelet, "kubelet", kubelet, "real or hollow; default: real if containers can run")
	cmd.Flags().BoolVar(&race, "race", false,
		"build our own programs with Go's race detector; a race that it finds fails the scenario")
	cmd.Flags().BoolVar(&installed, "installed", false, "use a lab in which the system is installed as in a real cluster")
	cmd.Flags().BoolVar(&keep, "keep-failed", false, "leave the lab of a failed scenario up")
	return cmd
}

// pollEvery is how often the live table is redrawn.
const pollEvery = time.Second
