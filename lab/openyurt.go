package lab

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"

	"yurtcoordinator/lab/build"
)

// YurtManager returns the command that runs OpenYurt's manager on the cloud's machine as an administrator, in a lab made with
// Config.OpenYurt. The command writes its process ID to pidFile, for StopYurtManager. The API server calls the manager's
// webhooks at the cloud's loopback address; it calls those of CRDs at port 443.
func (c *Client) YurtManager(ctx context.Context, pidFile string, flags ...string) (*exec.Cmd, error) {
	o, err := readOrder(c.dir)
	if err != nil {
		return nil, err
	}
	if o.Binaries.YurtManager == "" {
		return nil, errors.New("this lab has no OpenYurt: make it with Config.OpenYurt")
	}
	argv := append([]string{
		"sh", "-c", `echo $$ > "$0" && exec "$@"`, pidFile, o.Binaries.YurtManager,
		"--kubeconfig=" + filepath.Join(c.dir, "pki", "admin.kubeconfig"), "--metrics-addr=127.0.0.1:10371",
		"--health-probe-addr=127.0.0.1:10372", "--webhook-port=443", "--leader-elect=false", "--v=2",
	}, flags...)
	cmd, err := c.Inside(ctx, string(cloudMachine), argv...)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, "WEBHOOK_HOST=127.0.0.1", "WEBHOOK_PORT=443",
		"WEBHOOK_CERT_DIR="+filepath.Join(c.dir, "openyurt-webhook"))
	return cmd, nil
}

// StopYurtManager returns the command that ends what YurtManager has started.
func (c *Client) StopYurtManager(ctx context.Context, pidFile string) (*exec.Cmd, error) {
	return c.Inside(ctx, string(cloudMachine), "sh", "-c", `kill "$(cat "$0")"`, pidFile)
}

// OpenYurtCharts returns the directory of OpenYurt's charts, in the version of YurtManager. The charts are part of OpenYurt's
// module.
func (c *Client) OpenYurtCharts(ctx context.Context) (string, error) {
	dir, err := build.OpenYurt(ctx, ".")
	return filepath.Join(dir, "charts"), err
}

// Dir returns a lab's directory, whose files are removed with the lab.
func (c *Client) Dir() string { return c.dir }
