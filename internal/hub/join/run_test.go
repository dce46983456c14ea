package join

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/signed"
)

// clean fails if an upgrade has left something behind.
func clean(t *testing.T, m *upgradeMachine) {
	t.Helper()
	for _, dir := range []string{DirInbox, Dir, "/usr/local/bin"} {
		entries, err := os.ReadDir(m.root + dir)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			switch e.Name() {
			case ".keep", "inbox", "outbox", "lock", "yurthub", "yurthub.settled":
				if dir != DirInbox || e.Name() == ".keep" {
					continue
				}
			}
			t.Errorf("%s/%s is left", dir, e.Name())
		}
	}
}

func TestUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newUpgradeMachine(t)
		if _, err := m.run(0); err != nil || m.steps != 0 {
			t.Fatalf("with nothing to do: %d steps, %v", m.steps, err)
		}
		m.slow = 4
		m.deliver(next, "v0.3.0")
		if _, err := m.run(0); err != nil {
			t.Fatal(err)
		}
		if r := m.result(); r != (UpgradeResult{ID: "1", Outcome: edge.UpgradeDone, Version: "v0.3.0", From: "v0.2.0"}) {
			t.Errorf("%+v", r)
		}
		if m.running != next || m.read(m.cfg.Binary) != next || m.read(FileSettled(m.cfg.Binary)) != next {
			t.Errorf("the hub runs %q, its place has %q, and %q is settled", m.running, m.read(m.cfg.Binary),
				m.read(FileSettled(m.cfg.Binary)))
		}
		if floor := m.read(FileFloor); floor != "v0.2.0\n" && floor != "" {
			t.Errorf("the floor is %q", floor)
		}
		clean(t, m)

		m.log = nil
		m.deliver(next, "v0.3.0")
		if _, err := m.run(0); err != nil || m.result().Outcome != edge.UpgradeDone || len(m.log) != 0 {
			t.Errorf("once more: %v, %+v, and systemd was told %q", err, m.result(), m.log)
		}
		m.deliver("yurthub v0.4.0 good", "v0.4.0")
		if _, err := m.run(0); err != nil || m.running != "yurthub v0.4.0 good" || m.read(FileFloor) != "v0.3.0\n" {
			t.Errorf("the next: %v, %q, the floor is %q", err, m.running, m.read(FileFloor))
		}
		m.deliver(next, "v0.3.0")
		if _, err := m.run(0); err != nil || m.running != next || m.read(FileFloor) != "v0.3.0\n" {
			t.Errorf("a step back: %v, %q, the floor is %q", err, m.running, m.read(FileFloor))
		}
		m.deliver(former, "v0.2.0")
		if _, err := m.run(0); err != nil || m.running != next || m.result().Outcome != edge.UpgradeRefused ||
			!strings.Contains(m.result().Why, "floor") {
			t.Errorf("two steps back: %v, %q, %+v", err, m.running, m.result())
		}
		clean(t, m)
	})
}

// TestGoesBack: whatever is wrong with the new program, the former one runs again, within seconds.
func TestGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for program, want := range map[string]string{
			broken: "no yurthub answers", "yurthub v0.3.0 ill": "--port: it does not serve",
		} {
			m := newUpgradeMachine(t)
			m.deliver(program, "v0.3.0")
			start := time.Now()
			if _, err := m.run(0); err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			r := m.result()
			if r.Outcome != edge.UpgradeWentBack || r.Version != "v0.3.0" || r.From != "v0.2.0" ||
				!strings.Contains(r.Why, want) {
				t.Errorf("%s: %+v", program, r)
			}
			if m.running != former || m.read(m.cfg.Binary) != former || m.read(FileFloor) != "" {
				t.Errorf("%s: the hub runs %q, its place has %q, and the floor is %q", program, m.running,
					m.read(m.cfg.Binary), m.read(FileFloor))
			}
			if most := m.cfg.Wait + calm + 5*time.Second; took > most {
				t.Errorf("%s: it took %v, want %v at most", program, took, most)
			}
			if program == broken && took > 15*time.Second {
				t.Errorf("a program that ends at once is waited for, for %v", took)
			}
			clean(t, m)
		}
	})
}

// TestInterrupted kills a run at every step: the next ones bring it to the same end. Its place always has a whole program.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for program, want := range map[string]edge.UpgradeOutcome{next: edge.UpgradeDone, broken: edge.UpgradeWentBack} {
			for at := 1; ; at++ {
				m := newUpgradeMachine(t)
				m.deliver(program, "v0.3.0")
				wasKilled, err := m.run(at)
				if err != nil {
					t.Fatal(err)
				}
				if has := m.read(m.cfg.Binary); has != former && has != program {
					t.Fatalf("killed at step %d, its place has %q", at, has)
				}
				if has := m.read(FileSettled(m.cfg.Binary)); has != former && has != next {
					t.Fatalf("killed at step %d, %q is kept", at, has)
				}
				// As after a power cut: the hub is started with what is there.
				m.running, m.restarts, m.asked = m.read(m.cfg.Binary), 0, 0
				if _, err := m.run(0); err != nil {
					t.Fatalf("after a kill at step %d: %v", at, err)
				}
				ends := program
				if want == edge.UpgradeWentBack {
					ends = former
				}
				if r := m.result(); r.Outcome != want || r.ID != "1" || m.running != ends || m.read(m.cfg.Binary) != ends ||
					m.read(FileSettled(m.cfg.Binary)) != ends {
					t.Fatalf("after a kill at step %d: %+v; the hub runs %q, its place has %q", at, r, m.running,
						m.read(m.cfg.Binary))
				}
				clean(t, m)
				if !wasKilled {
					if at < 10 {
						t.Fatalf("a run takes %d steps; something is wrong with this test", at)
					}
					break
				}
			}
		}
	})
}

