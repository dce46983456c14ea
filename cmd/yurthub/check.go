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
	"yurtcoordinator/internal/hub/discover"
)

// installedSettings is the settings file that join installs. A check reads it unless the command line names another
// hub.
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
	kubeletUses := fs.String("kubelet-uses", "", "kubeconfig that kubelet uses; default: the one on kubelet's command line")
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
	c := checked(cfg)
	c.BeforeStart, c.Joined, c.Agents, c.KubeletUses = *beforeStart, *joined, *agents, *kubeletUses
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

// checked returns the settings of a hub in the form that a check takes.
func checked(cfg config.Config) check.Config {
	c := check.Config{
		Node: cfg.Node, Pool: cfg.Pool, Servers: cfg.ServerAddresses, ServerName: cfg.TLSServerName, Proxy: cfg.Proxy(),
		CAFile: cfg.CAFile, CoordinatorCAFile: cfg.CoordinatorCAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile,
		CertDir: cfg.CertDir, BootstrapFile: cfg.Identity.BootstrapFile, CACertHashes: cfg.Identity.CACertHashes,
		KubeletKubeconfig: cfg.Identity.KubeletKubeconfig, CacheDir: cfg.DiskCachePath,
		BindAddress: cfg.BindAddress, Port: cfg.Port, HealthAddress: cfg.HealthBindAddress, HealthPort: cfg.HealthPort,
		SecureAddress: cfg.SecureBindAddress, SecurePort: cfg.SecurePort,
		MasterService: cfg.MasterService,
	}
	if cfg.EnableCoordinator {
		if cfg.CoordinatorAddress != "" {
			c.Coordinators = strings.Split(cfg.CoordinatorAddress, ",")
		}
		if t, err := discover.Recall(cfg.CertDir, cfg.Pool); cfg.CoordinatorAddress == "" && err == nil {
			c.Coordinators, c.CoordinatorCA = t.Servers(), []byte(t.CA)
			c.CoordinatorName = cfg.Pool.CoordinatorServerName()
		}
	}
	if err := cfg.Validate(); err != nil {
		c.Invalid = err.Error()
	}
	return c
}
