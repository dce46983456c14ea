package store

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
)

// Secrets says what is encrypted on the disk, and with which key.
type Secrets struct {
	// Key is the encryption key. It has 32 bytes, for AES-256-GCM with a random nonce for each frame. On opening, the store
	// removes what is encrypted with another key. nil means that nothing is encrypted.
	Key []byte
	// Collection reports whether the objects of a collection are secret, and Blob whether a blob's value is. The names of both
	// are never encrypted.
	Collection func(Collection) bool
	Blob       func(key string) bool
}

// vault encrypts what is secret. The nil one encrypts nothing, and can read nothing that is encrypted.
type vault struct {
	Secrets
	aead cipher.AEAD
}

// newVault returns nil if there is no key.
func newVault(s Secrets) (*vault, error) {
	if s.Key == nil {
		return nil, nil
	}
	if len(s.Key) != 32 || s.Collection == nil || s.Blob == nil {
		return nil, errors.New("store: Config.Secrets: want a Key of 32 bytes, Collection and Blob")
	}
	block, err := aes.NewCipher(s.Key)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return &vault{s, aead}, nil
}

// errForeign says that something is encrypted with another key. It is as it was written, by its checksum.
var errForeign = errors.New("it is encrypted with another key")

func (v *vault) hides(k key) bool {
	if v == nil {
		return false
	}
	if k.blob != "" {
		return v.Blob(k.blob)
	}
	return v.Collection(k.Collection)
}

// close encrypts a frame's body and binds it to its place, which is meta. The AEAD makes the nonce.
func (v *vault) close(body, meta []byte) []byte { return v.aead.Seal(nil, nil, body, meta) } //nolint:gosec // see above

// open decrypts what close made for the same place.
func (v *vault) open(closed, meta []byte) ([]byte, error) {
	if v == nil {
		return nil, errForeign
	}
	body, err := v.aead.Open(nil, nil, closed, meta)
	if err != nil {
		return nil, errForeign
	}
	return body, nil
}
