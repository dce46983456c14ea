package join

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
)

// courier is a Pod on a machine, with an image that has a program.
func courier(t *testing.T, m *upgradeMachine, program string) Courier {
	t.Helper()
	m.deliver(program, "v0.3.0") // for the sums
	image := t.TempDir()
	for _, name := range []string{nameProgram, nameSums, nameSignature} {
		if err := os.Rename(filepath.Join(m.root+DirInbox, name), filepath.Join(image, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(m.root + FileRequest); err != nil {
		t.Fatal(err)
	}
	return Courier{
		UpgradeRequest: UpgradeRequest{ID: "a Pod", Version: "v0.3.0"}, Inbox: m.root + DirInbox, Outbox: m.root + DirOutbox,
		Release: image,
		Program: filepath.Join(image, nameProgram), Message: filepath.Join(image, "message"), Wait: time.Minute,
	}
}

// TestDeliver: what is delivered is what the node accepts, and the Pod tells what came of it.
func TestDeliver(t *testing.T) {
	for program, want := range map[string]edge.UpgradeOutcome{next: edge.UpgradeDone, broken: edge.UpgradeWentBack} {
		synctest.Test(t, func(t *testing.T) {
			m := newUpgradeMachine(t)
			c := courier(t, m, program)
			m.write(fileResult, `{"id":"another Pod","outcome":"Upgraded"}`)
			told := make(chan error, 1)
			go func() { told <- DeliverUpgrade(t.Context(), c) }()
			synctest.Wait()
			if m.read(FileRequest) == "" {
				t.Fatal("nothing is asked for")
			}
			if _, err := m.run(0); err != nil {
				t.Fatal(err)
			}
			err := <-told
			if (err == nil) != (want == edge.UpgradeDone) || err != nil && !errors.Is(err, ErrNotUpgraded) {
				t.Errorf("%s: %v", program, err)
			}
			var r UpgradeResult
			message, err := os.ReadFile(c.Message)
			if err := errors.Join(err, json.Unmarshal(message, &r)); err != nil || r != m.result() || r.Outcome != want {
				t.Errorf("%s: the message is %s, %v", program, message, err)
			}
		})
	}
}

// TestNobodyAnswers: a node that does nothing is said to, and what can't be delivered as well.
func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newUpgradeMachine(t)
		c := courier(t, m, next)
		start := time.Now()
		err := DeliverUpgrade(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), "has not answered") || time.Since(start) != c.Wait {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if message, _ := os.ReadFile(c.Message); !strings.Contains(string(message), "has not answered") {
			t.Errorf("the message is %s", message)
		}
		c.Inbox = filepath.Join(m.root, "no/such")
		if err := DeliverUpgrade(t.Context(), c); err == nil || !strings.Contains(err.Error(), "deliver to the node") {
			t.Errorf("with no inbox: %v", err)
		}
		c.Release = m.root
		c.Inbox = m.root + DirInbox
		if err := DeliverUpgrade(t.Context(), c); err == nil || !strings.Contains(err.Error(), nameSums) {
			t.Errorf("with no sums: %v", err)
		}
	})
}
