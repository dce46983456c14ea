// Command coordinator-controller is the part of the system that runs in the cloud. See internal/cloud.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/cloud"
	"yurtcoordinator/internal/flagfile"
	"yurtcoordinator/internal/logs"
	"yurtcoordinator/internal/version"
)

func main() {
	var c cloud.Config
	fs := pflag.NewFlagSet(cloud.Name, pflag.ContinueOnError)
	kubeconfig := fs.String("kubeconfig", "", "kubeconfig of the API server; empty means in-cluster, as a Pod")
	fs.StringVar(&c.MetricsAddress, "metrics-bind-address", ":8443",
		"host:port that serves /metrics over TLS, to those who may get that URL in the cluster; 0 turns it off")
	fs.StringVar(&c.MetricsCertDir, "metrics-cert-dir", cloud.DefaultMetricsCertDir,
		"directory with the certificate for /metrics, tls.crt and tls.key; without them the program signs one by itself")
	fs.StringVar(&c.HealthAddress, "health-probe-bind-address", ":8081",
		"host:port of /healthz and /readyz; 0 turns it off")
	fs.StringVar(&c.PprofAddress, "pprof-bind-address", "",
		"host:port that serves profiles of the program to anybody who reaches it; empty turns it off")
	fs.BoolVar(&c.LeaderElect, "leader-elect", true, "elect the replica that writes; when off, run only one")
	fs.StringVar(&c.LeaderElectNamespace, "leader-elect-namespace", "kube-system", "namespace of the election Lease")
	fs.DurationVar(&c.SilenceAfter, "silence-after", cloud.DefaultSilenceAfter,
		"how long a node's Lease may stay unrenewed before the state of its link is unknown; "+
			"less than kube-controller-manager's --node-monitor-grace-period (50s by default)")
	fs.BoolVar(&c.Heartbeats, "heartbeats", true,
		"run the controller of delegated heartbeats, which taints nodes and reports the state of their links; off if another "+
			"controller does")
	fs.BoolVar(&c.Autonomy, "autonomy", true,
		"run the controller that keeps Pods of autonomous nodes; off if another controller does: that one takes over what this "+
			"one has put on Pods")
	fs.BoolVar(&c.PoolCuts, "pool-cuts", true, "run the controller that holds evictions from pools that are cut off as a whole")
	fs.DurationVar(&c.HoldEvictions, "hold-evictions", cloud.DefaultHoldEvictions,
		"how long evictions are held for a pool with a coordinator that is cut off as a whole, unless its NodePool's "+
			"annotation sets another time; 0 means not at all, 168h at most")
	fs.BoolVar(&c.Signer, "signer", true,
		"run the controller that signs the certificates of hubs, and of people who use coordinators")
	fs.BoolVar(&c.NodePools, "node-pools", true, "run the controller of NodePools; off if another controller does")
	fs.BoolVar(&c.AppSets, "yurt-app-sets", true, "run the controller of YurtAppSets; off if another controller does")
	fs.BoolVar(&c.Coordinators, "yurt-coordinators", true, "run the controller of YurtCoordinators")
	fs.BoolVar(&c.PoolSettings, "pool-settings", true, "run the controller of PoolSettings")
	fs.StringVar(&c.Coordinator.Image, "coordinator-image", "",
		"image of yurt-coordinator, without a tag (required with --yurt-coordinators)")
	fs.StringVar(&c.Coordinator.Release, "coordinator-release", "",
		"our release in the tag of --coordinator-image, RELEASE-kKUBERNETES, unless a PoolSettings pins one; empty means "+
			"the release of this program")
	fs.StringVar(&c.Coordinator.Kubernetes, "coordinator-version", "",
		"version of Kubernetes in that tag, unless a YurtCoordinator sets one; empty means the version of this program")
	fs.StringToStringVar(&c.Coordinator.Digests, "coordinator-image-digests", nil,
		"digests of --coordinator-image, as TAG=sha256:…; an image whose tag has none is pulled by its tag alone")
	fs.StringVar((*string)(&c.Coordinator.PullPolicy), "coordinator-image-pull-policy", "IfNotPresent",
		"Always, IfNotPresent or Never")
	fs.StringSliceVar(&c.Coordinator.PullSecrets, "coordinator-image-pull-secrets", nil,
		"Secrets in kube-system for pulling the image")
	fs.StringVar(&c.Coordinator.Rollout.MaxUnavailable, "coordinator-max-unavailable", cloud.DefaultMaxUnavailable,
		"how many coordinators may be under way at a time during a change: a number, or a share of all, such as 10%")
	fs.DurationVar(&c.Coordinator.Rollout.Settle, "coordinator-settle", cloud.DefaultSettle,
		"how long a coordinator must have served before the next one changes")
	fs.DurationVar(&c.Coordinator.Rollout.PullTimeout, "coordinator-pull-timeout", cloud.DefaultPullTimeout,
		"how long a node may take to pull the image of its next coordinator, while the old one runs; 0 pulls nothing in "+
			"advance")
	fs.StringVar(&c.Hub.Image, "hub-image", "",
		"image of yurthub, without a tag, from which hubs are upgraded; the version is the tag; empty means no upgrades")
	fs.StringVar((*string)(&c.Hub.PullPolicy), "hub-image-pull-policy", "IfNotPresent", "Always, IfNotPresent or Never")
	fs.StringSliceVar(&c.Hub.PullSecrets, "hub-image-pull-secrets", nil,
		"Secrets in kube-system for pulling the image of yurthub")
	fs.StringVar(&c.Coordinator.Settings, "coordinator-settings", "",
		"how coordinators run unless a PoolSettings says otherwise: the spec.coordinator of a PoolSettings, in JSON")
	fs.DurationVar(&c.Coordinator.Lives.Serving, "coordinator-certificate-life", 0,
		"how long a coordinator's serving certificate lasts; renewed after two thirds of that; 0 means the default")
	fs.DurationVar(&c.Coordinator.Lives.Operator, "operator-certificate-life", 0,
		"how long the shared certificate of a pool's operators lasts, 30 days at most; renewed after two thirds of that; "+
			"0 means the default")
	fs.DurationVar(&c.Coordinator.Lives.Authority, "pool-authority-life", 0,
		"how long the authority of a pool's certificates lasts; its successor comes after two thirds of that; "+
			"0 means the default")
	fs.DurationVar(&c.Coordinator.Lives.Settle, "pool-authority-settle", 0,
		"how long a pool's next authority is trusted before it signs; must be longer than a hub may be cut off; 0 means the "+
			"default")
	fs.BoolVar(&c.ConstrainedImpersonation, "constrained-impersonation", false,
		"let nodes act as their pool's forwarder only to read and write the pool's Leases; needs Kubernetes 1.36 or later in "+
			"all API servers, with the feature gate ConstrainedImpersonation on, as it is by default")
	fs.StringVar((*string)(&c.Approver), "approver", string(cloud.ApproverWithin),
		"which process approves certificates: this one (within), another (elsewhere), or this one and nothing else (alone)")
	fs.BoolVar(&c.ApproveKubelets, "approve-kubelets", true,
		"approve the serving certificates that pools' kubelets request, each for its own name and addresses")
	fs.StringSliceVar(&c.KubeletServingCIDRs, "kubelet-serving-cidrs", nil,
		"address ranges, as CIDRs, in which pools' kubelets serve; without any, no kubelet's certificate is approved")
	fs.StringSliceVar(&c.KubeletServingNames, "kubelet-serving-names", []string{"*"},
		"patterns of names for which pools' kubelets get serving certificates, if the name is also the Node's; * stands for any "+
			"part between two dots")
	cleanUp := fs.Bool("clean-up", false,
		"stop the Deployment coordinator-controller in kube-system, remove from Nodes, Pods, NodePools and YurtCoordinators "+
			"what the controllers have put there, and exit; run this before you uninstall the controllers")
	check := fs.Bool("check", false,
		"report whether a replica of coordinator-controller leads, and exit; needs only the right to read the election's Lease")
	flagfile.Prints(fs, flagfile.VersionFlag, "print the version of coordinator-controller, and exit",
		version.Get().Line(cloud.Name))
	var form logs.Settings
	form.AddFlags(fs)

	fail := func(err error) {
		klog.Flush()
		form.Tell(os.Stderr, cloud.Name, os.Args[1:], err)
		os.Exit(1)
	}
	if err := flagfile.Parse(fs, os.Args[1:], os.Stdout, nil); errors.Is(err, flagfile.ErrHelp) {
		return
	} else if err != nil {
		fail(err)
	}
	if _, err := form.Start(); err != nil {
		fail(err)
	}
	c.Connect = cloud.Kubeconfig(*kubeconfig)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	act := cloud.Run
	switch {
	case *cleanUp:
		act = cloud.CleanUp
	case *check:
		act = cloud.Check
	}
	if err := act(ctx, c); err != nil {
		fail(err)
	}
	klog.Flush()
}
