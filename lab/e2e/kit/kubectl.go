package kit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"yurtcoordinator/lab/load"
)

// KubectlWatch is a `kubectl get endpointslices --watch` that restarts whenever it ends.
type KubectlWatch struct {
	mu     sync.Mutex
	shown  map[string]string // resourceVersion by name
	starts int
	ends   []string
}

// KubectlWatch runs a kubectl that watches EndpointSlices through the node's hub until the scenario ends.
func (node Node) KubectlWatch() *KubectlWatch {
	k := &KubectlWatch{}
	node.t.Background.Go(func() {
		for node.t.Ctx.Err() == nil {
			err := k.once(node.t, node.name)
			k.mu.Lock()
			k.ends = append(k.ends, fmt.Sprint(err))
			k.mu.Unlock()
			select {
			case <-time.After(500 * time.Millisecond):
			case <-node.t.Ctx.Done():
			}
		}
	})
	return k
}

// once runs one kubectl to its end.
func (k *KubectlWatch) once(t *T, node string) error {
	cmd, err := t.Lab.Kubectl(t.Ctx, "hub/"+node, []string{
		"get", "endpointslices", "--namespace=" + load.Namespace, "--watch", "--output-watch-events", "--no-headers",
		"--output=custom-columns=EVENT:.type,NAME:.object.metadata.name,VERSION:.object.metadata.resourceVersion",
	})
	if err != nil {
		return err
	}
	// nsenter runs kubectl as a child.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = k.read(out)
	if err != nil {
		_ = cmd.Cancel() // its output may block it
	}
	if ended := cmd.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("%w: %s", ended, strings.TrimSpace(complaints.String())))
	}
	return err
}

// Ended returns how each ended kubectl ended.
func (k *KubectlWatch) Ended() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.ends)
}

// read takes in the lines that kubectl prints: event, name, resourceVersion. The first line counts as a start, because kubectl
// prints the present objects first, and a kubectl that can't reach its hub prints nothing.
func (k *KubectlWatch) read(out io.Reader) error {
	begun := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			return fmt.Errorf("kubectl prints %q, want an event, a name and a resourceVersion", lines.Text())
		}
		k.mu.Lock()
		if !begun {
			begun = true
			k.starts++
			k.shown = map[string]string{}
		}
		if k.shown[fields[1]] = fields[2]; fields[0] == "DELETED" {
			delete(k.shown, fields[1])
		}
		k.mu.Unlock()
	}
	return nil
}

// Seen returns what kubectl printed last about each object, and how often it started.
func (k *KubectlWatch) Seen() (shown map[string]string, starts int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.shown), k.starts
}

// Kubectls runs kubectl with each list of arguments; each must succeed.
func (t *T) Kubectls(commands [][]string) {
	for _, args := range commands {
		cmd, err := t.Lab.Kubectl(t.Ctx, "cloud", args)
		t.Must(err)
		t.Runs(cmd)
	}
}

// Runs runs a command, which must succeed. If it does not, Runs reports what it printed.
func (t *T) Runs(cmd *exec.Cmd) {
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fail("%v: %w: %s", cmd.Args, err, out)
	}
}
