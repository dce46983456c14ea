package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"yurtcoordinator/internal/signed"
	"yurtcoordinator/lab/build"
)

// Releases of yurthub in a lab made with Config.Releases: ReleaseWell works, and ReleaseFaulty does not serve on a node with
// the file FaultFile.
const (
	ReleaseWell   = build.ReleaseWell
	ReleaseFaulty = build.ReleaseFaulty
	FaultFile     = "/etc/yurthub/faulty"
)

// ReleaseKey returns the public key that verifies the signatures of these releases.
func (c *Client) ReleaseKey() ([]byte, error) {
	bins, err := c.releases()
	if err != nil {
		return nil, err
	}
	return os.ReadFile(bins.ReleaseKey)
}

func (c *Client) releases() (build.Binaries, error) {
	o, err := readOrder(c.dir)
	if err == nil && o.Binaries.ReleaseKey == "" {
		err = errors.New("this lab has no releases: make it with Config.Releases")
	}
	return o.Binaries, err
}

// ReleaseFiles puts into a directory the files that a release's page offers for this machine's platform: the bare yurthub, the
// list of the release's programs, and its signature.
func (c *Client) ReleaseFiles(version, dir string) error {
	bins, err := c.releases()
	if err != nil {
		return err
	}
	programs := map[string]string{ReleaseWell: bins.YurtHubWell, ReleaseFaulty: bins.YurtHubFaulty}
	lists := filepath.Join(filepath.Dir(bins.ReleaseKey), version)
	for name, from := range map[string]string{
		signed.ProgramName("yurthub", version, runtime.GOOS+"/"+runtime.GOARCH): programs[version],
		signed.SumsFile:      filepath.Join(lists, signed.SumsFile),
		signed.SignatureFile: filepath.Join(lists, signed.SignatureFile),
	} {
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
		if err != nil {
			return fmt.Errorf("files of release %s: %w", version, err)
		}
	}
	return nil
}
