package plugin

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
)

var somePools = []Pool{
	{Name: "a", Nodes: 5, Ready: 4, Coordinator: CoordinatorReady, CoordinatorNode: "a1", Leader: "a2",
		LeaderSaid: ptr.To(noon.Add(-20 * time.Second)), Delegated: []string{"a3", "a4", "a5", "a6"}, Outside: []string{}},
	{Name: "bb", Nodes: 3, Ready: 3, Coordinator: CoordinatorReady, Leader: "b1", LeaderSaid: ptr.To(noon.Add(time.Minute))},
	{Name: "c", Coordinator: "TooFewNodes"},
}

func TestPrintPools(t *testing.T) {
	for form, want := range map[string]string{
		"": `POOL READY COORDINATOR LEADER DELEGATED OUTSIDE
a 4/5 Ready a2 a3,a4 and 2 more -
bb 3/3 Ready b1 - -
c 0/0 TooFewNodes - - -
`,
		formWide: `POOL READY COORDINATOR LEADER DELEGATED OUTSIDE COORDINATOR NODE LEADER REPORTED
a 4/5 Ready a2 a3,a4,a5,a6 - a1 20s ago
bb 3/3 Ready b1 - - - 60s ahead
c 0/0 TooFewNodes - - - - -
`,
	} {
		var b bytes.Buffer
		if err := (printer{out: &b, form: form, now: noon}).pools(somePools); err != nil || squeeze(b.String()) != want {
			t.Errorf("%q:\n%s, %v", form, b.String(), err)
		}
	}
	var b bytes.Buffer
	var back []Pool
	if err := (printer{out: &b, form: formJSON, now: noon}).pools(somePools); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || len(back) != 3 || back[0].Leader != "a2" {
		t.Errorf("JSON: %s, %v", b.String(), err)
	}
}

// Colour is around a line as a whole, so that the columns stay where they are, and never where nobody sees it.
func TestColour(t *testing.T) {
	var plain, coloured bytes.Buffer
	if err := (printer{out: &plain, now: noon}).pools(somePools); err != nil {
		t.Fatal(err)
	}
	if err := (printer{out: &coloured, colour: true, now: noon}).pools(somePools); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Errorf("coloured, though nobody asked for it: %q", plain.String())
	}
	got := strings.Split(coloured.String(), "\n")
	for i, line := range strings.Split(plain.String(), "\n") {
		want := map[int]string{1: "\x1b[33m" + line + "\x1b[0m", 3: "\x1b[31m" + line + "\x1b[0m"}[i]
		if want == "" {
			want = line
		}
		if got[i] != want {
			t.Errorf("line %d: %q, want %q", i, got[i], want)
		}
	}
}

// A kubeconfig is a key: nobody else may read it, and one that was there before is replaced as a whole.
func TestWritePrivate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "k")
	if err := os.WriteFile(path, []byte("old and longer than the new one"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writePrivate(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	info, err2 := os.Stat(path)
	if err != nil || err2 != nil || string(content) != "new" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, %v, %v, %v", content, info.Mode(), err, err2)
	}
	if err := writePrivate(filepath.Join(dir, "no", "k"), nil); err == nil {
		t.Error("written to a directory that is not there")
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writePrivate(filepath.Join(dir, "d"), []byte("x")); err == nil {
		t.Error("written over a directory")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
