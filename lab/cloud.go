package lab

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/lab/build"
	"yurtcoordinator/lab/machine"
)

// AdminToken is an administrator's bearer token for the cloud, for requests that go there through a hub. It is not
// secret: the lab has its own network namespace.
const AdminToken = "lab-admin"

// controlPlaneKeys are the files that the control plane's programs need.
func controlPlaneKeys(cfg Config) []string {
	names := []string{
		"ca.key", "kube-apiserver.crt", "kube-apiserver.key", "kube-apiserver-kubelet-client.crt",
		"kube-apiserver-kubelet-client.key", "sa.pub", "sa.key", "tokens.csv",
		"kube-controller-manager.kubeconfig", "kube-scheduler.kubeconfig", knownAuthorities,
	}
	if cfg.NextAuthority {
		for _, name := range slices.Concat(both("ca"), both(apiServerKeys)) {
			names = append(names, filepath.Join(nextDir, name))
		}
	}
	if !cfg.Installed {
		names = append(names, "coordinator-controller.kubeconfig", "coordinator-approver.kubeconfig")
	}
	return names
}

// controlPlane returns the commands that start the cloud, in two steps: the second needs the servers of the first.
func controlPlane(bins build.Binaries, disk string, cfg Config) (core, rest []machine.Command) {
	t, all := cfg.Timing, cfg.families()
	cert := func(name string) string { return filepath.Join(disk, keysDir, name) }
	logs := func(name string) string { return filepath.Join(disk, name+".log") }
	seconds := func(flag string, d time.Duration) string { return fmt.Sprintf("--%s=%d", flag, int(d.Seconds())) }

	store := func(name, data, address, peers string) machine.Command {
		return machine.Command{Name: name, Log: logs(name), Argv: []string{
			bins.Etcd, "--data-dir=" + filepath.Join(disk, data), "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls=http://" + address, "--advertise-client-urls=http://" + address,
			"--listen-peer-urls=http://" + peers,
		}}
	}
	core = []machine.Command{store("etcd", etcdData, etcdAddress, "127.0.0.1:2380")}
	apiserver := machine.Command{Name: "kube-apiserver", Log: logs("kube-apiserver"), Argv: []string{
		bins.KubeAPIServer, "--etcd-servers=http://127.0.0.1:2379", "--cert-dir=" + filepath.Join(disk, "certs"),
		"--bind-address=" + all[0].cloudWAN().String(), "--advertise-address=" + all[0].cloudWAN().String(),
		fmt.Sprintf("--secure-port=%d", portAPIServer),
		"--service-cluster-ip-range=" + listed(all, func(f family) netip.Prefix { return f.services }),
		"--tls-cert-file=" + cert("kube-apiserver.crt"), "--tls-private-key-file=" + cert("kube-apiserver.key"),
		"--client-ca-file=" + cert(knownAuthorities),
		"--kubelet-certificate-authority=" + cert("ca.crt"),
		"--kubelet-client-certificate=" + cert("kube-apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + cert("kube-apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-key-file=" + cert("sa.pub"), "--service-account-signing-key-file=" + cert("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth",
		"--allow-privileged=true", // as with kubeadm
		"--token-auth-file=" + cert("tokens.csv"),
		seconds("default-not-ready-toleration-seconds", t.Toleration),
		seconds("default-unreachable-toleration-seconds", t.Toleration),
		"--audit-policy-file=" + filepath.Join(disk, "audit-policy.yaml"),
		"--audit-log-path=" + filepath.Join(disk, auditLog),
		// A line is in the file before the end of the answer is sent, and all lines are in one file: whoever has an
		// answer finds it in the log.
		"--audit-log-mode=blocking", "--audit-log-maxsize=4096",
	}}
	if cfg.EventsApart {
		core = append(core, store(string(EtcdEvents), "etcd-events", etcdEventsAddress, "127.0.0.1:2382"))
		apiserver.Argv = append(apiserver.Argv, "--etcd-servers-overrides=/events#http://"+etcdEventsAddress)
	}
	client := func(program, name string, flags ...string) machine.Command {
		kubeconfig := cert(name + ".kubeconfig")
		return machine.Command{Name: name, Log: logs(name), Argv: append([]string{
			program, "--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1",
			"--cert-dir=" + filepath.Join(disk, "certs"),
		}, flags...)}
	}
	life := cfg.CertificateLife
	if life == 0 {
		life = 365 * 24 * time.Hour
	}
	rest = []machine.Command{
		client(bins.KubeControllerManager, "kube-controller-manager",
			"--controllers=*,bootstrap-signer-controller,token-cleaner-controller", "--cluster-signing-duration="+life.String(),
			"--use-service-account-credentials", "--service-account-private-key-file="+cert("sa.key"),
			"--root-ca-file="+cert("ca.crt"), "--cluster-signing-cert-file="+cert("ca.crt"),
			"--cluster-signing-key-file="+cert("ca.key"),
			"--node-monitor-grace-period="+t.Grace.String(), "--node-monitor-period="+t.Monitor.String()),
		client(bins.KubeScheduler, "kube-scheduler"),
	}
	if !cfg.Installed {
		rest = append(rest, machine.Command{Name: "coordinator-controller", Log: logs("coordinator-controller"), Argv: []string{
			bins.CoordinatorController, "--kubeconfig=" + cert("coordinator-controller.kubeconfig"),
			"--silence-after=" + silenceAfter(t).String(), "--approver=elsewhere",
			"--node-pools=false", "--yurt-app-sets=false", "--yurt-coordinators=false", // the lab stands in for them
			"--metrics-bind-address=127.0.0.1:8443", "--health-probe-bind-address=127.0.0.1:8081",
		}}, machine.Command{Name: "coordinator-approver", Log: logs("coordinator-approver"), Argv: []string{
			bins.CoordinatorController, "--kubeconfig=" + cert("coordinator-approver.kubeconfig"),
			"--approver=alone", "--kubelet-serving-cidrs=" + listed(all, lanNetwork),
			"--metrics-bind-address=127.0.0.1:8444", "--health-probe-bind-address=127.0.0.1:8083",
		}})
	}
	for i := range rest {
		rest[i].Again = true // they end when they lose their lock, or are refused for a moment
	}
	return append(core, apiserver), rest
}

// silenceAfter returns coordinator-controller's setting of that name, which must be less than the grace period.
func silenceAfter(t Timing) time.Duration { return t.Grace * 4 / 5 }

// auditLog is a file on the cloud's disk.
const auditLog = "audit.log"

// auditPolicy records what the scenarios check: who changed Leases, who impersonated somebody, and who read the resources that
// a pool shares. It records a watch twice, at its beginning and at its end.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: Metadata
  verbs: [list, watch]
  resources:
  - {group: discovery.k8s.io, resources: [endpointslices]}
  - {group: "", resources: [endpoints, services, namespaces]}
  - {group: apps.openyurt.io, resources: [nodepools]}
- level: None
`

// auditAll records every request. A watch is recorded as above.
const auditAll = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func (c Config) auditPolicy() string {
	if c.AuditAll {
		return auditAll
	}
	return auditPolicy
}

// Programs of the control plane, for Client.Cloud.
const (
	Etcd                  Component = "etcd"
	EtcdEvents            Component = "etcd-events" // with Config.EventsApart
	KubeAPIServer         Component = "kube-apiserver"
	KubeControllerManager Component = "kube-controller-manager"
	KubeScheduler         Component = "kube-scheduler"
	CoordinatorController Component = "coordinator-controller"
	// CoordinatorApprover is coordinator-controller's program in its other role. In an installed lab an action on one is done
	// to both.
	CoordinatorApprover Component = "coordinator-approver"
)

// Cloud performs an action on a program of the control plane, or on all of it. At a start, flags replace the program's own
// flags of the same names until the next start. After a start of kube-apiserver, or of all, Cloud returns when the cloud
// serves.
func (l *Lab) Cloud(ctx context.Context, a Action, c Component, flags []string) error {
	h := l.hosts[cloudMachine]
	if l.cfg.Installed {
		if c == CoordinatorController || c == CoordinatorApprover {
			return l.containerised(ctx, a, h, controllerProgram)
		}
		if n := l.node(inCloud); slices.Contains(n.components(), c) {
			return l.component(ctx, a, h, n, c)
		}
	}
	core, rest := controlPlane(l.bins, h.spec.Disk, l.cfg)
	command, err := findCommand(slices.Concat(core, rest), c)
	if err != nil {
		return err
	}
	if len(flags) > 0 && (c == All || a != Start && a != Restart) {
		return fmt.Errorf("flags %v: only the start of one program takes flags", flags)
	}
	if command.Argv, err = override(command.Argv, flags); err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	if a == Restart {
		// A program that has died is started all the same.
		_ = l.order(ctx, Kill, h, c, nil)
		a = Start
	}
	if err := l.order(ctx, a, h, c, func(ctx context.Context, m *machine.Machine) error {
		return m.Start(ctx, command)
	}); err != nil {
		return err
	}
	if a == Start && c == KubeAPIServer {
		return l.watch().waitServing(ctx, l.cfg.bootTimeout())
	}
	return nil
}

// findCommand returns the command of a component; for All it returns none.
func findCommand(all []machine.Command, c Component) (machine.Command, error) {
	if c == All {
		return machine.Command{}, nil
	}
	names := make([]string, len(all))
	for i, command := range all {
		if names[i] = command.Name; names[i] == string(c) {
			return command, nil
		}
	}
	return machine.Command{}, fmt.Errorf("the cloud has no %s: want one of %s, or all", c, strings.Join(names, ", "))
}

// override replaces flags ("--name=value", or "--name" for true) in a command line, and adds missing ones. A flag that was only
// appended would add its values to a list flag such as --authorization-mode.
func override(argv, flags []string) ([]string, error) {
	argv = slices.Clone(argv)
	for _, f := range flags {
		name, _, _ := strings.Cut(f, "=")
		if !strings.HasPrefix(name, "--") || len(name) < 3 {
			return nil, fmt.Errorf("flag %q: want --name=value", f)
		}
		argv = slices.DeleteFunc(argv, func(old string) bool { return old == name || strings.HasPrefix(old, name+"=") })
	}
	return append(argv, flags...), nil
}
