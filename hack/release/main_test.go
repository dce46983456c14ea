package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
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
	text, err := signed.EncodePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		key  string
		want string
	}{
		{nil, "", keyVariable},
		{nil, "no key", keyVariable},
		{[]string{"--created=yesterday"}, string(text), "--created"},
		{[]string{"--platforms=linux"}, string(text), "--platforms"},
		{[]string{"--key=x"}, string(text), "key"},
	} {
		if err := start(t.Context(), test.args, test.key); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.args, err, test.want)
		}
	}
}
