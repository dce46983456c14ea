package lab

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReinstall(t *testing.T) {
	c := newClient(t.TempDir())
	old := filepath.Join(c.dir, "machines", "p1-n1", "var-lib", "kubelet", "config.yaml")
	for _, path := range []string{old, filepath.Join(c.dir, "machines", "p1-n2", "boot")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	disk, err := c.Reinstall("p1-n1", "new")
	if err != nil || disk != filepath.Join(c.dir, "machines", "p1-n1") {
		t.Fatalf("Reinstall = %s, %v", disk, err)
	}
	entries, err := os.ReadDir(disk)
	if err != nil || len(entries) != 1 {
		t.Fatalf("on the disk are %v, %v; want the script alone", entries, err)
	}
	script, err := os.ReadFile(filepath.Join(disk, bootScript))
	if err != nil || string(script) != "new" {
		t.Errorf("the script is %q, %v", script, err)
	}
	for _, node := range []string{"", "p1-n9", "../machines/p1-n2", "p1-n1/.."} {
		if _, err := c.Reinstall(node, "new"); err == nil {
			t.Errorf("a node %q was made anew", node)
		}
	}
	if other, err := os.ReadFile(filepath.Join(c.dir, "machines", "p1-n2", "boot")); err != nil || string(other) != "old" {
		t.Errorf("the other node's disk has %q, %v", other, err)
	}
}
