package lab

import (
	"errors"
	"os"

	"yurtcoordinator/internal/lab/build"
)

// Releases of yurthub in a lab made with Config.Releases: one that is well, and one that does not serve on a node with the file
// FaultFile.
const (
	ReleaseWell   = build.ReleaseWell
	ReleaseFaulty = build.ReleaseFaulty
	FaultFile     = "/etc/yurthub/faulty"
)

// ReleaseKey returns the public key of what has signed these releases.
func (c *Client) ReleaseKey() ([]byte, error) {
	o, err := readOrder(c.dir)
	if err != nil {
		return nil, err
	}
	if o.Binaries.ReleaseKey == "" {
		return nil, errors.New("this lab has no releases: make it with Config.Releases")
	}
	return os.ReadFile(o.Binaries.ReleaseKey)
}
