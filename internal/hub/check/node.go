package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/hub/bypass"
)

// lookAtDir looks at a directory that the hub needs, or at the nearest one above it that exists.
func lookAtDir(flag, path string) Dir {
	d := Dir{Flag: flag, Path: path}
	at := path
	info, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at {
		at = filepath.Dir(at)
		info, err = os.Stat(at)
	}
	var of unix.Statfs_t
	if err == nil {
		err = unix.Statfs(at, &of)
	}
	d.Free = int64(of.Bavail) * of.Bsize
	switch {
	case !filepath.IsAbs(path):
		d.Trouble = "it is not an absolute path"
	case err != nil:
		d.Trouble = cause(err)
	case !info.IsDir():
		d.Trouble = at + " is not a directory"
	case of.Flags&unix.ST_RDONLY != 0:
		d.Trouble = at + " is on a file system that is read-only"
	case of.Files > 0 && of.Ffree == 0:
		d.Trouble = "the file system of " + at + " has no inodes left, so no files can be created"
	case unix.Access(at, unix.W_OK|unix.X_OK) != nil:
		d.Trouble = at + " may not be written to"
	}
	return d
}

// findKubelet finds the node's kubelet, where its kubeconfig leads, and what it says of its health.
func findKubelet(ctx context.Context, health string, step time.Duration) (k Kubelet) {
	for _, pid := range bypass.Processes("/proc") {
		content, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		argv := strings.Split(strings.TrimRight(string(content), "\x00"), "\x00")
		if filepath.Base(argv[0]) == "kubelet" && ofThisNode(pid) {
			k = kubeletOf(argv[1:])
			break
		}
	}
	status, body, _, err := fetch(ctx, plainClient(step, new(http.Transport)), health)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED): // kubelet need not serve its health
	case err != nil:
		k.Health = cause(err)
	case status != http.StatusOK:
		k.Health = fmt.Sprintf("status %d: %s", status, line(string(body)))
	}
	return k
}

// ofThisNode reports whether a process is in as many PID namespaces as the check itself. A kubelet in a container, which works
// for another node, is in more. Reading the number from /proc needs no rights over the process.
func ofThisNode(pid int) bool { return nested(strconv.Itoa(pid)) == nested("self") }

// nested returns how many namespaces of processes a process is in; 0 means that the kernel does not say.
func nested(process string) int {
	content, _ := os.ReadFile(filepath.Join("/proc", process, "status"))
	_, pids, _ := strings.Cut(string(content), "\nNSpid:")
	pids, _, _ = strings.Cut(pids, "\n")
	return len(strings.Fields(pids))
}

// kubeletOf returns what a kubelet's arguments lead to.
func kubeletOf(args []string) Kubelet {
	k := Kubelet{Running: true}
	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.StringVar(&k.Config, "kubeconfig", "", "")
	settings := flags.String("config", "", "")
	flags.BoolVar(&k.Rotates, "rotate-certificates", false, "")
	_ = flags.Parse(args) // kubelet runs with them: what is understood counts
	if !flags.Changed("rotate-certificates") {
		var said struct {
			RotateCertificates bool `json:"rotateCertificates"`
		}
		content, err := os.ReadFile(*settings)
		k.Rotates = err == nil && yaml.Unmarshal(content, &said) == nil && said.RotateCertificates
	}
	if k.Config == "" {
		return k
	}
	content, err := os.ReadFile(k.Config)
	config, wrong := clientcmd.Load(content) // whose words may quote the content
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.Trouble = "it is not there"
	case err != nil:
		k.Trouble = "it cannot be read: " + cause(err)
	case wrong != nil || config.Contexts[config.CurrentContext] == nil:
		k.Trouble = "it is no kubeconfig with a current context"
	default:
		if cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]; cluster != nil {
			k.Server = strings.TrimSuffix(line(cluster.Server), "/")
		}
	}
	return k
}

// programsPast looks for programs that ask API servers past the hub.
func programsPast(ctx context.Context, c Config) []bypass.Program {
	servers, _ := c.Servers() // what is wrong with them is found elsewhere
	var at []*url.URL
	for _, u := range servers {
		ips, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname()) // of an unknown name nothing can be said
		for _, ip := range ips {
			at = append(at, &url.URL{Host: net.JoinHostPort(ip.Unmap().String(), cmp.Or(u.Port(), "443"))})
		}
	}
	return bypass.Past("/proc", bypass.ByAddress(at...), netip.AddrPort{})
}
