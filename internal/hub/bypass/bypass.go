// Package bypass finds programs of a node that connect to API servers past the node's hub. It reads processes and connections
// from the kernel (proc(5)).
//
// It needs no container runtime: a process's cgroup names its Pod, and its environment holds the API server's address. It
// leaves out programs that have ended meanwhile, and those that it cannot read.
package bypass

import (
	"bytes"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"yurtcoordinator/internal/conns"
)

// Program is a process.
type Program struct {
	PID  int
	Name string
	// Pod is the UID of its Pod; empty if it has none. Static says that kubelet made the Pod by itself.
	Pod    string
	Static bool
	// Told is where its environment says that the API server is; not valid if it does not.
	Told netip.AddrPort
	// Past are API servers that it has connections to, sorted.
	Past []netip.AddrPort
}

// These bound what is read: processes, open files of one process, bytes of a file, bytes of the list of sockets (some 150 each).
const (
	maxProcesses, maxFiles = 10_000, 10_000
	maxContent, maxSockets = 64 << 10, 4 << 20
)

// InPods returns the programs of Pods, by PID. proc is where the kernel says it, /proc.
func InPods(proc string) (all []Program) {
	for _, pid := range Processes(proc) {
		if p := readProgram(proc, pid); p.Pod != "" {
			all = append(all, p)
		}
	}
	return all
}

// Past returns the programs with connections to API servers past the hub, sorted by PID. API servers are the given servers, and
// the address that a program's environment names. Connections to the hub do not count, nor do the hub's own.
func Past(proc string, servers []netip.AddrPort, hub netip.AddrPort) (all []Program) {
	pids := Processes(proc)
	remotes := map[uint64]netip.AddrPort{}
	networks := map[string]bool{}
	for _, pid := range pids {
		network, err := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "ns", "net"))
		if err != nil || networks[network] {
			continue
		}
		networks[network] = true
		for _, table := range []string{"tcp", "tcp6"} {
			content, _ := read(filepath.Join(proc, strconv.Itoa(pid), "net", table), maxSockets)
			for _, s := range conns.Sockets(content) {
				if s.Open {
					remotes[s.Inode] = s.Remote
				}
			}
		}
	}
	for _, pid := range pids {
		inodes := sockets(proc, pid)
		if len(inodes) == 0 {
			continue
		}
		p := readProgram(proc, pid)
		if p.Name == "yurthub" {
			continue
		}
		past := map[netip.AddrPort]bool{}
		for _, inode := range inodes {
			to, ok := remotes[inode]
			if ok && to != hub && (to == p.Told || slices.Contains(servers, to)) {
				past[to] = true
			}
		}
		if len(past) > 0 {
			p.Past = slices.SortedFunc(maps.Keys(past), netip.AddrPort.Compare)
			all = append(all, p)
		}
	}
	return all
}

// ByAddress returns where servers are that are named by an address; those with names are left out.
func ByAddress(servers ...*url.URL) (all []netip.AddrPort) {
	for _, u := range servers {
		port := u.Port()
		if port == "" {
			port = "443"
		}
		ip, err := netip.ParseAddr(u.Hostname())
		number, errPort := strconv.ParseUint(port, 10, 16)
		if err == nil && errPort == nil {
			all = append(all, netip.AddrPortFrom(ip.Unmap(), uint16(number)))
		}
	}
	return all
}

func sockets(proc string, pid int) (inodes []uint64) {
	dir := filepath.Join(proc, strconv.Itoa(pid), "fd")
	for _, fd := range names(dir, maxFiles) {
		link, err := os.Readlink(filepath.Join(dir, fd))
		if err != nil {
			continue
		}
		text, ok := strings.CutPrefix(link, "socket:[")
		if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); ok && err == nil {
			inodes = append(inodes, inode)
		}
	}
	return inodes
}

// Processes returns the processes that can be seen, sorted.
func Processes(proc string) (pids []int) {
	for _, name := range names(proc, maxProcesses) {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// names returns at most so many names in a directory; none of one that cannot be read.
func names(dir string, most int) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	found, _ := d.Readdirnames(most) // what was read before an error counts
	return found
}

func read(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// podOf is how kubelet names a Pod's cgroup, by either driver. The UID of a Pod that kubelet made from a file has no hyphens.
var podOf = regexp.MustCompile(`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})`)

func readProgram(proc string, pid int) Program {
	at := func(name string) string { return filepath.Join(proc, strconv.Itoa(pid), name) }
	name, _ := read(at("comm"), maxContent)
	p := Program{PID: pid, Name: strings.TrimSpace(string(name))}
	cgroups, _ := read(at("cgroup"), maxContent)
	if found := podOf.FindSubmatch(cgroups); found != nil {
		p.Pod = strings.ReplaceAll(string(found[1]), "_", "-")
		p.Static = !strings.Contains(p.Pod, "-")
	}
	environment, _ := read(at("environ"), maxContent)
	host, port := "", ""
	for each := range bytes.SplitSeq(environment, []byte{0}) {
		switch name, value, _ := strings.Cut(string(each), "="); name {
		case "KUBERNETES_SERVICE_HOST":
			host = value
		case "KUBERNETES_SERVICE_PORT":
			port = value
		}
	}
	ip, err := netip.ParseAddr(host)
	number, errPort := strconv.ParseUint(port, 10, 16)
	if err == nil && errPort == nil {
		p.Told = netip.AddrPortFrom(ip.Unmap(), uint16(number))
	}
	return p
}
