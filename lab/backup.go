package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// etcdData is the directory of the cloud's etcd on its disk, etcdBackup the directory of its copy.
	etcdData, etcdBackup = "etcd", "etcd-backup"
)

// controlPlaneClients are the other programs of the cloud, which must restart after a restore.
var controlPlaneClients = []Component{KubeControllerManager, KubeScheduler, CoordinatorController}

// BackUp copies what the cloud's etcd has on its disk at this moment, and replaces an earlier copy. etcd is paused
// meanwhile, for less than a second.
func (c *Client) BackUp(ctx context.Context) (err error) {
	data, backup, err := c.etcdDirs()
	if err != nil {
		return err
	}
	if err := c.Cloud(ctx, Pause, Etcd); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Cloud(context.WithoutCancel(ctx), Resume, Etcd)) }()
	return replaceDir(backup, data)
}

// Restore puts back what BackUp copied, as an operator does after the loss of etcd: it kills the control plane,
// replaces the data by the copy, and starts everything. When it returns, the cloud serves from the copy's revision on.
func (c *Client) Restore(ctx context.Context) error {
	data, backup, err := c.etcdDirs()
	if err != nil {
		return err
	}
	if _, err := os.Stat(backup); err != nil {
		return fmt.Errorf("the cloud has no backup: %w", err)
	}
	for _, component := range append([]Component{KubeAPIServer, Etcd}, controlPlaneClients...) {
		if err := c.Cloud(ctx, Kill, component); err != nil {
			return err
		}
	}
	if err := replaceDir(data, backup); err != nil {
		return err
	}
	for _, component := range append([]Component{Etcd, KubeAPIServer}, controlPlaneClients...) {
		if err := c.Cloud(ctx, Start, component); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) etcdDirs() (data, backup string, err error) {
	cfg, err := c.Config()
	if err != nil {
		return "", "", err
	}
	if cfg.Installed {
		return "", "", errors.New("backups are of labs whose control plane the lab itself runs")
	}
	disk := filepath.Join(c.dir, "machines", cloudMachine)
	return filepath.Join(disk, etcdData), filepath.Join(disk, etcdBackup), nil
}

// replaceDir makes one directory a copy of another.
func replaceDir(to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return os.Chmod(to, 0o700) // as etcd made it; etcd checks the mode
}
