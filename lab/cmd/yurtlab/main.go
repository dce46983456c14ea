// yurtlab runs a whole cloud and its edge pools on this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/yurtlab"
)

func main() {
	lab.Main() // does not return in the processes of a lab, which run this program too
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := yurtlab.New().ExecuteContext(ctx)
	stop()
	var told yurtlab.ExitCode
	switch {
	case errors.As(err, &told):
		os.Exit(int(told))
	case err != nil:
		fmt.Fprintln(os.Stderr, "yurtlab:", err)
		os.Exit(1)
	}
}
