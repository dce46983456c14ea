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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/logs"
	"yurtcoordinator/internal/version"
)

// requestTimeout is how long the server may take for a request unless --request-timeout says otherwise.
const requestTimeout = "15s"

// commands holds what all commands share.
type commands struct {
	flags        *genericclioptions.ConfigFlags
	output, errs io.Writer
}

// New returns the command line.
func New(out, errs io.Writer) *cobra.Command {
	c := &commands{flags: genericclioptions.NewConfigFlags(true), output: out, errs: Visible(errs)}
	*c.flags.Timeout = requestTimeout
	root := &cobra.Command{
		Use:     "kubectl-yurt",
		Version: version.Get().Line("kubectl-yurt"),
		Short:   "Ask about pools of edge nodes",
		Long: "Ask about pools of edge nodes: who leads a pool, which nodes are cut off, and why a node is in its state.\n" +
			"\n" +
			"With the cloud's kubeconfig it answers for all pools. With a pool's own (see: kubectl yurt kubeconfig POOL) it\n" +
			"answers from that pool's coordinator, even while the cloud is unreachable.",
		SilenceUsage: true, SilenceErrors: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl yurt"},
	}
	root.SetOut(out)
	root.SetErr(errs)
	root.SetVersionTemplate("{{.Version}}\n")
	c.flags.AddFlags(root.PersistentFlags())
	verbosity := logs.VerbosityFlagOf(root.PersistentFlags())
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return logs.SetVerbosity(*verbosity) }
	root.AddCommand(c.status(), c.why(), c.check(), c.leader(), c.traffic(), c.kubeconfig(), c.bundle(), c.ui())
	for _, cmd := range root.Commands() {
		cmd.RunE = c.advised(cmd.RunE)
	}
	return root
}

// advised adds to a refusal by the cloud which role of the chart has the right. A coordinator says itself what to do.
func (c *commands) advised(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if !apierrors.IsForbidden(err) {
			return err
		}
		if access, other := c.flags.ToRESTConfig(); other != nil || poolOfAccess(access) != "" {
			return err
		}
		return fmt.Errorf("%w\n(%s)", err, adviceFor(err))
	}
}

// adviceFor says what to do about a refusal by the cloud.
func adviceFor(err error) string {
	status, kind := apierrors.APIStatus(nil), ""
	if errors.As(err, &status) && status.Status().Details != nil {
		kind = status.Status().Details.Kind
	}
	switch kind {
	case "secrets":
		return "whoever reads it may enter Pods; kubectl yurt kubeconfig POOL --view asks for a certificate that only looks"
	case "certificatesigningrequests":
		return "the ClusterRole openyurt:certificate-requester may ask for certificates"
	}
	return "the ClusterRole openyurt:pool-viewer has what kubectl yurt reads"
}

func (c *commands) reader() (*Reader, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return NewReader(config)
}

// prepare returns what a command prints with and reads from.
func (c *commands) prepare(flags *printing) (*printer, *Reader, error) {
	p, err := flags.printer(c.output)
	if err != nil {
		return nil, nil, err
	}
	r, err := c.reader()
	return p, r, err
}

func (c *commands) status() *cobra.Command {
	var watch, problems bool
	cmd := &cobra.Command{
		Use:               "status [POOL...]",
		Short:             "Pools, their coordinators and leaders, which nodes are cut off, and what is wrong",
		ValidArgsFunction: c.completePools,
	}
	flags := addPrinting(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "After listing the pools, show each one that changes.")
	cmd.Flags().BoolVar(&problems, "problems", false, "Show only pools with trouble, and what it is.")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		p, r, err := c.prepare(flags)
		if err != nil {
			return err
		}
		o, err := r.Objects(cmd.Context(), names...)
		if err != nil {
			return unreachable(err)
		}
		pools := PoolsOf(o, time.Now())
		for _, name := range names {
			if find(pools, name) == nil {
				return r.noPool(cmd.Context(), name)
			}
		}
		if warning := stale(o, time.Now()); warning != "" {
			fmt.Fprintln(c.errs, "warning:", warning)
		}
		if err := c.list(p, pools, problems); err != nil || !watch {
			return err
		}
		f := follower{
			pools: names, reader: r,
			complain: func(err error) { fmt.Fprintln(c.errs, "warning:", err) },
			show: func(pools []Pool, now time.Time) error {
				p.now = now
				return p.changed(pools, poolView{problems})
			},
		}
		return f.run(cmd.Context(), shownOf(pools, problems))
	}
	return cmd
}

