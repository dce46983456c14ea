package join

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"yurtcoordinator/deploy/node"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/signed"
)

// Units that upgrade yurthub, and the links by which systemd starts them with the node.
const (
	nameUpgrade     = "yurthub-upgrade.service"
	nameUpgradePath = "yurthub-upgrade.path"
	dirSystem       = "/etc/systemd/system/"
	dirWants        = dirSystem + "multi-user.target.wants/"
)

// upgrades is what a node needs to be upgraded from the cloud: contents of files, and the program's place.
type upgrades struct{ key, service, path, binary string }

// decideUpgrades returns what is needed; nil if no key of releases was given, now or before.
func decideUpgrades(c *Config, f *facts) *upgrades {
	key := cmp.Or(c.releaseKey, f.files[FileKeys])
	if key == "" {
		return nil
	}
	return &upgrades{key: key, path: node.UpgradePath, binary: f.binary, service: strings.NewReplacer(
		"@SETTLED@", FileSettled(f.binary), "@BINARY@", f.binary, "@PLACE@", filepath.Dir(f.binary),
	).Replace(node.Upgrade)}
}

// readReleaseKey reads the file of --release-key.
func (c *Config) readReleaseKey() error {
	if c.ReleaseKey == "" {
		return nil
	}
	content, err := readText(c.ReleaseKey)
	if err != nil {
		return fmt.Errorf("--release-key: %w", err)
	}
	if _, err := signed.ParseKeys([]byte(content)); err != nil {
		return fmt.Errorf("--release-key %s: %w", c.ReleaseKey, err)
	}
	c.releaseKey = content
	return nil
}

// prepareUpgrades has the node take programs from the cloud, if they are signed. It comes last: without it all else works.
func (j *joiner) prepareUpgrades() {
	u := j.upgrades
	if u == nil {
		return
	}
	j.put(FileKeys, u.key, 0o644, noteUpgrades)
	j.ensureDir(Dir, 0o700)
	j.ensureDir(DirOutbox, 0o755)
	j.ensureDir(DirInbox, 0o700)
	j.act("chown "+j.root+DirInbox, func() error {
		if os.Geteuid() != 0 { // it makes an image, whose owners somebody else sets
			return nil
		}
		return os.Chown(j.root+DirInbox, edge.UpgradeUser, edge.UpgradeUser)
	})
	j.put(dirSystem+nameUpgrade, u.service, 0o644, noteUpgrades) // first, since it says where the program is kept
	binary, settled := j.root+u.binary, j.root+FileSettled(u.binary)
	j.act("ln "+binary+" "+settled, func() error { return linkOver(binary, settled, settled+".new") })
	j.put(dirSystem+nameUpgradePath, u.path, 0o644, noteUpgrades)
	j.ensureDir(filepath.Dir(dirWants), 0o755)
	for _, name := range []string{nameUpgrade, nameUpgradePath} {
		if !j.there(dirWants + name) {
			j.act("ln -s "+dirSystem+name+" "+j.root+dirWants+name, func() error {
				return os.Symlink(dirSystem+name, j.root+dirWants+name)
			})
		}
	}
	if j.noted(noteUpgrades) {
		j.control("daemon-reload")
		j.control("restart", nameUpgradePath)
		j.forget(noteUpgrades)
	}
}

// noUpgrades takes away what upgrades the hub. What is under way then ends with the program that is there.
func (r *remover) noUpgrades() {
	service, there := r.content(dirSystem + nameUpgrade)
	if r.ours(dirSystem + nameUpgradePath) {
		r.control("stop", nameUpgradePath)
		r.control("stop", nameUpgrade)
	}
	if there && isOurs(service) {
		if settled, _, ok := strings.Cut(after(service, "\nExecStart="), " "); ok {
			r.remove(settled, settled+".new")
			binary := strings.TrimSuffix(settled, FileSettled(""))
			r.remove(half(binary))
		}
	}
	r.removeAll(Dir)
	for _, name := range []string{nameUpgradePath, nameUpgrade} {
		r.remove(dirWants+name, half(dirSystem+name))
		if r.ours(dirSystem + name) {
			r.remove(dirSystem + name)
			r.control("daemon-reload")
		}
	}
}

// after returns what comes after the first of a mark; empty if it is not there.
func after(text, mark string) string {
	_, rest, _ := strings.Cut(text, mark)
	return rest
}
