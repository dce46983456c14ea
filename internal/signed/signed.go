// Package signed verifies the files of a release. A release has a list of its files, SHA256SUMS, and a signature of that list,
// SHA256SUMS.sig. Anybody who has the release's public key can tell, without trusting anyone else, whether a file belongs to a
// release, and to which one: the names in the list contain the version.
//
// The signature is the one that cosign makes and verifies for a blob with a key: ECDSA over P-256 and SHA-256, in ASN.1, in
// base64. Public keys are PEM, as in cosign.pub. The standard library can do all of this, so a node needs nothing more to
// verify.
package signed

import (
	"bufio"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Names of a release's files.
const (
	SumsFile      = "SHA256SUMS"
	SignatureFile = "SHA256SUMS.sig"
)

// maxSums bounds a list, in bytes. One has some dozens of lines.
const maxSums = 1 << 20

var (
	// ErrNotSigned is what Open returns of a list that none of the keys has signed.
	ErrNotSigned = errors.New("no key that is trusted has signed it")
	// ErrNotListed is what Sums.Name returns of a file that is not in the list.
	ErrNotListed = errors.New("it is none of the release's files")
)

// Keys are public keys. A signature by any of them holds, so that a key can have a successor.
type Keys []*ecdsa.PublicKey

// ParseKeys reads public keys from PEM, one at least. It refuses what is none.
func ParseKeys(text []byte) (Keys, error) {
	var keys Keys
	block, text := pem.Decode(text)
	for ; block != nil; block, text = pem.Decode(text) {
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("public key %d, of type %q: %w", len(keys)+1, block.Type, err)
		}
		key, ok := parsed.(*ecdsa.PublicKey)
		if !ok || key.Curve != elliptic.P256() {
			return nil, fmt.Errorf("public key %d: want one of ECDSA over P-256", len(keys)+1)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(bytes.TrimSpace(text)) > 0 {
		return nil, errors.New("want public keys in PEM, and nothing else")
	}
	return keys, nil
}

// EncodeKey returns a public key in PEM, as ParseKeys reads it.
func EncodeKey(key *ecdsa.PublicKey) ([]byte, error) {
	content, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: content}), nil
}

// GenerateKey returns a key to sign with.
func GenerateKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// ParsePrivateKey reads a key to sign with from PEM: PKCS 8, or what openssl calls an EC PRIVATE KEY.
func ParsePrivateKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, rest := pem.Decode(text)
	for block != nil && block.Type == "EC PARAMETERS" { // openssl writes it first
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New("want a private key in PEM")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("private key of type %q: %w", block.Type, err)
		}
		key, _ = parsed.(*ecdsa.PrivateKey)
	}
	if key == nil || key.Curve != elliptic.P256() {
		return nil, errors.New("want a private key of ECDSA over P-256")
	}
	return key, nil
}

// Sign returns the signature of a content, with a newline at its end. It is the same each time (RFC 6979).
func Sign(key *ecdsa.PrivateKey, content []byte) ([]byte, error) {
	sum := sha256.Sum256(content)
	signature, err := key.Sign(nil, sum[:], crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return append(base64.StdEncoding.AppendEncode(nil, signature), '\n'), nil
}

// Verify returns nil if one of the keys has signed the content, and else ErrNotSigned.
func (k Keys) Verify(content, signature []byte) error {
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(signature)))
	if err != nil {
		return fmt.Errorf("%w: the signature is not in base64", ErrNotSigned)
	}
	sum := sha256.Sum256(content)
	if !slices.ContainsFunc(k, func(key *ecdsa.PublicKey) bool { return ecdsa.VerifyASN1(key, sum[:], decoded) }) {
		return ErrNotSigned
	}
	return nil
}

// Open returns a list of files if one of the keys has signed it.
func (k Keys) Open(sums, signature []byte) (Sums, error) {
	if len(sums) > maxSums {
		return nil, fmt.Errorf("%s: more than %d bytes", SumsFile, maxSums)
	}
	if err := k.Verify(sums, signature); err != nil {
		return nil, fmt.Errorf("%s: %w", SumsFile, err)
	}
	return ParseSums(sums)
}

// Sums are the files of a release: the SHA-256 of their content, in hexadecimal digits, by name.
type Sums map[string]string

// ParseSums reads a list as sha256sum writes it. Whoever did not sign it can have written anything: see Keys.Open.
func ParseSums(text []byte) (Sums, error) {
	all := Sums{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		sum, name, ok := strings.Cut(lines.Text(), "  ")
		decoded, err := hex.DecodeString(sum)
		if !ok || err != nil || len(decoded) != sha256.Size || sum != strings.ToLower(sum) {
			return nil, fmt.Errorf("%s: %.100q is no line of it", SumsFile, lines.Text())
		}
		if name == "" || strings.ContainsAny(name, "/\\ \t") || all[name] != "" {
			return nil, fmt.Errorf("%s: %.100q is no name, or is there twice", SumsFile, name)
		}
		all[name] = sum
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", SumsFile, err)
	}
	return all, nil
}

// String returns the list as ParseSums reads it, sorted by name.
func (s Sums) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s  %s\n", s[name], name)
	}
	return b.String()
}

// Name returns the name that the list has for a content, among the names that accept allows. That name decides which program it
// is, of which version and for which platform; the content itself does not.
func (s Sums) Name(content io.Reader, accept func(name string) bool) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, content); err != nil {
		return "", err
	}
	sum := hex.EncodeToString(h.Sum(nil))
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if s[name] == sum && accept(name) {
			return name, nil
		}
	}
	return "", ErrNotListed
}

// ProgramName returns the name under which a release has a bare program: yurthub-v0.2.0-linux-amd64.
func ProgramName(program, version, platform string) string {
	return program + "-" + version + "-" + strings.ReplaceAll(platform, "/", "-")
}

// ProgramVersion returns the version in a name that ProgramName returns for a program and a platform; false for any other.
func ProgramVersion(name, program, platform string) (version string, ok bool) {
	rest, ok := strings.CutPrefix(name, program+"-v")
	if !ok {
		return "", false
	}
	rest, ok = strings.CutSuffix(rest, "-"+strings.ReplaceAll(platform, "/", "-"))
	return "v" + rest, ok && rest != ""
}

// ImageName returns the name under which a release's list has an image: yurthub:v0.2.0. The list has the image's digest, which
// is the SHA-256 of what a registry serves under that tag.
func ImageName(program, tag string) string { return program + ":" + tag }
