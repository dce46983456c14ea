// Command yurt-coordinator is a pool's meeting place: kube-apiserver and etcd in one process, in memory.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"yurtcoordinator/internal/flagfile"
	"yurtcoordinator/internal/pool"
	"yurtcoordinator/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := start(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flagfile.ErrHelp) {
		fmt.Fprintln(os.Stderr, "yurt-coordinator:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	var config pool.Config
	fs := pflag.NewFlagSet("yurt-coordinator", pflag.ContinueOnError)
	config.AddFlags(fs)
	verbosity := fs.IntP("v", "v", 0, "how much the coordinator logs, 0 to 4")
	flagfile.Prints(fs, flagfile.VersionFlag, "print the version of yurt-coordinator, and exit",
		version.Get().Line(fs.Name()))
	if err := flagfile.Parse(fs, args, os.Stdout, nil); err != nil {
		return err
	}
	quieten()
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(*verbosity)))
	coordinator, err := pool.New(config)
	if err != nil {
		return err
	}
	return coordinator.Run(klog.NewContext(ctx, logger))
}

// quieten lets only warnings and errors of the Kubernetes code through: that code logs by klog's global functions. The
// coordinator's own lines go through the context's logger.
func quieten() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
}
