package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"

	"yurtcoordinator/lab/hollow/pretend"
)

// Run runs the node. It returns when ctx ends, or at once if the kubelet can't start. The kubelet's code can't be stopped, so
// the process must end when Run returns.
func Run(ctx context.Context, s Settings) error {
	flags, config, err := kubeletOptions(s)
	if err != nil {
		return fmt.Errorf("kubelet's settings: %w", err)
	}
	for _, dir := range []string{s.RootDir, config.StaticPodPath, config.PodLogsDir, temp(s)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("--root-dir: %w", err)
		}
	}
	if err := os.Setenv("TMPDIR", temp(s)); err != nil {
		return fmt.Errorf("set TMPDIR: %w", err)
	}

	// As in a kubelet: when heartbeats keep failing, all connections are closed, because they may hang in a dead one.
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	client, heartbeat, err := clients(s, dialer)
	if err != nil {
		return err
	}
	podCIDRs, err := s.podCIDRs()
	if err != nil {
		return err
	}
	runtime := pretend.New(podCIDRs...)
	hollow := kubemark.NewHollowKubelet(flags, config, client, heartbeat, &cadvisortest.Fake{NodeName: s.NodeName},
		runtime.Images(), runtime, cm.NewStubContainerManager())
	hollow.KubeletDeps.OnHeartbeatFailure = dialer.CloseAll

	server := &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *config}
	if err := app.RunKubelet(ctx, server, hollow.KubeletDeps); err != nil {
		return fmt.Errorf("kubelet of node %s: %w", s.NodeName, err)
	}
	klog.FromContext(ctx).Info("Hollow kubelet runs", "node", s.NodeName, "lease", s.LeaseDuration)
	<-ctx.Done()
	return nil
}

func temp(s Settings) string { return filepath.Join(s.RootDir, "tmp") }

// clients returns the kubelet's client and its client for heartbeats, whose requests end before the next heartbeat is
// due.
func clients(s Settings, dialer *connrotation.Dialer) (client, heartbeat *kubernetes.Clientset, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	config.Dial = dialer.DialContext
	config.UserAgent = "kubelet/hollow" // hubs recognize it by the first part
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.QPS, config.Burst = 50, 100 // a kubelet's defaults
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, nil, fmt.Errorf("API client: %w", err)
	}
	beat := rest.CopyConfig(config)
	beat.QPS = -1 // never wait for other requests
	beat.Timeout = s.heartbeatTimeout()
	if heartbeat, err = kubernetes.NewForConfig(beat); err != nil {
		return nil, nil, fmt.Errorf("heartbeat client: %w", err)
	}
	return client, heartbeat, nil
}

// kubeletOptions returns Kubernetes' defaults, adapted to a node without a machine, containers and a disk.
func kubeletOptions(s Settings) (*options.KubeletFlags, *kubeletconfig.KubeletConfiguration, error) {
	f := options.NewKubeletFlags()
	f.RootDirectory = s.RootDir
	f.CertDirectory = filepath.Join(s.RootDir, "pki")
	f.HostnameOverride = s.NodeName
	f.NodeIP = s.NodeIP
	f.NodeLabels = s.NodeLabels
	f.MaxContainerCount = 100
	f.MaxPerPodContainerCount = 2

	c, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, nil, err
	}
	c.ProviderID = s.ProviderID
	if c.ProviderID == "" {
		c.ProviderID = "hollow://" + s.NodeName
	}
	c.NodeLeaseDurationSeconds = int32(s.LeaseDuration / time.Second)
	c.NodeStatusUpdateFrequency.Duration = s.StatusFrequency
	c.NodeStatusReportFrequency.Duration = 5 * time.Minute
	c.MaxPods = int32(s.MaxPods)
	c.StaticPodPath = filepath.Join(s.RootDir, "manifests")
	c.PodLogsDir = filepath.Join(s.RootDir, "logs")
	c.VolumePluginDir = filepath.Join(s.RootDir, "volume-plugins")

	// It serves without TLS, as kubemark does: the API server's logs and exec do not reach a hollow node.
	c.EnableServer = s.Port != 0
	c.Address, c.Port, c.ReadOnlyPort = s.Address, int32(s.Port), 0
	c.HealthzPort = 0

	// There are no cgroups, disks or resolvers to manage or to watch.
	c.CgroupsPerQOS, c.CgroupRoot, c.EnforceNodeAllocatable = false, "", nil
	c.FailCgroupV1 = false
	c.LocalStorageCapacityIsolation = false
	c.EvictionHard = nil
	c.ResolverConfig = ""
	c.EnableControllerAttachDetach = false
	c.MakeIPTablesUtilChains = false
	return f, c, nil
}
