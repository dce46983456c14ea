package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"yurtcoordinator/internal/run"
	"yurtcoordinator/lab/build"
	"yurtcoordinator/lab/machine"
)

// Arguments of this program when it runs as the lab's own process, or removes a directory; see Main.
const (
	supervisorArg = "lab-supervisor"
	removerArg    = "lab-remover"
)

// Main runs the lab's own process, or a machine's first process, if the calling program was started as one; then it never
// returns. A program that calls Up must call Main first.
func Main() {
	machine.Main()
	if len(os.Args) > 3 && os.Args[1] == runcArg {
		fmt.Fprintln(os.Stderr, runWithoutCgroups(os.Args[2], os.Args[3:]))
		os.Exit(1)
	}
	if len(os.Args) != 3 {
		return
	}
	var work func(dir string) error
	switch os.Args[1] {
	case supervisorArg:
		work = supervise
	case removerArg:
		work = os.RemoveAll
	default:
		return
	}
	err := becomeRoot()
	if err == nil {
		err = work(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Up starts a lab and returns when it is up, or when it has failed and is down again. It calls progress with each step.
func Up(ctx context.Context, cfg Config, bins build.Binaries, images Images, progress func(Step)) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.NoCgroups = os.Geteuid() != 0
	if c, err := Connect(cfg.Name); err == nil {
		c.http.CloseIdleConnections()
		return nil, fmt.Errorf("lab %q is already up; end it with: yurtlab down --name %s", cfg.Name, cfg.Name)
	}
	if err := Down(ctx, cfg.Name); err != nil { // what a crash may have left
		return nil, err
	}
	dir, err := Dir(cfg.Name)
	if err != nil {
		return nil, err
	}
	if err := socketsFit(dir, cfg); err != nil {
		return nil, err
	}
	if err := watchersFit(cfg); err != nil {
		return nil, err
	}
	if err := spawn(dir, order{cfg, bins, images}); err != nil {
		return nil, errors.Join(err, Down(context.WithoutCancel(ctx), cfg.Name))
	}
	c := newClient(dir)
	if err = c.follow(ctx, progress); err != nil {
		err = fmt.Errorf("%w%s", err, keepLogs(dir))
		return nil, errors.Join(err, Down(context.WithoutCancel(ctx), cfg.Name))
	}
	return c, nil
}

// maxSocketPath is the longest path of a Unix socket, in bytes (unix(7): 108 with the zero at its end).
const maxSocketPath = 107

// socketsFit fails if a path in dir is too long for the socket that a machine listens on.
func socketsFit(dir string, cfg Config) error {
	longest := ""
	for _, p := range cfg.places() {
		if name := string(p.name()); len(name) >= len(longest) {
			longest = name
		}
	}
	if path := machine.Socket(filepath.Join(dir, "machines", longest)); len(path) > maxSocketPath {
		return fmt.Errorf("%s is %d bytes long, and a socket's path can have %d: give the lab a shorter --name, or "+
			"set XDG_STATE_HOME to a directory with a shorter path", path, len(path), maxSocketPath)
	}
	return nil
}

// maxWatchers is the file with the limit of inotify instances per user (inotify(7)).
const maxWatchers = "/proc/sys/fs/inotify/max_user_instances"

// watchersFit fails if the lab's programs need more inotify instances than the system allows. A kubelet without an instance
// continues, but its node never becomes Ready.
func watchersFit(cfg Config) error {
	text, err := os.ReadFile(maxWatchers)
	if err != nil {
		return nil //nolint:nilerr // a system that does not state a limit
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if need := cfg.watchers(); err == nil && need > most {
		return fmt.Errorf("%d nodes need some %d inotify instances, but this system allows %d: use fewer nodes, or allow "+
			"more with: sysctl -w fs.inotify.max_user_instances=%d", len(cfg.places()), need, most, 2*need)
	}
	return nil
}

// spawn starts the lab's own process and returns when its socket exists.
func spawn(dir string, o order) error {
	err := os.MkdirAll(dir, 0o755)
	if errors.Is(err, os.ErrNotExist) { // a lab that just went down removed the empty parent
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	content, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, configFile), content, 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var ids grants
	if o.Config.Kubelet == Real && !o.Config.NoKubelet {
		if ids, err = granted(); err != nil {
			return err
		}
	}
	cmd, err := isolate(self, log, ids, isolated, supervisorArg, dir)
	if err != nil {
		return fmt.Errorf("namespaces for the lab: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the lab, or with this program
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if _, err := os.Stat(filepath.Join(dir, dialFile)); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			text, _ := os.ReadFile(filepath.Join(dir, logFile))
			return fmt.Errorf("the lab's own process ended: %w: %s", err, strings.TrimSpace(string(text)))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New("the lab's own process does not answer")
}

// keepLogs saves the logs of a lab that failed to boot, before its removal, and says where.
func keepLogs(dir string) string {
	to, err := os.MkdirTemp("", "yurtlab-failed-")
	if err != nil {
		return ""
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "machines", "*", "*.log")) // the pattern is a constant
	containers, _ := filepath.Glob(filepath.Join(dir, "machines", "*", "var-log", "pods", "*", "*", "*.log"))
	for _, path := range slices.Concat(logs, containers, []string{filepath.Join(dir, logFile)}) {
		content, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		name := filepath.Base(filepath.Dir(path)) + "-" + filepath.Base(path)
		if slices.Contains(containers, path) { // also by the Pod
			name = filepath.Base(filepath.Dir(filepath.Dir(path))) + "-" + name
		}
		_ = os.WriteFile(filepath.Join(to, name), content, 0o600) // as much as can be saved
	}
	return "\nthe logs are kept in " + to
}

// Down ends the lab of that name and removes everything that is left of it. If there is none, that is no error.
func Down(ctx context.Context, name string) error {
	dir, err := Dir(name)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	pids, err := supervisors(dir)
	if err != nil {
		return err
	}
	if len(pids) > 0 {
		ask, cancel := context.WithTimeout(ctx, 20*time.Second)
		_ = newClient(dir).call(ask, "POST", "down", nil, nil) // a process that does not listen is killed below
		waitGone(ask, pids)
		cancel()
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // ends everything in its pid namespace; it may already be gone
		}
		kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		waitGone(kill, pids)
		cancel()
	}
	machine.RemoveCgroups(cgroup(name))
	if err := remove(dir); err != nil {
		return fmt.Errorf("lab %q: files are left: %w", name, err)
	}
	_ = os.Remove(filepath.Dir(dir)) // unless there are other labs
	return nil
}

// remove removes a lab's directory. Containers may have made files as users other than root. A caller other than root can
// remove those only from within a user namespace that has these users' ids.
func remove(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || os.Geteuid() == 0 {
		return err
	}
	ids, grantErr := granted()
	self, selfErr := os.Executable()
	if grantErr != nil || selfErr != nil {
		return errors.Join(err, grantErr, selfErr)
	}
	log, logErr := os.CreateTemp("", "yurtlab-remove-")
	if logErr != nil {
		return errors.Join(err, logErr)
	}
	defer func() { _ = os.Remove(log.Name()) }() // a leftover there does no harm
	defer log.Close()
	cmd, err := isolate(self, log, ids, 0, removerArg, dir)
	if err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		text, _ := os.ReadFile(log.Name()) // may be empty
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text)))
	}
	return nil
}

