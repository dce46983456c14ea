package identity

import (
	"encoding/json"
	"time"

	"k8s.io/client-go/util/cert"
)

// Notes are what is known of a TrustSet beyond its certificates, such as for how long the cloud has not named an authority. They
// are stored beside the file of the certificates. No authority is trusted because of the notes alone. If the Manager has pins,
// and the notes can't be read or were made with other pins, only the pinned authorities in that file are trusted.
type Notes struct {
	Version int `json:"version"`
	// Pins is a digest of the hashes that selected the first authority. These hashes say nothing about its successors.
	Pins string `json:"pins,omitempty"`
	// File is a digest of the authorities that were last read from the node's kubeconfigs. The same authorities are not added a
	// second time, because the cloud may have given them up since.
	File string `json:"file,omitempty"`
	// Asked is TrustSet.Asked.
	Asked time.Time `json:"asked,omitzero"`
	// Authorities are by ID.
	Authorities map[string]Note `json:"authorities"`
}

// Note is what is kept of an Authority.
type Note struct {
	Subject string        `json:"subject"` // for people
	Since   time.Time     `json:"since,omitzero"`
	Missing time.Duration `json:"missingNanoseconds,omitempty"`
}

// notesVersion is the version of the format.
const notesVersion = 1

// ReadNotes returns the TrustSet of a PEM file of certificates, with what the notes say about each. If the notes can't be read,
// they count as empty.
func ReadNotes(certificates, notes []byte) (TrustSet, Notes, error) {
	all, err := cert.ParseCertsPEM(certificates)
	if err != nil {
		return TrustSet{}, Notes{}, ErrNothing
	}
	var n Notes
	if json.Unmarshal(notes, &n) != nil || n.Version != notesVersion {
		n = Notes{}
	}
	s := TrustSet{Asked: n.Asked}
	for _, c := range all {
		note := n.Authorities[AuthorityID(c)]
		s.Authorities = append(s.Authorities, Authority{Cert: c, Since: note.Since, Missing: note.Missing})
	}
	return s, n, nil
}

// Encode returns the notes of a TrustSet as the content of a file.
func (n Notes) Encode(s TrustSet) ([]byte, error) {
	n.Version, n.Asked, n.Authorities = notesVersion, s.Asked, map[string]Note{}
	for _, a := range s.Authorities {
		n.Authorities[AuthorityID(a.Cert)] = Note{Subject: a.Cert.Subject.String(), Since: a.Since, Missing: a.Missing}
	}
	return json.MarshalIndent(n, "", "  ")
}
