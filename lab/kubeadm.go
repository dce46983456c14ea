package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"yurtcoordinator/lab/build"
)

// Kubeadm returns the command that runs kubeadm as the cloud's administrator.
func (c *Client) Kubeadm(ctx context.Context, args ...string) (*exec.Cmd, error) {
	bins, err := c.Programs()
	if err != nil {
		return nil, err
	}
	return c.inside(ctx, slices.Concat([]string{"--net", "--", bins.Kubeadm}, args,
		[]string{"--kubeconfig=" + filepath.Join(c.dir, "pki", "admin.kubeconfig")}))
}

// Programs returns the programs that the lab runs. A machine has them at the same paths.
func (c *Client) Programs() (build.Binaries, error) {
	o, err := readOrder(c.dir)
	return o.Binaries, err
}

// Reinstall replaces the disk of a node without power by a new one. The new disk holds only what the lab itself puts
// there when the machine is powered on. The node is then administered as after TakeOver. Reinstall returns the disk's
// directory, which has the same path on the machine.
func (c *Client) Reinstall(node, script string) (disk string, err error) {
	disk = filepath.Join(c.dir, "machines", node)
	if _, err := os.Stat(disk); err != nil || node == "" || strings.Contains(node, "/") {
		return "", fmt.Errorf("no node %q in this lab", node)
	}
	entries, err := os.ReadDir(disk)
	if err != nil {
		return "", err
	}
	var failed []error
	for _, e := range entries {
		failed = append(failed, os.RemoveAll(filepath.Join(disk, e.Name())))
	}
	return disk, errors.Join(append(failed, c.TakeOver(node, script))...)
}
