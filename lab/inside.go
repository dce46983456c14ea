package lab

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
)

// Inside returns the command that runs a program of the host on a machine's network, as if it ran on the machine: 127.0.0.1 is
// the machine's. The program sees the host's files, and in /proc only the lab's processes. A kill of the command may leave the
// program running until the lab ends.
func (c *Client) Inside(ctx context.Context, name string, argv ...string) (*exec.Cmd, error) {
	var pid int
	if err := c.call(ctx, http.MethodGet, "pid", url.Values{"machine": {name}}, &pid); err != nil {
		return nil, err
	}
	return c.inside(ctx, slices.Concat([]string{
		"--net", "--mount", "--pid", "--", "nsenter", "--target", strconv.Itoa(pid), "--net", "--",
	}, argv))
}

// Desk returns the command that runs a program of the host where an operator's desk is: on a network that reaches the cloud and
// all pools' LANs. The program sees the host's files and processes.
func (c *Client) Desk(ctx context.Context, argv ...string) (*exec.Cmd, error) {
	return c.inside(ctx, slices.Concat([]string{"--net", "--"}, argv))
}

// inside returns the command nsenter for namespaces of the lab's own process. args name the namespaces and the command
// to run there.
func (c *Client) inside(ctx context.Context, args []string) (*exec.Cmd, error) {
	pids, err := supervisors(c.dir)
	if err != nil || len(pids) == 0 {
		return nil, errors.Join(err, ErrNotUp)
	}
	enter := []string{"--target", strconv.Itoa(pids[0])}
	if os.Geteuid() != 0 {
		enter = append(enter, "--user", "--preserve-credentials")
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
	cmd.Env = environment(os.Environ())
	return cmd, nil
}
