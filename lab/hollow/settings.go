package main

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"yurtcoordinator/lab/hollow/pretend"
)

// Settings configure a hollow kubelet. AddFlags fills in the defaults.
type Settings struct {
	// Kubeconfig is the file with the address of the API, and this kubelet's credentials there.
	Kubeconfig string

	// NodeName is the name of the Node object.
	NodeName string

	// NodeIP is the address that the Node reports, or one of each IP family, separated by a comma. The host must have each.
	// Empty means the address of the default route.
	NodeIP string

	// RootDir holds all files of this kubelet. It is created, and survives a restart.
	RootDir string

	// LeaseDuration is the Lease's duration in whole seconds. The kubelet renews the Lease four times in it, as every kubelet
	// does.
	LeaseDuration time.Duration

	// StatusFrequency is how often the kubelet computes the node's status. It sends the status when that changes, and every
	// five minutes.
	StatusFrequency time.Duration

	// Address and Port are where the kubelet serves, in plain HTTP and open to all. Port 0 turns it off.
	Address string
	Port    int

	NodeLabels map[string]string
	ProviderID string

	// PodCIDR is the range of the Pods' made-up addresses, or one for each IP family, separated by a comma.
	PodCIDR string

	MaxPods int
}

// AddFlags adds the flags of all settings, with their defaults.
func (s *Settings) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.Kubeconfig, "kubeconfig", "", "kubeconfig file of this node")
	fs.StringVar(&s.NodeName, "node-name", "", "name of the Node")
	fs.StringVar(&s.NodeIP, "node-ip", "",
		"address that the Node reports, or one of each IP family: IP,IP; default: the address of the default route")
	fs.StringVar(&s.RootDir, "root-dir", "", "absolute path of the directory that holds all files of this kubelet")
	fs.DurationVar(&s.LeaseDuration, "lease-duration", 40*time.Second,
		"duration of the node's Lease, renewed each quarter of it")
	fs.DurationVar(&s.StatusFrequency, "status-frequency", 10*time.Second, "how often to compute the node's status")
	fs.StringVar(&s.Address, "address", "127.0.0.1",
		"address that the kubelet serves on, without TLS or any check of the caller")
	fs.IntVar(&s.Port, "port", 10250, "port that the kubelet serves on; 0 turns it off")
	fs.StringToStringVar(&s.NodeLabels, "node-labels", nil, "labels of the Node: key=value,…")
	fs.StringVar(&s.ProviderID, "provider-id", "", "the Node's provider ID; default: hollow://<node name>")
	fs.StringVar(&s.PodCIDR, "pod-cidr", "10.244.0.0/16",
		"range of the Pods' made-up addresses, or one for each IP family: CIDR,CIDR")
	fs.IntVar(&s.MaxPods, "max-pods", 110, "how many Pods the node takes")
}

// Check returns everything that is wrong with the settings, by flag.
func (s *Settings) Check() error {
	var wrong []error
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if s.Kubeconfig == "" {
		bad("--kubeconfig is required")
	}
	for _, reason := range validation.IsDNS1123Subdomain(s.NodeName) {
		bad("--node-name %q: %s", s.NodeName, reason)
	}
	if !filepath.IsAbs(s.RootDir) {
		bad("--root-dir %q: not an absolute path", s.RootDir)
	}
	if s.NodeIP != "" {
		for ip := range strings.SplitSeq(s.NodeIP, ",") {
			if _, err := netip.ParseAddr(ip); err != nil {
				bad("--node-ip: %w", err)
			}
		}
	}
	if s.LeaseDuration < time.Second || s.LeaseDuration%time.Second != 0 {
		bad("--lease-duration %s: not a whole number of seconds, one or more", s.LeaseDuration)
	}
	if s.StatusFrequency <= 0 {
		bad("--status-frequency %s: not positive", s.StatusFrequency)
	}
	if _, err := netip.ParseAddr(s.Address); err != nil {
		bad("--address: %w", err)
	}
	if s.Port < 0 || s.Port > 65535 {
		bad("--port %d: not a port", s.Port)
	}
	if s.MaxPods < 1 {
		bad("--max-pods %d: a node takes at least one Pod", s.MaxPods)
	}
	cidrs, err := s.podCIDRs()
	if err != nil {
		bad("--pod-cidr: %w", err)
	}
	for _, p := range cidrs {
		if pretend.Hosts(p) < s.MaxPods {
			bad("--pod-cidr %s: not enough addresses for --max-pods %d", p, s.MaxPods)
		}
	}
	return errors.Join(wrong...)
}

func (s *Settings) podCIDRs() (all []netip.Prefix, err error) {
	for cidr := range strings.SplitSeq(s.PodCIDR, ",") {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// heartbeatTimeout bounds each request that keeps the node alive: by then the next one is due.
func (s *Settings) heartbeatTimeout() time.Duration {
	return min(s.StatusFrequency, s.LeaseDuration/4)
}