// supervisors finds the own process of the lab in dir by its command line, as the first process of a pid namespace directly
// below ours. (For a moment, a child that the process has just forked has the same command line.)
func supervisors(dir string) ([]int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, p := range all {
		argv, err := p.CmdLine() // an error says that it has just ended
		if err != nil || len(argv) != 3 || argv[1] != supervisorArg || argv[2] != dir {
			continue
		}
		if status, err := p.NewStatus(); err == nil && leads(status.NSpids) {
			pids = append(pids, p.PID)
		}
	}
	return pids, nil
}

// leads reports whether a process with these ids, one in each of its pid namespaces, is the first one of a namespace directly
// below ours.
func leads(ids []uint64) bool { return len(ids) == 2 && ids[1] == 1 }

func waitGone(ctx context.Context, pids []int) {
	for _, pid := range pids {
		for unix.Kill(pid, 0) == nil && !zombie(pid) {
			if run.Pause(ctx, 10*time.Millisecond) != nil {
				return
			}
		}
	}
}

// zombie reports whether a process has ended and waits for its parent to notice.
func zombie(pid int) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return true
	}
	stat, err := p.Stat()
	return err != nil || stat.State == "Z"
}

func readOrder(dir string) (order, error) {
	var o order
	content, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return o, err
	}
	return o, json.Unmarshal(content, &o)
}

