package release

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// BundleFile is the name of the list's signature in the form that cosign 3 asks for.
const BundleFile = "SHA256SUMS.sigstore.json"

// bundled returns a signature as a bundle of Sigstore's, version 0.3. It names the key by its sum, which makes nobody trust it.
func bundled(content, signature, public []byte) ([]byte, error) {
	of := func(content []byte) string {
		sum := sha256.Sum256(content)
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	return json.MarshalIndent(map[string]any{
		"mediaType":            "application/vnd.dev.sigstore.bundle.v0.3+json",
		"verificationMaterial": map[string]any{"publicKey": map[string]string{"hint": of(public)}},
		"messageSignature": map[string]any{
			"messageDigest": map[string]string{"algorithm": "SHA2_256", "digest": of(content)},
			"signature":     strings.TrimSpace(string(signature)),
		},
	}, "", "  ")
}
