package join

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDistributionOf(t *testing.T) {
	for _, tt := range []struct {
		name, osRelease string
		paths           []string
		want            string // empty: none
	}{
		{"Debian with kubeadm", "PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\n",
			[]string{"/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/config.yaml"}, ""},
		{"nothing", "", nil, ""},
		{"k3s server", "ID=ubuntu\n", []string{"/etc/rancher/k3s"}, "k3s"},
		{"k3s agent without settings", "ID=ubuntu\n", []string{"/var/lib/rancher/k3s/agent"}, "k3s"},
		{"RKE2", "ID=\"sles\"\n", []string{"/etc/rancher/rke2"}, "RKE2"},
		{"EKS, Amazon Linux 2", "ID=\"amzn\"\n", []string{"/etc/eks"}, "EKS"},
		{"EKS, Amazon Linux 2023", "ID=\"amzn\"\n", []string{"/usr/bin/nodeadm"}, "EKS"},
		{"Amazon Linux with kubeadm", "ID=\"amzn\"\n", nil, ""},
		{"AKS", "ID=ubuntu\n", []string{"/opt/azure/containers"}, "AKS"},
		{"GKE", "ID=cos\nID_LIKE=other\n", nil, "GKE"},
		{"GKE on Ubuntu", "ID=ubuntu\n", []string{"/home/kubernetes/kube-env"}, "GKE"},
		{"OpenShift", "ID=\"rhcos\"\nID_LIKE=\"rhel fedora\"\n", nil, "OpenShift"},
		{"OpenShift on RHEL", "ID=\"rhel\"\n", []string{"/etc/machine-config-daemon"}, "OpenShift"},
		{"RHEL with kubeadm", "ID=\"rhel\"\n", nil, ""},
		{"Talos", "NAME=\"Talos\"\nID=talos\n", nil, "Talos"},
		{"Bottlerocket", "ID=bottlerocket", nil, "Bottlerocket"},
		{"Flatcar", "ID=flatcar\nID_LIKE=coreos\n", nil, "Flatcar"},
		{"a word that only ends so", "VERSION_ID=talos\n", nil, ""},
	} {
		got := ""
		if d := distributionOf(tt.osRelease, func(p string) bool { return slices.Contains(tt.paths, p) }); d != nil {
			got = d.name
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestDistributionsAreOnThePage: what a refusal refers to is there, and every distribution has a reason.
func TestDistributionsAreOnThePage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../../..", pageCompatibility))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Distributions\n")
	if !found {
		t.Fatal("the page has no section on distributions")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, d := range distributions {
		if len(d.marks)+len(d.ids) == 0 || d.why == "" {
			t.Errorf("%s: has no marks or no reason", d.name)
		}
		if !strings.Contains(section, "\n| "+d.name) {
			t.Errorf("%s has no row in %s", d.name, pageCompatibility)
		}
	}
}

// TestJoinOnADistribution: the refusal names the distribution, says why join can't work there, and where to read on. If its
// kubelet is started as kubeadm's is, the node is joined.
func TestJoinOnADistribution(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(*machine)
		say     []string // nil: it is joined
	}{
		"k3s": {func(m *machine) {
			m.remove("usr/lib/systemd/system", "var/lib/kubelet")
			m.write("etc/rancher/k3s/config.yaml", "server: https://10.0.0.1:6443\n")
		}, []string{"this is a node of k3s, where kubelet is a part of the k3s", pageCompatibility, "no kubelet.service"}},
		"AKS": {func(m *machine) {
			m.remove("usr/lib/systemd/system/kubelet.service.d")
			m.write("opt/azure/containers/provision.sh", "")
		}, []string{"this is a node of AKS", "KUBELET_KUBECONFIG_ARGS"}},
		"Talos": {func(m *machine) {
			m.remove("run")
			m.write("etc/os-release", "ID=talos\n")
		}, []string{"this is a node of Talos", "systemd does not run here"}},
		"a node that only has kubelet's unit": {func(m *machine) {
			m.remove("var/lib/kubelet/config.yaml")
			m.write("etc/eks/bootstrap.sh", "")
		}, []string{"this is a node of EKS", "run kubeadm join first"}},
		"nobody knows which": {func(m *machine) { m.remove("usr/lib/systemd/system/kubelet.service.d") },
			[]string{"KUBELET_KUBECONFIG_ARGS", "what works where: " + pageCompatibility}},
		"Flatcar, as kubeadm lays it out": {func(m *machine) { m.write("etc/os-release", "ID=flatcar\n") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			tt.prepare(m)
			r := m.run("join", 0, "--start")
			if r.failed != (tt.say != nil) {
				t.Fatalf("failed %v, and says:\n%s", r.failed, r.out)
			}
			for _, want := range tt.say {
				if !strings.Contains(r.out, want) {
					t.Errorf("does not say %q:\n%s", want, r.out)
				}
			}
		})
	}
}
