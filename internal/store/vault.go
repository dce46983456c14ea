package store

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"

	"yurtcoordinator/internal/store/pages"
)

// Secrets says what is encrypted on the disk, and with which key.
type Secrets struct {
	// Key is of 32 bytes, for AES-256-GCM with a random nonce for each value. What was encrypted with another key is removed
	// when the store is opened. nil means that nothing is encrypted.
	Key []byte
	// Collection reports whether the objects of a collection are secret, Blob whether a blob's value is. Names are not.
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

func (v *vault) hides(id Collection) bool  { return v != nil && v.Collection(id) }
func (v *vault) hidesBlob(key string) bool { return v != nil && v.Blob(key) }

// close encrypts a value for its place. The AEAD makes the nonce.
func (v *vault) close(content, at []byte) []byte { return v.aead.Seal(nil, nil, content, at) } //nolint:gosec // see above

// open returns what close was given for the same place.
func (v *vault) open(closed, at []byte) ([]byte, error) {
	if v == nil {
		return nil, errForeign
	}
	content, err := v.aead.Open(nil, nil, closed, at)
	if err != nil {
		return nil, errForeign
	}
	return content, nil
}

// place is where a value belongs, with which it is encrypted so that none can be put in another's place.
func place(of byte, number uint64, key, head []byte) []byte {
	b := append(make([]byte, 0, 9+len(key)+len(head)), of)
	b = binary.BigEndian.AppendUint64(b, number)
	b = append(b, head...) // its size is the same for all of a kind
	return append(b, key...)
}

// sealBlob makes a blob's value.
func (v *vault) sealBlob(key, content []byte) []byte {
	if !v.hidesBlob(string(key)) {
		return seal(ofBlob, 0, key, content)
	}
	return seal(ofClosedBlob, 0, key, v.close(content, place(ofClosedBlob, 0, key, nil)))
}

// unsealBlob verifies a blob's value and decrypts it.
func (v *vault) unsealBlob(key, value []byte) (content []byte, err error) {
	if content, err = unseal(ofBlob, 0, key, value); err == nil {
		return content, nil
	}
	hidden, other := unseal(ofClosedBlob, 0, key, value)
	if other != nil {
		return nil, err
	}
	return v.open(hidden, place(ofClosedBlob, 0, key, nil))
}

// closeObject encrypts an object's value, of which the checksum is not made yet.
func (v *vault) closeObject(number uint64, key, value []byte) []byte {
	value[formAt] |= encrypted
	hidden := v.close(value[valueHead:], place(ofObject, number, key, value[revisionAt:valueHead]))
	return append(value[:valueHead:valueHead], hidden...)
}

// openObject returns the bytes of an object's value as they were before they were encrypted.
func (v *vault) openObject(number uint64, key, value []byte) ([]byte, error) {
	if value[formAt]&encrypted == 0 {
		return value[valueHead:], nil
	}
	body, err := v.open(value[valueHead:], place(ofObject, number, key, value[revisionAt:valueHead]))
	if err == nil && len(body) > maxObject {
		err = pages.Corrupt("%q has %d bytes", key, len(body))
	}
	return body, err
}
