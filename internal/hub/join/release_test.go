package join

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"yurtcoordinator/internal/signed"
)

// ofImage is the digest of the image in a release's list.
var ofImage = strings.Repeat("ab", sha256.Size)

// released gives the machine a release's key, and a list that it has signed, of the program that the machine has and of images.
func (m *machine) released() (key, list string) {
	m.t.Helper()
	return m.lists(signed.Sums{
		signed.ProgramName("yurthub", "v0.2.0", runtime.GOOS+"/"+runtime.GOARCH): sumOfText("a program"),
		signed.ProgramName("yurthub", "v0.2.0", "linux/s390x"):                   sumOfText("another machine's"),
		signed.ProgramName("kubectl-yurt", "v0.2.0", "linux/amd64"):              sumOfText("a plugin"),
		signed.ImageName("yurthub", "v0.2.0"):                                    ofImage,
		signed.ImageName("yurt-coordinator", "v0.3.0"):                           strings.Repeat("cd", sha256.Size),
	})
}

// lists gives the machine a key of releases, and a list that it has signed.
func (m *machine) lists(sums signed.Sums) (key, list string) {
	m.t.Helper()
	private, err := signed.GenerateKey()
	m.must(err)
	public, err := signed.EncodeKey(&private.PublicKey)
	m.must(err)
	signature, err := signed.Sign(private, []byte(sums.String()))
	m.must(err)
	m.write("release.pub", string(public))
	m.write("SHA256SUMS", sums.String())
	m.write("SHA256SUMS.sig", string(signature))
	return "--release-key=" + filepath.Join(m.root, "release.pub"), "--release-list=" + filepath.Join(m.root, "SHA256SUMS")
}

func sumOfText(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// TestHeldToRelease: what the release's list has is joined, and again by the key that is there then.
func TestHeldToRelease(t *testing.T) {
	m := newMachine(t)
	key, list := m.released()
	m.works("join", "--start", key, list)
	m.works("join", "--start", list)
}

// TestImageOfANode: where nothing is started, the program may be for another machine.
func TestImageOfANode(t *testing.T) {
	m := newMachine(t)
	key, list := m.lists(signed.Sums{signed.ProgramName("yurthub", "v0.2.0", "linux/other"): sumOfText("a program")})
	m.works("join", "--node-name=n1", key, list)
}

// TestNotOfTheRelease: what the list does not have as it is changes nothing.
func TestNotOfTheRelease(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(m *machine)
		want  string
	}{
		"another program":   {func(m *machine) { m.program("evil") }, "none of the release's files"},
		"another release's": {func(m *machine) { m.lists(signed.Sums{"x": ofImage}) }, "none of the release's files"},
		"the plugin":        {func(m *machine) { m.program("a plugin") }, "none of the release's files"},
		"another machine's": {func(m *machine) { m.program("another machine's") }, "none of the release's files"},
		"another list":      {func(m *machine) { m.write("SHA256SUMS", ofImage+"  x\n") }, "no key that is trusted"},
		"another key":       {func(m *machine) { m.write("release.pub", releaseKey) }, "no key that is trusted"},
		"no signature":      {func(m *machine) { m.remove("SHA256SUMS.sig") }, "no such file"},
		"no list":           {func(m *machine) { m.remove("SHA256SUMS") }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			key, list := m.released()
			tt.spoil(m)
			before := m.files()
			r := m.run("join", 0, "--start", key, list)
			if !r.failed || !strings.Contains(r.out, tt.want) {
				t.Errorf("it says %s; want %q", r.out, tt.want)
			}
			m.same(before, "refused")
		})
	}
	m := newMachine(t)
	_, list := m.released()
	if r := m.run("join", 0, "--start", list); !r.failed || !strings.Contains(r.out, "needs --release-key") {
		t.Errorf("without a key: %s", r.out)
	}
}

// program puts another one in the hub's place.
func (m *machine) program(content string) {
	m.t.Helper()
	const path = "usr/local/bin/yurthub"
	m.remove(path)
	m.write(path, content)
	m.must(os.Chmod(filepath.Join(m.root, path), 0o755))
}