// TestInterruptedTwice: a program with which the machine itself goes down is given up.
func TestInterruptedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newUpgradeMachine(t)
		m.deliver(next, "v0.3.0")
		m.slow = 3
		for range maxTries {
			ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
			_, err := m.runUntil(ctx, 0)
			stop()
			if err == nil || m.read(m.cfg.Binary) != next {
				t.Fatalf("ended while the hub is judged: %v, with %q", err, m.read(m.cfg.Binary))
			}
		}
		if _, err := m.run(0); err != nil || m.running != former || m.result().Outcome != edge.UpgradeWentBack ||
			!strings.Contains(m.result().Why, "interrupted") {
			t.Errorf("%v, %q, %+v", err, m.running, m.result())
		}
	})
}

// TestNotItsDoing: what was wrong before, and a line that is cut meanwhile, are no reasons to go back.
func TestNotItsDoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newUpgradeMachine(t)
		m.ill = true
		m.deliver(next, "v0.3.0")
		m.killAt = 0
		u := &upgrader{cfg: m.cfg, system: m, before: func(step string) {
			m.cut = m.cut || step == "put the new program in place"
		}}
		if err := u.run(t.Context()); err != nil || m.result().Outcome != edge.UpgradeDone || m.running != next || !m.cut {
			t.Errorf("%v, %+v, the hub runs %q", err, m.result(), m.running)
		}
	})
}

// TestAHubThatStumbles: the new hub, which found its port taken, is well when it is started once more.
func TestAHubThatStumbles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newUpgradeMachine(t)
		m.deliver(next, "v0.3.0")
		m.stumbles = true
		if _, err := m.run(0); err != nil || m.result().Outcome != edge.UpgradeDone || m.running != next {
			t.Errorf("%v, %+v, the hub runs %q", err, m.result(), m.running)
		}
		m = newUpgradeMachine(t)
		m.deliver(broken, "v0.3.0")
		if _, err := m.run(0); err != nil || !strings.HasPrefix(m.result().Why, "it ends by itself again and again") {
			t.Errorf("one that never starts: %v, %+v", err, m.result())
		}
	})
}

// TestNothingHelps: that the former program is not well either is said, and the node is left with it.
func TestNothingHelps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newUpgradeMachine(t)
		m.deliver(broken, "v0.3.0")
		u := &upgrader{cfg: m.cfg, system: m, before: func(step string) {
			m.ill = m.ill || strings.HasPrefix(step, "make ") && strings.HasSuffix(step, ".settled is") && m.running == broken
		}}
		if err := u.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := m.result(); r.Outcome != edge.UpgradeWentBack ||
			!strings.Contains(r.Why, "and with the former program: after 20s: clock") {
			t.Errorf("%+v", r)
		}
		clean(t, m)

		m = newUpgradeMachine(t)
		m.deliver(next, "v0.3.0")
		m.stubborn = true
		if _, err := m.run(0); err == nil || m.read(m.cfg.Binary) != former {
			t.Errorf("systemd restarts nothing: %v, its place has %q", err, m.read(m.cfg.Binary))
		}
		m.stubborn = false
		if _, err := m.run(0); err != nil || m.result().Outcome != edge.UpgradeWentBack || m.running != former {
			t.Errorf("then it does: %v, %+v", err, m.result())
		}
	})
}

