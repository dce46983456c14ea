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

// released gives the machine a release's key, and a list that it has signed, of the program that the machine has and of an image.
func (m *machine) released() (key, list string) {
	m.t.Helper()
	return m.lists(signed.Sums{
		signed.ProgramName("yurthub", "v0.2.0", runtime.GOOS+"/"+runtime.GOARCH): sumOf("a program"),
		signed.ProgramName("yurthub", "v0.2.0", "linux/s390x"):                   sumOf("another machine's"),
		signed.ProgramName("kubectl-yurt", "v0.2.0", "linux/amd64"):              sumOf("a plugin"),
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

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func (m *machine) podImage() string {
	found := podImage.FindStringSubmatch(m.files()["/etc/kubernetes/manifests/yurthub.yaml"])
	if found == nil {
		return ""
	}
	return found[1]
}

// TestHeldToRelease: what the release's list has is joined, and the Pod names its image by digest, also after it was joined again
// without the list. The image may be a mirror's.
func TestHeldToRelease(t *testing.T) {
	m := newMachine(t)
	key, list := m.released()
	m.works("join", "--start", key, list)

	for image, want := range map[string]string{
		"mirror.example:5000/a/yurthub:v0.2.0":                   "mirror.example:5000/a/yurthub:v0.2.0@sha256:" + ofImage,
		"mirror.example:5000/a/yurthub:v0.2.0@sha256:" + ofImage: "mirror.example:5000/a/yurthub:v0.2.0@sha256:" + ofImage,
		"mirror.example:5000/a/hub@sha256:" + ofImage:            "mirror.example:5000/a/hub:v0.2.0@sha256:" + ofImage,
	} {
		m := newMachine(t)
		key, list := m.released()
		m.works("join", "--start", key, list, "--static-pod="+image)
		if has := m.podImage(); has != want {
			t.Errorf("%s: the Pod has %s", image, has)
		}
		m.works("join", "--start", "--static-pod="+image, "--set=port=10300")
		if has := m.podImage(); !strings.HasSuffix(has, "@sha256:"+ofImage) {
			t.Errorf("%s: joined again with other settings, the Pod has %s", image, has)
		}
		m.works("join", "--start", "--static-pod=other/yurthub:v0.2.0")
		if has := m.podImage(); has != "other/yurthub:v0.2.0" {
			t.Errorf("joined again with another image, the Pod has %s", has)
		}
		m.works("join", "--start", list, "--static-pod="+image) // by the key that is there
		if has := m.podImage(); has != want {
			t.Errorf("%s: joined again with the list, the Pod has %s", image, has)
		}
	}
}

// TestImageOfANode: where nothing is started, the program may be for another machine.
func TestImageOfANode(t *testing.T) {
	m := newMachine(t)
	key, list := m.lists(signed.Sums{signed.ProgramName("yurthub", "v0.2.0", "linux/other"): sumOf("a program")})
	m.works("join", "--node-name=n1", key, list)
}

// TestNotOfTheRelease: what the list does not have as it is changes nothing.
func TestNotOfTheRelease(t *testing.T) {
	nobody := "--static-pod=r/yurthub@sha256:" + strings.Repeat("ef", sha256.Size)
	other := strings.Replace(nobody, "@", ":v0.2.0@", 1)
	for name, tt := range map[string]struct {
		spoil func(m *machine)
		args  []string
		want  string
	}{
		"another program":          {func(m *machine) { m.program("evil") }, nil, "none of the release's files"},
		"another release's":        {func(m *machine) { m.lists(signed.Sums{"x": ofImage}) }, nil, "none of the release's files"},
		"the plugin":               {func(m *machine) { m.program("a plugin") }, nil, "none of the release's files"},
		"another machine's":        {func(m *machine) { m.program("another machine's") }, nil, "none of the release's files"},
		"another list":             {func(m *machine) { m.write("SHA256SUMS", ofImage+"  x\n") }, nil, "no key that is trusted"},
		"another key":              {func(m *machine) { m.write("release.pub", releaseKey) }, nil, "no key that is trusted"},
		"no signature":             {func(m *machine) { m.remove("SHA256SUMS.sig") }, nil, "no such file"},
		"no list":                  {func(m *machine) { m.remove("SHA256SUMS") }, nil, "no such file"},
		"an image of another tag":  {nil, []string{"--static-pod=r/yurthub:v0.1.0"}, "no image of yurthub with the tag v0.1"},
		"another program's tag":    {nil, []string{"--static-pod=r/yurthub:v0.3.0"}, "no image of yurthub with the tag v0.3"},
		"another digest":           {nil, []string{other}, "is another, sha256:" + ofImage},
		"a digest of nobody":       {nil, []string{nobody}, "no image of yurthub with that digest"},
		"neither tag nor digest":   {nil, []string{"--static-pod=r:5000/yurthub"}, "say which"},
		"half a digest with a tag": {nil, []string{"--static-pod=r/yurthub:v0.2.0@sha256:ab"}, "is another"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			key, list := m.released()
			if tt.spoil != nil {
				tt.spoil(m)
			}
			before := m.files()
			r := m.run("join", 0, append([]string{"--start", key, list}, tt.args...)...)
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