// Kubectl returns the command that runs kubectl with args in the running lab. via is "cloud" (the default), "hub/NODE",
// "coordinator/POOL", or "coordinator/POOL/SLOT".
func (c *Client) Kubectl(ctx context.Context, via string, args []string) (*exec.Cmd, error) {
	o, err := readOrder(c.dir)
	if err != nil {
		return nil, err
	}
	return c.kubectl(ctx, o, o.Binaries.Kubectl, via, args)
}

// KubectlOlder is Kubectl with the kubectl of the minor version before ours, in a lab made with Config.KubectlOlder.
func (c *Client) KubectlOlder(ctx context.Context, via string, args []string) (*exec.Cmd, error) {
	o, err := readOrder(c.dir)
	if err != nil {
		return nil, err
	}
	if o.Binaries.KubectlOlder == "" {
		return nil, errors.New("this lab has no older kubectl: its Config does not ask for one")
	}
	return c.kubectl(ctx, o, o.Binaries.KubectlOlder, via, args)
}

func (c *Client) kubectl(ctx context.Context, o order, program, via string, args []string) (cmd *exec.Cmd, err error) {
	kubeconfig := func(name string) string { return "--kubeconfig=" + filepath.Join(c.dir, "pki", name+".kubeconfig") }
	kubectl := func(access ...string) []string {
		if len(args) > 0 && args[0] == "yurt" { // a plugin's flags come after its name
			return slices.Concat([]string{program, args[0]}, access, args[1:])
		}
		return slices.Concat([]string{program}, access, args)
	}
	kind, name, _ := strings.Cut(via, "/")
	switch kind {
	case "", "cloud":
		cmd, err = c.inside(ctx, slices.Concat([]string{"--net", "--"}, kubectl(kubeconfig("admin"))))
	case "coordinator":
		pool, slot, poolErr := poolNumber(o.Config, name)
		if poolErr != nil {
			return nil, poolErr
		}
		operator, accessErr := c.operatorArgs(ctx, o.Config, pool, slot)
		if accessErr != nil {
			return nil, accessErr
		}
		cmd, err = c.inside(ctx, slices.Concat([]string{"--net", "--"}, kubectl(operator...)))
	case "hub":
		access := filepath.Join(c.dir, "machines", name, kubeletUser+".kubeconfig")
		cmd, err = c.Inside(ctx, name, kubectl("--kubeconfig="+access)...)
	default:
		return nil, fmt.Errorf("--via %q: want cloud, hub/NODE, coordinator/POOL or coordinator/POOL/SLOT", via)
	}
	if err != nil {
		return nil, err
	}
	// What kubectl learns about this lab's servers must not be used for another lab's servers, which have the same
	// addresses, nor by another version of kubectl.
	cmd.Env = append(cmd.Env, "KUBECACHEDIR="+filepath.Join(c.dir, filepath.Base(program)), "KUBECONFIG=/dev/null",
		"PATH="+filepath.Dir(o.Binaries.KubectlYurt)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return cmd, nil
}

// poolNumber reads POOL or POOL/SLOT.
func poolNumber(cfg Config, text string) (pool, slot int, err error) {
	name, at, slotted := strings.Cut(text, "/")
	if slotted {
		slot, err = strconv.Atoi(at)
		if all := len(cfg.coordinators(1)); err != nil || slot < 0 || slot >= all {
			return 0, 0, fmt.Errorf("no slot %q in this lab: want 0 to %d", at, all-1)
		}
	}
	for p := 1; p <= cfg.Pools; p++ {
		if string(poolName(p)) == name {
			return p, slot, nil
		}
	}
	return 0, 0, fmt.Errorf("no pool %q in this lab: want %s to %s", name, poolName(1), poolName(cfg.Pools))
}

// snapshotter returns overlayfs if the lab's directory can be the upper layer of one, else native, which copies.
func snapshotter(dir string) string {
	probe, err := os.MkdirTemp(dir, "overlay-")
	if err != nil {
		return "native"
	}
	defer func() { _ = os.RemoveAll(probe) }() // the rest goes with the lab's directory
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if os.Mkdir(filepath.Join(probe, d), 0o700) != nil {
			return "native"
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", probe)
	merged := filepath.Join(probe, "merged")
	if unix.Mount("overlay", merged, "overlay", 0, options) != nil {
		return "native"
	}
	_ = unix.Unmount(merged, unix.MNT_DETACH) // in the lab's own mount namespace
	return "overlayfs"
}
