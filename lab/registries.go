package lab

import (
	"fmt"
	"os"
	"path/filepath"
)

// registriesDir is where a machine's containerd finds out how to reach a registry. It reads the directory again for each image.
const registriesDir = "registries"

// PlainRegistry makes the containerds of all machines speak HTTP with a registry at HOST:PORT.
func (c *Client) PlainRegistry(address string) error {
	disks, err := filepath.Glob(filepath.Join(c.dir, "machines", "*"))
	if err != nil {
		return err
	}
	for _, disk := range disks {
		dir := filepath.Join(disk, registriesDir, address)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		content := fmt.Sprintf("server = %q\n", "http://"+address)
		if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}
