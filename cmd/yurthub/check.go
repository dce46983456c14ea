package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/flagfile"
	"yurtcoordinator/internal/hub/check"
	"yurtcoordinator/internal/hub/config"
)

// installedSettings is the settings file that join installs. A check reads it unless the command line names another hub.
const installedSettings = "/etc/yurthub/config.yaml"

// errNotWell ends a check that has found failures and printed them.
var errNotWell = errors.New("check found failures")

// checkNode says what is wrong with this node.
func checkNode(args []string, out io.Writer) error {
	fs := pflag.NewFlagSet("yurthub check", pflag.ContinueOnError)
	var cfg config.Config
	cfg.AddFlags(fs)
	output := fs.StringP("output", "o", "table", "table or json")
	beforeStart := fs.Bool("before-start", false, "expect that no yurthub runs yet")
	joined := fs.Bool("joined", false, "expect that kubelet goes through yurthub already")
	agents := fs.Bool("agents", false, "expect that the node's agents, as Pods, can go through yurthub")
	err := flagfile.Parse(fs, installed(args), out, config.Versioned)
	if errors.Is(err, flagfile.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if *output != "table" && *output != "json" {
		return fmt.Errorf("--output %q: must be table or json", *output)
	}
	c := check.Config{Config: cfg, BeforeStart: *beforeStart, Joined: *joined, Agents: *agents}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	findings := check.Judge(check.Gather(ctx, c))
	write := check.Table
	if *output == "json" {
		write = check.JSON
	}
	if err := write(out, findings); err != nil {
		return err
	}
	if check.Failed(findings) {
		return errNotWell
	}
	return nil
}

// installed adds to a command line the file of settings that join installs, unless it names another hub.
func installed(args []string) []string {
	if slices.ContainsFunc(args, named) {
		return args
	}
	if _, err := os.Stat(installedSettings); err != nil {
		return args
	}
	return append([]string{"--config=" + installedSettings}, args...)
}

// named reports whether an argument names the hub to check.
func named(arg string) bool {
	return strings.HasPrefix(arg, "--"+flagfile.FlagName) || strings.HasPrefix(arg, "--node-name")
}