// TestRefuses: nothing is changed, nothing of it runs that is not signed, and the Pod is told why.
func TestRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(m *upgradeMachine)
		why   string
	}{
		"no key": {func(m *upgradeMachine) { m.must(os.Remove(m.root + FileKeys)) }, "no key of releases"},
		"signed by another": {func(m *upgradeMachine) {
			other, err := signed.GenerateKey()
			m.must(err)
			m.sign(other, next, "yurthub-v0.3.0-linux-"+runtime.GOARCH)
		}, "no key that is trusted has signed it"},
		"not signed": {func(m *upgradeMachine) { m.must(os.Remove(m.root + DirInbox + "/SHA256SUMS.sig")) }, "no such file"},
		"another program": {func(m *upgradeMachine) {
			m.write(DirInbox+"/yurthub", "yurthub v0.3.0 evil")
		}, "none of the release's files"},
		"signed as another": {func(m *upgradeMachine) {
			m.sign(m.key, next, "yurt-coordinator-v0.3.0-linux-"+runtime.GOARCH)
		}, "which is no yurthub"},
		"another platform": {
			func(m *upgradeMachine) { m.sign(m.key, next, "yurthub-v0.3.0-linux-s390x") }, "no yurthub for linux/",
		},
		"another version": {
			func(m *upgradeMachine) { m.write(FileRequest, `{"id":"1","version":"v0.4.0"}`) }, "v0.4.0 was asked for",
		},
		"below the floor": {func(m *upgradeMachine) { m.write(FileFloor, "v0.3.1\n") }, "below the floor of this node, v0.3.1"},
		"a bad floor": {func(m *upgradeMachine) {
			m.write(FileFloor, "some\n")
			m.deliver("yurthub v0.1.0 good", "v0.1.0")
		}, "below the floor of this node, " + Least},
		"no program at all":  {func(m *upgradeMachine) { m.deliver("yurthub v0.3.0 dumb", "v0.3.0") }, "exec format error"},
		"refuses settings":   {func(m *upgradeMachine) { m.deliver("yurthub v0.3.0 picky", "v0.3.0") }, "relay is gone"},
		"a request of noise": {func(m *upgradeMachine) { m.write(FileRequest, "{") }, "unexpected end"},
		"a link": {func(m *upgradeMachine) {
			m.must(os.Remove(m.root + DirInbox + "/yurthub"))
			m.must(os.Symlink(m.root+m.cfg.Binary, m.root+DirInbox+"/yurthub"))
		}, "too many levels"},
		"a directory": {func(m *upgradeMachine) {
			m.must(os.Remove(m.root + DirInbox + "/yurthub"))
			m.write(DirInbox+"/yurthub/more", "")
		}, "no regular file"},
		"a request that is a directory": {func(m *upgradeMachine) {
			m.must(os.Remove(m.root + FileRequest))
			m.write(FileRequest+"/more", "")
		}, "no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newUpgradeMachine(t)
			m.deliver(next, "v0.3.0")
			tt.spoil(m)
			if _, err := m.run(0); err != nil {
				t.Fatal(err)
			}
			if r := m.result(); r.Outcome != edge.UpgradeRefused || !strings.Contains(r.Why, tt.why) || r.From != "v0.2.0" {
				t.Errorf("%+v, want %q", r, tt.why)
			}
			if m.running != former || m.read(m.cfg.Binary) != former || len(m.log) != 0 {
				t.Errorf("the hub runs %q, its place has %q, and systemd was told %q", m.running, m.read(m.cfg.Binary), m.log)
			}
			clean(t, m)
		})
	}
}

// TestNothingIsWrittenBeforeItIsVerified: whoever can deliver can't wear out the node's flash.
func TestNothingIsWrittenBeforeItIsVerified(t *testing.T) {
	for name, spoil := range map[string]func(m *upgradeMachine){
		"a list that nobody has signed": func(m *upgradeMachine) { m.write(DirInbox+"/"+signed.SignatureFile, "none") },
		"a program that is not listed":  func(m *upgradeMachine) { m.write(DirInbox+"/yurthub", "yurthub v0.3.0 evil") },
		"a program below the floor":     func(m *upgradeMachine) { m.write(FileFloor, "v0.3.1\n") },
	} {
		m := newUpgradeMachine(t)
		m.deliver(next, "v0.3.0")
		spoil(m)
		u := &upgrader{cfg: m.cfg, system: m, before: func(step string) {
			if strings.HasPrefix(step, "take what") {
				t.Errorf("%s: %s", name, step)
			}
		}}
		m.must(u.run(t.Context()))
		if r := m.result(); r.Outcome != edge.UpgradeRefused {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestARefusalIsFollowedByARest, so that a delivery each second is not looked at each second.
func TestARefusalIsFollowedByARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newUpgradeMachine(t)
		m.cfg.AddFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
		m.cfg.Binary = "/usr/local/bin/yurthub"
		m.deliver(next, "v0.3.0")
		m.write(DirInbox+"/yurthub", "yurthub v0.3.0 evil")
		began := time.Now()
		m.must((&upgrader{cfg: m.cfg, system: m}).run(t.Context()))
		if took := time.Since(began); took != time.Minute || m.result().Outcome != edge.UpgradeRefused {
			t.Errorf("%+v after %v", m.result(), took)
		}
	})
}

// TestOne: two runs at once would each take the other's files away; and a node that was not prepared says what to do.
func TestOne(t *testing.T) {
	m := newUpgradeMachine(t)
	u := &upgrader{cfg: m.cfg, system: m}
	unlock, err := u.lock()
	m.must(err)
	if _, err := m.run(0); err == nil || !strings.Contains(err.Error(), "another yurthub upgrade runs") {
		t.Errorf("a second run: %v", err)
	}
	unlock()
	m.must(os.RemoveAll(m.root + Dir))
	if _, err := m.run(0); err == nil || !strings.Contains(err.Error(), "--release-key") {
		t.Errorf("a node that takes no upgrades: %v", err)
	}
}
