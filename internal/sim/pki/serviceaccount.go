package pki

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path/filepath"
)

// ServiceAccountKeys names the files of the key that signs service account tokens, and of its public half.
type ServiceAccountKeys struct {
	Private, Public string
}

// CreateServiceAccountKeys makes NAME.key and NAME.pub in dir, and replaces existing ones of that name.
func CreateServiceAccountKeys(dir, name string) (ServiceAccountKeys, error) {
	if err := checkName(name); err != nil {
		return ServiceAccountKeys{}, err
	}
	keys := ServiceAccountKeys{Private: filepath.Join(dir, name+".key"), Public: filepath.Join(dir, name+".pub")}
	key, err := newKey()
	if err != nil {
		return keys, err
	}
	private, err := privatePEM(key)
	if err != nil {
		return keys, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return keys, fmt.Errorf("encode public key: %w", err)
	}
	if err := writeFile(keys.Private, private); err != nil {
		return keys, fmt.Errorf("service account key: %w", err)
	}
	if err := writeFile(keys.Public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})); err != nil {
		return keys, fmt.Errorf("service account key: %w", err)
	}
	return keys, nil
}
