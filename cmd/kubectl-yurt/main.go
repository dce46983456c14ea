// Command kubectl-yurt is `kubectl yurt`: see internal/plugin. Put it on the PATH, and kubectl finds it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"yurtcoordinator/internal/plugin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := plugin.New(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(plugin.Visible(os.Stderr), "error:", err)
		os.Exit(1)
	}
}
