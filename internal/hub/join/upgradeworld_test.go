package join

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/signed"
)

const (
	former = "yurthub v0.2.0 good"
	next   = "yurthub v0.3.0 good"
	broken = "yurthub v0.3.0 broken"
)

// killed is what a run panics with when it is killed: nothing of it goes on.
type killed struct{}

// upgradeMachine is a node's files, with fakes of systemd and the programs. A program is one line of text: its name, its
// version, and how it behaves.
type upgradeMachine struct {
	t    *testing.T
	root string
	cfg  UpgradeConfig
	key  *ecdsa.PrivateKey // of releases

	steps, killAt int
	log           []string
	running       string // the program of the hub that runs
	restarts      int    // how often systemd has started it again
	asked         int    // how often a check was run since the hub was restarted
	slow          int    // checks that a good hub fails first
	cut           bool   // the cloud can't be reached
	ill           bool   // something is wrong with the node, whichever program runs
	stubborn      bool   // systemd does not restart the hub
	begun         int    // how often it has
	stumbles      bool   // the first start ends before the hub is ready, and the next is well
	stumbled      bool   // the last start did, so systemd starts the hub by itself, and counts that
}

func newUpgradeMachine(t *testing.T) *upgradeMachine {
	t.Helper()
	m := &upgradeMachine{t: t, root: t.TempDir(), running: former}
	m.cfg = UpgradeConfig{
		Root: m.root, Binary: "/usr/local/bin/yurthub", Settings: "/etc/yurthub/config.yaml", Wait: 20 * time.Second,
	}
	var err error
	m.key, err = signed.GenerateKey()
	m.must(err)
	public, err := signed.EncodeKey(&m.key.PublicKey)
	m.must(err)
	m.write("/usr/local/bin/yurthub", former)
	m.must(os.Chmod(m.root+"/usr/local/bin/yurthub", 0o755))
	m.must(os.Link(m.root+"/usr/local/bin/yurthub", m.root+FileSettled("/usr/local/bin/yurthub")))
	m.write(FileKeys, string(public))
	m.write(DirInbox+"/.keep", "")
	m.write(DirOutbox+"/.keep", "")
	return m
}

func (m *upgradeMachine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *upgradeMachine) write(path, content string) {
	m.t.Helper()
	m.must(os.MkdirAll(filepath.Dir(m.root+path), 0o755))
	m.must(os.WriteFile(m.root+path, []byte(content), 0o600))
}

func (m *upgradeMachine) read(path string) string {
	content, err := os.ReadFile(m.root + path)
	if err != nil {
		return ""
	}
	return string(content)
}

// deliver is what a Pod does.
func (m *upgradeMachine) deliver(program, version string) {
	m.t.Helper()
	m.write(DirInbox+"/yurthub", program)
	m.sign(m.key, program, signed.ProgramName("yurthub", strings.Fields(program)[1], runtime.GOOS+"/"+runtime.GOARCH))
	m.write(FileRequest, fmt.Sprintf(`{"id":"1","version":%q}`, version))
}

// sign delivers a release's list with a program.
func (m *upgradeMachine) sign(key *ecdsa.PrivateKey, program, name string) {
	m.t.Helper()
	sum := sha256.Sum256([]byte(program))
	list := signed.Sums{name: hex.EncodeToString(sum[:])}.String()
	signature, err := signed.Sign(key, []byte(list))
	m.must(err)
	m.write(DirInbox+"/"+signed.SumsFile, list)
	m.write(DirInbox+"/"+signed.SignatureFile, string(signature))
}

// run runs an upgrade; it is killed at its killAt-th step, if that is not 0.
func (m *upgradeMachine) run(killAt int) (wasKilled bool, err error) {
	m.t.Helper()
	return m.runUntil(m.t.Context(), killAt)
}

func (m *upgradeMachine) runUntil(ctx context.Context, killAt int) (wasKilled bool, err error) {
	m.steps, m.killAt = 0, killAt
	defer func() {
		if end := recover(); end != nil {
			if _, ok := end.(killed); !ok {
				panic(end)
			}
			wasKilled = true
		}
	}()
	u := &upgrader{cfg: m.cfg, system: m, before: m.step}
	return false, u.run(ctx)
}

func (m *upgradeMachine) step(string) {
	if m.steps++; m.steps == m.killAt {
		panic(killed{})
	}
}

// result is what the node has said.
func (m *upgradeMachine) result() (r UpgradeResult) {
	m.t.Helper()
	m.must(json.Unmarshal([]byte(m.read(fileResult)), &r))
	return r
}

// Control is systemd.
func (m *upgradeMachine) Control(_ context.Context, args ...string) error {
	m.log = append(m.log, strings.Join(args, " "))
	if m.stubborn {
		return errors.New("it does not")
	}
	m.running, m.restarts, m.asked = m.read(m.cfg.Binary), 0, 0
	m.begun++
	m.stumbled = m.stumbles && m.begun == 1
	if m.stumbled || strings.HasSuffix(m.running, "broken") {
		return errors.New("Job for yurthub.service failed because the control process exited with error code")
	}
	return nil
}

func (m *upgradeMachine) Restarts(context.Context) int { return m.restarts }
func (m *upgradeMachine) Begun(context.Context) string { return fmt.Sprint(m.begun) }
func (m *upgradeMachine) Sync()                        {}

// Output runs a program.
func (m *upgradeMachine) Output(_ context.Context, program string, args ...string) (string, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(program); err != nil || info.Mode()&0o111 == 0 {
		return "", errors.New("permission denied")
	}
	is := strings.Fields(string(content))
	switch {
	case slices.Contains(is, "dumb"):
		return "", errors.New("exec format error")
	case args[0] == "--version":
		return strings.Join(is[:2], " ") + " (of a test)\n", nil
	}
	findings := []map[string]string{{"level": "ok", "what": "yurthub", "why": "runs as node n1"}}
	fail := func(what, why string) {
		findings = append(findings, map[string]string{"level": "fail", "what": what, "why": why})
	}
	m.asked++
	if m.stumbled && m.asked == 2 {
		m.restarts = 1
	}
	switch {
	case slices.Contains(is, "picky"):
		fail("settings", "relay is gone")
	case strings.HasSuffix(m.running, "broken"):
		findings = nil
		fail("yurthub", "no yurthub answers")
		m.restarts = m.asked / 3
	case strings.HasSuffix(m.running, "ill"):
		fail("--port", "it does not serve")
	case m.asked <= m.slow:
		fail("yurthub", "no yurthub answers")
	}
	if m.ill {
		fail("clock", "it has lost its battery")
	}
	if m.cut {
		fail("cloud", "no answer")
		fail("yurthub: cloud", "the link is down")
	}
	said, err := json.Marshal(map[string]any{"ok": false, "findings": findings})
	return string(said), err
}
