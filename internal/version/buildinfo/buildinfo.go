// Package buildinfo tells Prometheus what a program is made from.
package buildinfo

import (
	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/internal/version"
)

// New returns the metric PROGRAM_build_info of a program. Its value is always 1, and its labels say what the program is made
// from. The parameter program is the program's name as metrics have it.
func New(program string, of version.Info) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: program + "_build_info",
		Help: "Always 1. The labels say of which release the program is, and what it is made from.",
		ConstLabels: prometheus.Labels{
			"version": of.Version, "git_commit": of.Commit, "go_version": of.GoVersion, "kubernetes_version": of.Kubernetes,
		},
	}, func() float64 { return 1 })
}
