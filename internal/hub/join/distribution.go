package join

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// distribution is a Kubernetes distribution, or an operating system made for one, whose kubelet is usually not started in the
// way that Join needs.
type distribution struct {
	name string
	// marks are paths that only such a node has. ids are its names in /etc/os-release. One of either is enough.
	marks, ids []string
	// why says what is different there.
	why string
}

// pageCompatibility is the page that says what works where. A test compares it with distributions.
const pageCompatibility = "docs/compatibility.md"

// distributions are those that Join recognizes by their files, specific ones first: OpenShift's nodes are also nodes of a
// Linux.
var distributions = []distribution{{
	name: "k3s", marks: []string{"/etc/rancher/k3s", "/var/lib/rancher/k3s/agent"},
	why: "kubelet is a part of the k3s process, which writes its kubeconfig at each start",
}, {
	name: "RKE2", marks: []string{"/etc/rancher/rke2", "/var/lib/rancher/rke2/agent"},
	why: "rke2 starts kubelet itself, with a kubeconfig that it writes at each start",
}, {
	name: "EKS", marks: []string{"/etc/eks", "/usr/bin/nodeadm"},
	why: "kubelet authenticates with a token that an exec plugin makes, and the cluster signs no client certificates for nodes",
}, {
	name: "AKS", marks: []string{"/opt/azure/containers", "/etc/kubernetes/azure.json"},
	why: "kubelet is started by Azure's own unit with /var/lib/kubelet/kubeconfig, and a node image's update replaces the node",
}, {
	name: "GKE", marks: []string{"/home/kubernetes/kube-env", "/home/kubernetes/bin"}, ids: []string{"cos"},
	why: "kubelet is started by Google's own unit, and repairs and upgrades make the node again from its image",
}, {
	name: "OpenShift", marks: []string{"/etc/machine-config-daemon"}, ids: []string{"rhcos"},
	why: "the Machine Config Operator owns kubelet's unit and kubeconfig, and marks a node with other files as degraded",
}, {
	name: "Talos", ids: []string{"talos"},
	why: "the system is read-only, has no systemd, and starts kubelet from its own machine configuration",
}, {
	name: "Bottlerocket", ids: []string{"bottlerocket"},
	why: "the system is read-only, and makes kubelet's unit and kubeconfig from its own settings",
}, {
	name: "Flatcar", ids: []string{"flatcar"},
	why: "kubelet's unit is whatever the machine was provisioned with; one that is laid out as kubeadm's can be joined, with " +
		"--binary at a place that can be written, as /opt/bin",
}}

// fileOSRelease says which system it is.
const fileOSRelease = "/etc/os-release"

// distributionOf returns the distribution of a node, recognized by its files; nil means none of distributions.
func distributionOf(osRelease string, there func(path string) bool) *distribution {
	id := osID(osRelease)
	for i, d := range distributions {
		for _, mark := range d.marks {
			if there(mark) {
				return &distributions[i]
			}
		}
		for _, known := range d.ids {
			if id == known {
				return &distributions[i]
			}
		}
	}
	return nil
}

// osID returns the ID of an os-release file; empty if it has none.
func osID(osRelease string) string {
	for lines := bufio.NewScanner(strings.NewReader(osRelease)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "ID="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return ""
}

// findDistribution looks for the marks of distributions. A mark that can't be read counts as missing: it only decides what an
// error says.
func (f *facts) findDistribution(root string) {
	release, _ := readText(root + fileOSRelease)
	f.distribution = distributionOf(release, func(path string) bool {
		_, err := os.Lstat(root + path)
		return err == nil
	})
}

// otherwise adds to an error about how kubelet is started: the node's distribution, what is different there, and where to read
// on.
func (f *facts) otherwise(err error) error {
	if f.distribution == nil {
		return fmt.Errorf("%w (what works where: %s)", err, pageCompatibility)
	}
	d := f.distribution
	return fmt.Errorf("this is a node of %s, where %s: see %s: %w", d.name, d.why, pageCompatibility, err)
}