// list shows pools, and counts them for people.
func (c *commands) list(p *printer, pools []Pool, problems bool) error {
	counted := summary(pools)
	if problems {
		pools = slices.DeleteFunc(slices.Clone(pools), func(p Pool) bool { return len(p.Problems) == 0 })
	}
	if p.objects != nil || len(pools) > 0 {
		if err := p.pools(pools, poolView{problems}); err != nil {
			return err
		}
	}
	if p.objects != nil || p.noHeaders {
		return nil
	}
	_, err := fmt.Fprintf(p.out, "\n%s\n", counted)
	return err
}

func (c *commands) why() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "why NODE",
		Short:             "Why a node is in its state: the evidence, and what happened to it",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeNodes,
	}
	return c.about(cmd, func(p *printer, s Subject) error {
		e := Explain(s, p.now)
		return errors.Join(p.explanation(e), notFound(e))
	})
}

// about has a command read what there is about the node that its argument names, and say something of it.
func (c *commands) about(cmd *cobra.Command, say func(*printer, Subject) error) *cobra.Command {
	flags := addPrinting(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, r, err := c.prepare(flags)
		if err != nil {
			return err
		}
		s, err := r.Subject(cmd.Context(), args[0], p.now)
		if err != nil {
			return unreachable(err)
		}
		return say(p, s)
	}
	return cmd
}

func notFound(e Explanation) error {
	if e.State != StateNotFound {
		return nil
	}
	return fmt.Errorf("no node %q", e.Node)
}

func (c *commands) check() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check NODE",
		Short: "What works and what does not with a node's hub and its links, and what to do",
		Long: "What works and what does not with a node's hub and its links, and what to do. It uses the reports of the hub,\n" +
			"the leader of its pool and the controllers, and enters no node: for more, run yurthub check on the node.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeNodes,
	}
	return c.about(cmd, func(p *printer, s Subject) error {
		all := Check(s, p.now)
		err := p.findings(s.Name, all)
		if failed(all) {
			err = errors.Join(err, fmt.Errorf("node %s has problems", s.Name))
		}
		return err
	})
}

func (c *commands) leader() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "leader POOL",
		Short:             "The node whose hub leads a pool",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completePools,
	}
	flags := addPrinting(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, r, err := c.prepare(flags)
		if err != nil {
			return err
		}
		pool, _, err := r.pool(cmd.Context(), args[0])
		switch {
		case err != nil:
			return err
		case pool.Leader == "" && pool.LeaderSaid == nil:
			return fmt.Errorf("pool %s has no known leader; its coordinator: %s", pool.Name, pool.Coordinator)
		case pool.Leader == "":
			return fmt.Errorf("pool %s has no leader: its last one reported %s; its coordinator: %s", pool.Name,
				p.ago(pool.LeaderSaid), pool.Coordinator)
		}
		return p.leader(pool)
	}
	return cmd
}

