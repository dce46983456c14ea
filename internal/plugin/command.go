package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"yurtcoordinator/internal/edge"
)

// requestTimeout is how long the server may take for a request unless --request-timeout says otherwise.
const requestTimeout = "15s"

// commands holds what all commands share.
type commands struct {
	flags  *genericclioptions.ConfigFlags
	form   string
	output io.Writer
}

// New returns the command line.
func New(out, errs io.Writer) *cobra.Command {
	c := &commands{flags: genericclioptions.NewConfigFlags(true), output: out}
	*c.flags.Timeout = requestTimeout
	root := &cobra.Command{
		Use:   "kubectl-yurt",
		Short: "Ask about pools of edge nodes",
		Long: "Ask about pools of edge nodes: who speaks for a pool, which nodes are cut off, and why a node is in its state.\n" +
			"\n" +
			"With the cloud's kubeconfig it answers for all pools. With a pool's own (see: kubectl yurt kubeconfig POOL) it\n" +
			"answers from that pool's coordinator, whether or not the cloud can be reached.",
		SilenceUsage: true, SilenceErrors: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl yurt"},
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains([]string{"", formJSON, formWide}, c.form) {
				return fmt.Errorf("--output %q: must be %s, %s or empty", c.form, formJSON, formWide)
			}
			return nil
		},
	}
	root.SetOut(out)
	root.SetErr(errs)
	c.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVarP(&c.form, "output", "o", "", "json or wide; empty prints a table")
	root.AddCommand(c.status(), c.why(), c.leader(), c.traffic(), c.kubeconfig())
	return root
}

func (c *commands) reader() (*Reader, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return NewReader(config)
}

func (c *commands) printer() printer {
	return printer{out: c.output, form: c.form, colour: coloured(c.output), now: time.Now()}
}

// coloured reports whether to use colour: on a terminal, unless the user declined it (https://no-color.org).
func coloured(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd()))
}

func (c *commands) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status [POOL...]",
		Short: "Pools, their coordinators and leaders, and which nodes are cut off",
		RunE: func(cmd *cobra.Command, names []string) error {
			pools, err := c.pools(cmd.Context())
			if err != nil {
				return err
			}
			for _, name := range names {
				if find(pools, name) == nil {
					return noPool(name, pools)
				}
			}
			if len(names) > 0 {
				pools = slices.DeleteFunc(pools, func(p Pool) bool { return !slices.Contains(names, p.Name) })
			}
			return c.printer().pools(pools)
		},
		ValidArgsFunction: c.completePools,
	}
}

func (c *commands) why() *cobra.Command {
	return &cobra.Command{
		Use:   "why NODE",
		Short: "Why a node is in its state: the evidence, and what happened to it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := c.reader()
			if err != nil {
				return err
			}
			e, err := r.Why(cmd.Context(), args[0], time.Now())
			if err != nil {
				return err
			}
			return errors.Join(c.printer().explanation(e), notFound(e))
		},
		ValidArgsFunction: c.completeNodes,
	}
}

func notFound(e Explanation) error {
	if e.State != StateNotFound {
		return nil
	}
	return fmt.Errorf("no node %q", e.Node)
}

// Why reads all that the server says about a node.
func (r *Reader) Why(ctx context.Context, node string, now time.Time) (Explanation, error) {
	o, err := r.Objects(ctx)
	if err != nil {
		return Explanation{}, err
	}
	s := Subject{Name: node, Within: r.Within != ""}
	if lease, ok := o.Leases[node]; ok {
		s.Lease = &lease
	}
	pools := PoolsOf(o, now)
	if i := slices.IndexFunc(o.Nodes, func(n corev1.Node) bool { return n.Name == node }); i >= 0 {
		s.Node = &o.Nodes[i]
		s.Pool = find(pools, s.Node.Labels[edge.LabelNodePool])
	}
	if s.Pool == nil && s.Within && s.Lease != nil {
		s.Pool = find(pools, string(r.Within))
	}
	s.Events, err = r.Events(ctx, node)
	return Explain(s, now), err
}

func (c *commands) leader() *cobra.Command {
	return &cobra.Command{
		Use:   "leader POOL",
		Short: "The node whose hub speaks for a pool",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pools, err := c.pools(cmd.Context())
			if err != nil {
				return err
			}
			p := find(pools, args[0])
			switch {
			case p == nil:
				return noPool(args[0], pools)
			case p.Leader == "" && p.LeaderSaid == nil:
				return fmt.Errorf("pool %s has no known leader; its coordinator: %s", p.Name, p.Coordinator)
			case p.Leader == "":
				return fmt.Errorf("pool %s has no leader: its last one reported %s; its coordinator: %s", p.Name,
					c.printer().ago(p.LeaderSaid), p.Coordinator)
			case c.form == formJSON:
				return c.printer().json(map[string]any{"pool": p.Name, "leader": p.Leader, "said": p.LeaderSaid})
			case c.form == formWide:
				_, err = fmt.Fprintf(c.output, "%s   reported %s\n", p.Leader, c.printer().ago(p.LeaderSaid))
			default:
				_, err = fmt.Fprintln(c.output, p.Leader)
			}
			return err
		},
		ValidArgsFunction: c.completePools,
	}
}

func (c *commands) kubeconfig() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "kubeconfig POOL",
		Short: "The kubeconfig to look at a pool from its own site, without the cloud",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := c.reader()
			if err != nil {
				return err
			}
			content, err := r.Kubeconfig(cmd.Context(), edge.PoolName(args[0]))
			if err != nil {
				return err
			}
			if file == "" {
				_, err = c.output.Write(content)
				return err
			}
			return writePrivate(file, content)
		},
		ValidArgsFunction: c.completePools,
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "write it to this file, which only you can read, instead of to the terminal")
	return cmd
}

// writePrivate replaces a file as a whole. So nobody ever finds half a kubeconfig, or one that others can read.
func writePrivate(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (c *commands) pools(ctx context.Context) ([]Pool, error) {
	r, err := c.reader()
	if err != nil {
		return nil, err
	}
	o, err := r.Objects(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	return PoolsOf(o, time.Now()), nil
}

// unreachable adds whom to ask while the cloud can't be reached.
func unreachable(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return fmt.Errorf("%w\n(without the cloud, ask a pool's coordinator: --kubeconfig POOL.kubeconfig)", err)
}

func noPool(name string, pools []Pool) error {
	names := make([]string, len(pools))
	for i := range pools {
		names[i] = pools[i].Name
	}
	if len(names) == 0 {
		return fmt.Errorf("no pool %q: there are no pools", name)
	}
	return fmt.Errorf("no pool %q: the pools are %s", name, strings.Join(names, ", "))
}

func (c *commands) completePools(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	pools, err := c.pools(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for i := range pools {
		names = append(names, pools[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (c *commands) completeNodes(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	r, err := c.reader()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	leases, err := r.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(cmd.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for i := range leases.Items {
		if !strings.HasPrefix(leases.Items[i].Name, edge.PoolName("").ReportLease()) {
			names = append(names, leases.Items[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
