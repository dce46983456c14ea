package join

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"yurtcoordinator/internal/signed"
)

// readReleaseList reads the file of --release-list, and the signature beside it.
func (c *Config) readReleaseList() error {
	if c.ReleaseList == "" {
		return nil
	}
	for path, to := range map[string]*string{c.ReleaseList: &c.list, c.ReleaseList + signatureSuffix: &c.listSignature} {
		content, err := readText(path)
		if err != nil {
			return fmt.Errorf("--release-list: %w", err)
		}
		*to = content
	}
	return nil
}

// signatureSuffix is what the name of a signature adds to the name of its list.
var signatureSuffix = strings.TrimPrefix(signed.SignatureFile, signed.SumsFile)

// heldToRelease refuses, if --release-list is given, a program that is not in the release.
func heldToRelease(c *Config, f *facts) error {
	if c.ReleaseList == "" {
		return nil
	}
	text := cmp.Or(c.releaseKey, f.files[FileKeys])
	if text == "" {
		return errors.New("--release-list needs --release-key: whose signature is to count?")
	}
	sums, err := opened([]byte(text), []byte(c.list), []byte(c.listSignature))
	if err != nil {
		return fmt.Errorf("--release-list: %w", err)
	}
	if err := programIsReleased(c, f, sums); err != nil {
		return fmt.Errorf("--binary %s: %w in %s", c.Binary, err, c.ReleaseList)
	}
	return nil
}

// programIsReleased returns an error unless the node's program is a hub of the release; in an image of a node, for any machine.
func programIsReleased(c *Config, f *facts, sums signed.Sums) error {
	file, err := os.Open(c.root() + f.binary)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = sums.Name(file, func(name string) bool {
		if _, ok := signed.ProgramVersion(name, nameProgram, runtime.GOOS+"/"+runtime.GOARCH); ok {
			return true
		}
		return !c.starts() && strings.HasPrefix(name, nameProgram+"-v")
	})
	return err
}
