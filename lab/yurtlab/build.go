package yurtlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/build"
)

// printable are the sets whose programs others use as well; the other sets need system packages.
var printable = []string{build.SetKubernetes, build.SetPrograms, build.SetHelm, build.SetOlder, build.SetCaddy,
	build.SetPrometheus, build.SetSupply}

func buildCommand() *cobra.Command {
	kubelet, set, w := "", "", wanted{}
	cmd := &cobra.Command{
		Use: "build", Short: "Build everything that a lab needs, without starting one", Args: cobra.NoArgs,
		Example: "  yurtlab build\n  export KUBEBUILDER_ASSETS=$(yurtlab build --print kubernetes)",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if set != "" {
				return printSet(cmd, set, w.race)
			}
			w.kubelet = lab.Kubelet(kubelet)
			_, err := prepare(cmd.Context(), cmd.OutOrStdout(), w)
			return err
		},
	}
	cmd.Flags().StringVar(&kubelet, "kubelet", kubelet, "real or hollow; default: real if containers can run")
	versionFlags(cmd.Flags(), &w.kubernetes, &w.kubeletVersion)
	cmd.Flags().BoolVar(&w.race, "race", false, "build our own programs with Go's race detector")
	cmd.Flags().BoolVar(&w.coreDNS, "coredns", false, "build CoreDNS too")
	cmd.Flags().BoolVar(&w.helm, "helm", false, "build Helm too")
	cmd.Flags().StringVar(&set, "print", "", "build only this and print its directory: "+
		strings.Join(printable, ", "))
	return cmd
}

// printSet builds a set, prints only the directory of its programs, and reports progress to standard error.
func printSet(cmd *cobra.Command, set string, race bool) error {
	for _, name := range printable {
		if set != name {
			continue
		}
		b, err := ensureOnly(cmd.Context(), cmd.ErrOrStderr(), set, race)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(b.Dirs[0], "bin"))
		return err
	}
	return fmt.Errorf("--print %q: want one of %s", set, strings.Join(printable, ", "))
}

// ensureOnly builds one set if it is missing.
func ensureOnly(ctx context.Context, out io.Writer, set string, race bool) (build.Binaries, error) {
	root, cache, err := places()
	if err != nil {
		return build.Binaries{}, err
	}
	return build.Ensure(ctx, build.Config{
		ModuleRoot: root, CacheDir: cache, Only: set, Race: race, Progress: newProgress(out).show,
	})
}

func helmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "helm -- ARGS…", Short: "Run Helm; the first time, build it",
		Example: "  yurtlab helm -- template yurt-coordinator deploy/charts/yurt-coordinator -n kube-system",
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := ensureOnly(cmd.Context(), cmd.ErrOrStderr(), build.SetHelm, false)
			if err != nil {
				return err
			}
			return run(cmd, exec.CommandContext(cmd.Context(), b.Helm, args...))
		},
	}
}

// run runs a program in place of ours. The program reports its own failure.
func run(cmd *cobra.Command, program *exec.Cmd) error {
	program.Stdin, program.Stdout, program.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	err := program.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return ExitCode(exit.ExitCode())
	}
	return err
}
