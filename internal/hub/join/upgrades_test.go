package join

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"yurtcoordinator/internal/edge"
)

const releaseKey = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAExa8cidlFGduOppwlAOeY/vFYDDR/
m4kRw7T7147G0OlF+D0iaFawIXNgQvRQIzkBMyAso8384SCUhxK6QSgh5Q==
-----END PUBLIC KEY-----
`

// TestPreparesUpgrades: a node with a release key accepts upgrades. A join without a key leaves that as it is. The systemd unit
// runs the settled program.
func TestPreparesUpgrades(t *testing.T) {
	m := newMachine(t)
	m.works("join", "--start")
	if m.upgrades || m.there(Dir) || m.there(FileSettled("/usr/local/bin/yurthub")) {
		t.Error("a node without a key takes upgrades")
	}
	m.write("cosign.pub", releaseKey)
	m.works("join", "--start", "--release-key="+filepath.Join(m.root, "cosign.pub"))
	files := m.files()
	if !m.upgrades || !strings.HasSuffix(files[FileKeys], releaseKey) {
		t.Errorf("systemd looks for what is delivered: %v; the key is %q", m.upgrades, files[FileKeys])
	}
	for path, want := range map[string]string{
		Dir: "drwx------", DirInbox: "drwx------", DirOutbox: "drwxr-xr-x",
		FileSettled("/usr/local/bin/yurthub"):                              "-rwxr-xr-x a program",
		"/etc/systemd/system/multi-user.target.wants/yurthub-upgrade.path": "Lrwxrwxrwx to " + dirSystem + nameUpgradePath,
	} {
		if files[path] != want {
			t.Errorf("%s is %q, want %q", path, files[path], want)
		}
	}
	if os.Geteuid() == 0 {
		info, err := os.Stat(m.root + DirInbox)
		m.must(err)
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid != edge.UpgradeUser {
			t.Errorf("the inbox is %d's, want %d's", uid, edge.UpgradeUser)
		}
	}
	for _, want := range []string{
		"\nExecStart=/usr/local/bin/yurthub.settled upgrade --binary=/usr/local/bin/yurthub --config=/etc/yurthub/config.yaml\n",
		"\nReadWritePaths=/usr/local/bin /etc/yurthub /var/lib/yurthub\n",
	} {
		if unit := files[dirSystem+nameUpgrade]; !strings.Contains(unit, want) {
			t.Errorf("the unit has no %q:\n%s", want, unit)
		}
	}
	m.told()
	m.works("join", "--start")
	m.same(files, "joined again, without the flag")
	if told := m.told(); count(told, "restart yurthub-upgrade.path") != 0 {
		t.Errorf("with nothing new, systemd was told %q", told)
	}
	// Somebody puts another program there by hand.
	m.must(os.Remove(m.root + "/usr/local/bin/yurthub"))
	m.write("usr/local/bin/yurthub", "another program")
	m.must(os.Chmod(m.root+"/usr/local/bin/yurthub", 0o755))
	m.works("join", "--start")
	if kept := m.files()[FileSettled("/usr/local/bin/yurthub")]; !strings.HasSuffix(kept, " another program") {
		t.Errorf("%q is kept", kept)
	}
}

func TestBadReleaseKeys(t *testing.T) {
	for content, want := range map[string]string{
		"": "want public keys", "noise": "want public keys", releaseKey + "noise": "want public keys",
		"-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n": "public key 1",
	} {
		m := newMachine(t)
		before := m.files()
		m.write("cosign.pub", content)
		r := m.run("join", 0, "--start", "--release-key="+filepath.Join(m.root, "cosign.pub"))
		if !r.failed || !strings.Contains(r.out, want) {
			t.Errorf("%q: %s, want %q", content, r.out, want)
		}
		m.remove("cosign.pub")
		m.same(before, "refused")
	}
	m := newMachine(t)
	if r := m.run("join", 0, "--start", "--release-key=/no/such"); !r.failed || !strings.Contains(r.out, "--release-key") {
		t.Errorf("no such file: %s", r.out)
	}
	m.write("cosign.pub", releaseKey+releaseKey)
	m.works("join", "--start", "--release-key="+filepath.Join(m.root, "cosign.pub"))
}
