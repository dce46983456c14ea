package signed

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// encodePrivateKey returns a private key in PEM, as ParsePrivateKey reads it.
func encodePrivateKey(key *ecdsa.PrivateKey) ([]byte, error) {
	content, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: content}), nil
}

func key(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	private, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	public, err := EncodeKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return private, public
}

func parsed(t *testing.T, text ...[]byte) Keys {
	t.Helper()
	keys, err := ParseKeys(bytes.Join(text, nil))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// TestOpen: a list is read if a trusted key has signed exactly it.
func TestOpen(t *testing.T) {
	private, public := key(t)
	_, other := key(t)
	list := Sums{"yurthub-v0.2.0-linux-amd64": sumOf("hub"), "notes.txt": sumOf("notes")}
	text := []byte(list.String())
	signature, err := Sign(private, text)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Sign(private, text); err != nil || !bytes.Equal(again, signature) {
		t.Errorf("signed again it is another: %v", err)
	}
	for name, keys := range map[string]Keys{"one": parsed(t, public), "a successor, too": parsed(t, other, public)} {
		got, err := keys.Open(text, signature)
		if err != nil || got.String() != list.String() {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for name, test := range map[string]struct {
		keys            Keys
		text, signature []byte
	}{
		"another key":             {parsed(t, other), text, signature},
		"no key":                  {nil, text, signature},
		"a line more":             {parsed(t, public), append(bytes.Clone(text), (sumOf("worm") + "  worm\n")...), signature},
		"a signature of nothing":  {parsed(t, public), text, nil},
		"what is no signature":    {parsed(t, public), text, []byte("!")},
		"a signature of another":  {parsed(t, public), text, must(Sign(private, []byte("other")))},
		"a signature that is cut": {parsed(t, public), text, signature[:40]},
	} {
		if got, err := test.keys.Open(test.text, test.signature); !errors.Is(err, ErrNotSigned) || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := parsed(t, public).Open(make([]byte, maxSums+1), signature); err == nil || errors.Is(err, ErrNotSigned) {
		t.Errorf("a list without end: %v", err)
	}
}

func must(signature []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return signature
}

// TestName: which program it is, the list says.
func TestName(t *testing.T) {
	list := Sums{
		"yurthub-v0.2.0-linux-amd64": sumOf("hub"), "yurthub-v0.2.0-linux-arm64": sumOf("other"), "hub.txt": sumOf("hub"),
	}
	accept := func(name string) bool {
		_, ok := ProgramVersion(name, "yurthub", "linux/amd64")
		return ok
	}
	if name, err := list.Name(strings.NewReader("hub"), accept); err != nil || name != "yurthub-v0.2.0-linux-amd64" {
		t.Errorf("%q, %v", name, err)
	}
	for _, content := range []string{"other", "hub ", ""} { // of another platform, changed, none
		if name, err := list.Name(strings.NewReader(content), accept); !errors.Is(err, ErrNotListed) {
			t.Errorf("%q is %q, %v", content, name, err)
		}
	}
}

func TestProgramName(t *testing.T) {
	name := ProgramName("yurthub", "v0.3.0-rc.1", "linux/arm64")
	if name != "yurthub-v0.3.0-rc.1-linux-arm64" {
		t.Errorf("%q", name)
	}
	if v, ok := ProgramVersion(name, "yurthub", "linux/arm64"); !ok || v != "v0.3.0-rc.1" {
		t.Errorf("%q, %v", v, ok)
	}
	for _, other := range []string{
		"yurthub-v0.3.0-linux-amd64", "yurthub-v0.3.0-linux-arm64.tar.gz", "yurthub-linux-arm64", "yurthub-v-linux-arm64",
		"kubectl-yurt-v0.3.0-linux-arm64",
	} {
		if v, ok := ProgramVersion(other, "yurthub", "linux/arm64"); ok {
			t.Errorf("%q has version %q", other, v)
		}
	}
}

func TestParseSums(t *testing.T) {
	good := sumOf("x") + "  x\n"
	if got, err := ParseSums([]byte(good)); err != nil || got["x"] != sumOf("x") {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{
		good + good, "x\n", sumOf("x") + " x\n", sumOf("x") + "  \n", sumOf("x") + "  ../x\n", sumOf("x")[1:] + "  x\n",
		strings.ToUpper(sumOf("y")) + "  y\n", sumOf("x") + "  a b\n", "\n", strings.Repeat("x", 100<<10),
	} {
		if got, err := ParseSums([]byte(bad)); err == nil {
			t.Errorf("%.80q is read as %v", bad, got)
		}
	}
}

func TestParseKeysRefuses(t *testing.T) {
	_, public := key(t)
	small, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := EncodeKey(&small.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	of, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	content, err := x509.MarshalPKIXPublicKey(&of.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	private, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := encodePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"nothing": nil, "no PEM": []byte("key"), "another curve": other, "a private key": secret,
		"RSA":             pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: content}),
		"more than a key": append(bytes.Clone(public), "and more"...), "one that is cut": public[:len(public)-40],
	} {
		if keys, err := ParseKeys(text); err == nil {
			t.Errorf("%s: %v", name, keys)
		}
	}
}

// TestOpenSSL: others make and verify the same signatures, and the same keys.
func TestOpenSSL(t *testing.T) {
	program, err := exec.LookPath("openssl")
	if err != nil {
		t.Fatalf("the pages say that openssl verifies a release: %v", err)
	}
	dir := t.TempDir()
	openssl := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("openssl %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	read := func(name string) []byte {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	openssl("ecparam", "-genkey", "-name", "prime256v1", "-out", "ec.key")
	openssl("pkcs8", "-topk8", "-nocrypt", "-in", "ec.key", "-out", "pkcs8.key")
	openssl("ec", "-in", "ec.key", "-pubout", "-out", "key.pub")
	list := Sums{"x": sumOf("x")}
	if err := os.WriteFile(filepath.Join(dir, SumsFile), []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := parsed(t, read("key.pub"))
	for _, name := range []string{"ec.key", "pkcs8.key"} {
		private, err := ParsePrivateKey(read(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		signature, err := Sign(private, []byte(list.String()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, SignatureFile), signature, 0o600); err != nil {
			t.Fatal(err)
		}
		openssl("base64", "-d", "-A", "-in", SignatureFile, "-out", "binary")
		out := openssl("dgst", "-sha256", "-verify", "key.pub", "-signature", "binary", SumsFile)
		if !strings.Contains(out, "Verified OK") {
			t.Errorf("%s: %s", name, out)
		}
	}
	openssl("dgst", "-sha256", "-sign", "pkcs8.key", "-out", "binary", SumsFile)
	openssl("base64", "-A", "-in", "binary", "-out", "theirs")
	if _, err := keys.Open(read(SumsFile), read("theirs")); err != nil {
		t.Error(err)
	}
}

func TestPrivateKeyRoundTrip(t *testing.T) {
	private, _ := key(t)
	text, err := encodePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParsePrivateKey(text)
	if err != nil || !again.Equal(private) {
		t.Errorf("%v, %v", again, err)
	}
	for _, bad := range [][]byte{nil, []byte("key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})} {
		if _, err := ParsePrivateKey(bad); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
}
