package main

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/internal/pages"
	"yurtcoordinator/internal/signed"
)

// TestThePageVerifies types what docs/releases.md shows about verifying, beside files that we have signed, and beside others.
func TestThePageVerifies(t *testing.T) {
	steps, err := pages.StepsOf("../..", "docs/releases.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, s := range steps {
		for _, program := range []string{"base64 ", "openssl ", "sha256sum "} {
			if strings.HasPrefix(s.Text, program) {
				commands = append(commands, s.Text)
			}
		}
	}
	if len(commands) < 3 {
		t.Fatalf("found %q; something is wrong with this test", commands)
	}
	key, err := signed.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	public, err := signed.EncodeKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	const program, other = "yurthub-v0.2.0-linux-arm64", "yurthub-v0.2.0-linux-amd64"
	sum := sha256.Sum256([]byte(program))
	sums := []byte(signed.Sums{program: hex.EncodeToString(sum[:]), other: hex.EncodeToString(sum[:])}.String())
	signature, err := signed.Sign(key, sums)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	verify := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", strings.Join(commands, "\n"))
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	write("release.pub", public)
	write(signed.SumsFile, sums)
	write(signed.SignatureFile, signature)
	write(program, []byte(program))
	if out, err := verify(); err != nil || !strings.Contains(out, "Verified OK") || !strings.Contains(out, program+": OK") {
		t.Errorf("%v: %s", err, out)
	}
	write(program, []byte("another program"))
	if out, err := verify(); err == nil {
		t.Errorf("another program passes: %s", out)
	}
	write(program, []byte(program))
	write(signed.SumsFile, append(sums, sums...))
	if out, err := verify(); err == nil {
		t.Errorf("a list that nobody has signed passes: %s", out)
	}
}

// TestRefused: what can't be is said before anything is built.
func TestRefused(t *testing.T) {
	key, err := signed.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	of, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: of})
	for _, test := range []struct {
		args []string
		key  string
		want string
	}{
		{[]string{"--sign"}, "", keyVariable},
		{[]string{"--sign"}, "no key", keyVariable},
		{[]string{"--sign", "--created=yesterday"}, string(text), "-created"},
		{[]string{"--version=latest"}, "", "latest"},
		{[]string{"--version=v1.2.3", "--programs=nowhere"}, "", "no programs"},
		{[]string{"--key=x"}, string(text), "key"},
	} {
		t.Setenv(keyVariable, test.key)
		if err := start(test.args); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.args, err, test.want)
		}
		if key, there := os.LookupEnv(keyVariable); there {
			t.Errorf("%v: the key is still in the environment: %d bytes", test.args, len(key))
		}
	}
}

// TestWhatIsBesideTheKey: the program that gets the key starts no other and knows no HTTP. A module whose code comes to run
// beside the key is added here by somebody who has looked at it.
func TestWhatIsBesideTheKey(t *testing.T) {
	const each = "{{.ImportPath}}{{with .Module}} {{.Path}}{{end}}"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", each, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		path, module, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path == "os/exec" || path == "net/http" || path == "plugin" {
			t.Errorf("it imports %s", path)
		}
		modules[module] = true
	}
	want := []string{
		"", // Go's own
		"github.com/CycloneDX/cyclonedx-go", "github.com/google/go-containerregistry", "github.com/google/uuid",
		"github.com/klauspost/compress", "github.com/opencontainers/go-digest", "github.com/opencontainers/image-spec",
		"go.yaml.in/yaml/v2", "golang.org/x/sync", "k8s.io/apimachinery", "sigs.k8s.io/yaml", "yurtcoordinator",
	}
	if has := slices.Sorted(maps.Keys(modules)); !slices.Equal(has, want) {
		t.Errorf("beside the key is code of %q, want %q", has, want)
	}
}

// TestScriptsOfPackages: a node that goes through the hub keeps it; an upgrade and any other node do not ask.
func TestScriptsOfPackages(t *testing.T) {
	dir := t.TempDir()
	joined := filepath.Join(dir, "joined")
	script := strings.ReplaceAll(content(t, "../../deploy/packages/prerm"), "/etc/yurthub/install/joined", joined)
	run := func(arg string) error {
		return exec.CommandContext(t.Context(), "sh", "-c", script, "prerm", arg).Run()
	}
	for _, arg := range []string{"remove", "0", "upgrade", "1"} {
		if err := run(arg); err != nil {
			t.Errorf("%s where nobody has joined: %v", arg, err)
		}
	}
	if err := os.WriteFile(joined, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]bool{"remove": false, "0": false, "upgrade": true, "1": true} {
		if err := run(arg); (err == nil) != want {
			t.Errorf("%s of a hub that kubelet uses: %v", arg, err)
		}
	}

	// A removal that is refused ends in the same script, with abort-remove: the hub was not touched, and runs on.
	unit, told := filepath.Join(dir, "yurthub.service"), filepath.Join(dir, "told")
	script = strings.NewReplacer("/run/systemd/system", dir, "/etc/systemd/system/yurthub.service", unit).
		Replace(content(t, "../../deploy/packages/postinst"))
	script = "systemctl() { echo \"$@\" >" + told + "; }\n" + script
	for _, test := range []struct {
		arg, program string
		want         bool
	}{
		{"configure", "/usr/bin/yurthub", true}, {"1", "/usr/bin/yurthub", true}, {"2", "/usr/bin/yurthub", true},
		{"configure", "/usr/local/bin/yurthub", false},
		{"abort-remove", "/usr/bin/yurthub", false}, {"abort-upgrade", "/usr/bin/yurthub", false},
	} {
		if err := os.WriteFile(unit, []byte("[Service]\nExecStart="+test.program+" --config=x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(told)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "postinst", test.arg).CombinedOutput()
		said, _ := os.ReadFile(told)
		if want := "try-restart yurthub.service\n"; err != nil || (string(said) == want) != test.want {
			t.Errorf("%s of a package beside %s: %v: %s; systemctl is told %q", test.arg, test.program, err, out, said)
		}
	}
}
