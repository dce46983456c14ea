// Command hollow is one hollow kubelet: the kubelet's own code with a container runtime that only pretends. It
// registers a Node, renews its Lease, reports status and brings Pods to Running and Ready, without a container, a mount
// or a cgroup, in about 60 MB. The lab uses it for many nodes, or where containers can't run.
//
// One process is one node. Kubernetes' own kubemark was the alternative: it renews Leases every 10 s whatever the
// cloud's grace period is, gives every Pod the same address, records every call to its runtime forever, and leaves its
// files in /tmp.
//
// A hollow kubelet that stops ends its pretended containers, like a machine that loses power. The Pods stay in the API,
// and the next process of the same name starts them again with the same addresses.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "hollow: %v\n", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	var s Settings
	fs := pflag.NewFlagSet("hollow", pflag.ContinueOnError)
	s.AddFlags(fs)
	logging := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logging)
	fs.AddGoFlag(logging.Lookup("v"))
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%w; see hollow --help", err)
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see hollow --help", fs.Arg(0))
	}
	if err := s.Check(); err != nil {
		return fmt.Errorf("%w; see hollow --help", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer klog.Flush()
	return Run(ctx, s)
}
