package identity

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestKill kills a process at every step of a write: the file is the old one or the new one, and the next write succeeds.
func TestKill(t *testing.T) {
	if dir := os.Getenv("KEYFILE_TEST_DIR"); dir != "" {
		d := KeyDir{Path: dir, Before: func(step string) error {
			if step == os.Getenv("KEYFILE_TEST_STEP") {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return nil
		}}
		unlock, err := d.Lock("client.lock")
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		t.Fatalf("not killed: %v", d.Write("client.pem", []byte(strings.Repeat("new", 10000))))
	}
	for _, step := range []string{"create", "write", "sync", "rename", "sync directory"} {
		t.Run(step, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "pki")
			err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "client.pem"), []byte("old"), 0o600))
			if err != nil {
				t.Fatal(err)
			}
			child, err := os.StartProcess("/proc/self/exe", []string{"keyfile.test", "-test.run=^TestKill$"}, &os.ProcAttr{
				Env: append(os.Environ(), "KEYFILE_TEST_DIR="+dir, "KEYFILE_TEST_STEP="+step),
			})
			if err != nil {
				t.Fatal(err)
			}
			state, err := child.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if died, ok := state.Sys().(syscall.WaitStatus); !ok || died.Signal() != syscall.SIGKILL {
				t.Fatalf("the child ended with %s", state)
			}
			want := "old"
			if step == "sync directory" {
				want = strings.Repeat("new", 10000)
			}
			if content, err := os.ReadFile(filepath.Join(dir, "client.pem")); err != nil || string(content) != want {
				t.Errorf("%d bytes, %v", len(content), err)
			}
			d := KeyDir{Path: dir}
			unlock, err := d.Lock("client.lock")
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			if err := d.Write("client.pem", []byte("newer")); err != nil {
				t.Error(err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 2 {
				t.Errorf("%v is left, %v", entries, err)
			}
		})
	}
}
