package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"
)

// maxProcesses bounds how many processes are looked through.
const maxProcesses = 10_000

// probeKubelet finds the node's kubelet and where its kubeconfig leads.
func probeKubelet(ctx context.Context, c Config) func(*Facts) {
	var k Kubelet
	for _, pid := range processes() {
		argv := commandLine(pid)
		if len(argv) > 0 && filepath.Base(argv[0]) == "kubelet" && ofThisNode(pid) {
			k = kubeletOf(argv)
			break
		}
	}
	status, body, _, err := fetch(ctx, plainClient(c.Step, new(http.Transport)), c.KubeletHealth)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		k.NoHealth = true // kubelet need not serve its health
	case err != nil:
		k.Health = cause(err)
	case status != http.StatusOK:
		k.Health = fmt.Sprintf("status %d: %s", status, line(string(body)))
	}
	return func(f *Facts) { f.Kubelet = k }
}

// kubeletOf returns what a kubelet's command line leads to.
func kubeletOf(argv []string) Kubelet {
	k := Kubelet{Running: true, Rotates: rotates(argv), Config: File{Path: flagValue(argv, "kubeconfig")}}
	if k.Config.Path == "" {
		return k
	}
	var content []byte
	if k.Config, content = readFile(k.Config.Path); k.Config.fine() {
		var found credential
		found, k.Config.Trouble = parseCredential(k.Config.Path, content)
		k.Server = strings.TrimSuffix(line(found.server), "/")
	}
	return k
}

// processes returns the IDs of the processes that can be seen.
func processes() (pids []string) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxProcesses)
	for _, name := range names {
		if _, err := strconv.Atoi(name); err == nil {
			pids = append(pids, name)
		}
	}
	return pids
}

// commandLine returns a process's command line; nil if it cannot be seen.
func commandLine(pid string) []string {
	content, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	if err != nil || len(content) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(content), "\x00"), "\x00")
}

// ofThisNode reports whether a process runs outside containers: nodes can be containers, with kubelets of their own.
func ofThisNode(pid string) bool {
	theirs, err := os.Readlink(filepath.Join("/proc", pid, "ns", "pid"))
	if err != nil {
		return false
	}
	own, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && theirs == own
}

// flagValue returns the last value of a flag on a command line, --name=value or --name value.
func flagValue(argv []string, name string) string {
	value := ""
	for i, arg := range argv {
		flag, found := strings.CutPrefix(arg, "--"+name)
		switch {
		case !found:
		case strings.HasPrefix(flag, "="):
			value = flag[1:]
		case flag == "" && i+1 < len(argv):
			value = argv[i+1]
		}
	}
	return value
}

// rotates reports whether a kubelet with this command line asks for client certificates by itself.
func rotates(argv []string) bool {
	if flag := flagValue(argv, "rotate-certificates"); flag != "" {
		return flag == "true"
	}
	var settings struct {
		RotateCertificates bool `json:"rotateCertificates"`
	}
	_, content := readFile(flagValue(argv, "config"))
	return yaml.Unmarshal(content, &settings) == nil && settings.RotateCertificates
}