func (c *commands) kubeconfig() *cobra.Command {
	var file string
	var view bool
	life := defaultLife
	cmd := &cobra.Command{
		Use:   "kubeconfig POOL",
		Short: "The kubeconfig for a pool's own site, which works without the cloud",
		Long: "The kubeconfig for a pool's own site, which works without the cloud: the operators', who enter ordinary Pods.\n" +
			"\n" +
			"With --view it asks for a certificate in your own name that only looks: at the page, Nodes, Events, and Pods in\n" +
			"outline. It waits until somebody approves the request. The key never leaves this machine.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("for") && !view:
				return errors.New("--for is how long the certificate of --view lasts: give --view, too")
			case life < minLife || life > maxLife:
				return fmt.Errorf("--for is %s: a certificate lasts %s at least and %s at most", life, minLife, maxLife)
			}
			r, err := c.reader()
			if err != nil {
				return err
			}
			var content []byte
			if view {
				content, err = r.viewersKubeconfig(cmd.Context(), edge.PoolName(args[0]), life, c.errs)
			} else {
				content, err = r.Kubeconfig(cmd.Context(), edge.PoolName(args[0]))
			}
			if err != nil {
				return err
			}
			if file == "" {
				_, err = c.output.Write(content)
				return err
			}
			return writePrivate(file, func(w io.Writer) error {
				_, err := w.Write(content)
				return err
			})
		},
		ValidArgsFunction: c.completePools,
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "write it to this file, which only you can read, instead of to the terminal")
	cmd.Flags().BoolVar(&view, "view", false, "ask for a certificate in your own name that only looks, and wait for approval")
	cmd.Flags().DurationVar(&life, "for", life, "how long the certificate of --view lasts, 168h at most")
	return cmd
}

func (c *commands) bundle() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "bundle POOL",
		Short: "An archive of everything about a pool, without secrets, for the person who helps you",
		Long: "An archive of everything about a pool, for the person who helps you: objects, Events, hubs' reports, and logs.\n" +
			"It reads no Secrets, leaves out what other software has written on Nodes and Pods, and removes what looks like a\n" +
			"key or a token. Look through it before you give it away: it names your nodes and their addresses.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completePools,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := c.reader()
			if err != nil {
				return err
			}
			now := time.Now()
			if file == "" {
				file = fmt.Sprintf("yurt-%s-%s.tar.gz", args[0], now.UTC().Format("20060102-150405"))
			}
			var lacks []string
			write := func(w io.Writer) (err error) {
				lacks, err = r.Bundle(cmd.Context(), args[0], w, now)
				return err
			}
			if file == "-" {
				err = write(c.output)
			} else {
				err = writePrivate(file, write)
			}
			if err != nil {
				return err
			}
			for _, what := range lacks {
				fmt.Fprintln(c.errs, "warning: left out:", what)
			}
			if file != "-" {
				_, err = fmt.Fprintln(c.output, file)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "write it to this file, or with - to the terminal; "+
		"default: a file in this directory, named after the pool and the time")
	return cmd
}

// writePrivate replaces a file as a whole. So nobody ever finds half a kubeconfig, or one that others can read.
func writePrivate(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return err
	}
	err = write(f)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// pool reads one pool.
func (r *Reader) pool(ctx context.Context, name string) (*Pool, Objects, error) {
	o, err := r.Objects(ctx, name)
	if err != nil {
		return nil, o, unreachable(err)
	}
	p := find(PoolsOf(o, time.Now()), name)
	if p == nil {
		return nil, o, r.noPool(ctx, name)
	}
	return p, o, nil
}

// unreachable adds to an error which server to ask while the cloud can't be reached.
func unreachable(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return fmt.Errorf("%w\n(without the cloud, ask a pool's coordinator: --kubeconfig POOL.kubeconfig)", err)
}

// noPool says that there is no such pool, and which there are.
func (r *Reader) noPool(ctx context.Context, name string) error {
	names, err := r.PoolNames(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("no pool %q", name)
	case len(names) == 0:
		return fmt.Errorf("no pool %q: there are no pools", name)
	}
	const most = 20
	if n := len(names) - most; n > 1 {
		names = append(names[:most:most], fmt.Sprintf("%d more", n))
	}
	return fmt.Errorf("no pool %q: the pools are %s", name, strings.Join(names, ", "))
}

func (c *commands) completePools(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	r, err := c.reader()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names, err := r.PoolNames(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (c *commands) completeNodes(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	r, err := c.reader()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := r.NodeNames(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
