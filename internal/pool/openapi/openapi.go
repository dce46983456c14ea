// Package openapi serves the OpenAPI documents of a coordinator's kinds, for kubectl explain and for clients that check
// a file before they send it.
//
// The documents are those of a kube-apiserver (OpenAPI version 3) of the version that the coordinator is built from:
// the program generate makes them from Kubernetes' module. They are packed into the program and sent from there as they
// are, so that nobody who does not ask pays for them. kube-apiserver makes them at its start from definitions of every
// type, and keeps them: 47 MB in a coordinator (measured idle, when it was left out). The other alternative was
// kube-openapi's handler over these documents; it parses them, and keeps the result.
package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
)

//go:generate go run ./generate

//go:embed documents
var documents embed.FS

const (
	// directory holds the documents. A document's name is its path with "/" written as "__", and suffix.
	directory = "documents"
	suffix    = ".json.gz"

	// Root is where clients ask which documents exist. The documents are below it, by group and version.
	Root = "/openapi/v3"

	// queryHash is the parameter by which a client names the state of a document.
	queryHash = "hash"
	forever   = "public, max-age=31536000, immutable"
)

// document is the document of one group and version.
type document struct {
	file string // of documents: gzip of JSON
	hash string
}

// open returns the packed document. It fails only if the program was built without it.
func (d document) open() (io.ReadSeeker, error) {
	f, err := documents.Open(directory + "/" + d.file)
	if err != nil {
		return nil, err
	}
	return f.(io.ReadSeeker), nil //nolint:forcetypeassert // embed promises it
}

// handler serves documents by their path below Root, and the list of them.
type handler struct {
	documents map[string]document
	index     []byte
}

// indexed is an entry of the list, in Kubernetes' form.
type indexed struct {
	ServerRelativeURL string `json:"serverRelativeURL"`
}

// Handler returns the handler for Root and below. It fails only if the program was built without its documents.
func Handler() (http.Handler, error) {
	entries, err := documents.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	h := &handler{documents: map[string]document{}}
	list := struct {
		Paths map[string]indexed `json:"paths"`
	}{map[string]indexed{}}
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), suffix)
		if !is {
			continue
		}
		d := document{file: entry.Name()}
		packed, err := d.open()
		if err != nil {
			return nil, err
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, packed); err != nil {
			return nil, err
		}
		d.hash = hex.EncodeToString(sum.Sum(nil))
		path := strings.ReplaceAll(name, "__", "/")
		h.documents[path] = d
		list.Paths[path] = indexed{Root + "/" + path + "?" + queryHash + "=" + d.hash}
	}
	if len(h.documents) == 0 {
		return nil, fmt.Errorf("no OpenAPI documents in the program: run go generate ./internal/pool/openapi")
	}
	h.index, err = json.Marshal(list)
	return h, err
}

// ServeHTTP implements http.Handler. Documents are JSON: a client that accepts only Protobuf gets a 406.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "OpenAPI documents can only be read", http.StatusMethodNotAllowed)
		return
	}
	const kind = "application/json"
	if accept := r.Header.Get("Accept"); accept != "" && goautoneg.Negotiate(accept, []string{kind}) == "" {
		http.Error(w, "a pool's coordinator has its OpenAPI documents as application/json only", http.StatusNotAcceptable)
		return
	}
	path, below := strings.CutPrefix(r.URL.Path, Root+"/")
	if !below || path == "" {
		w.Header().Set("Content-Type", kind)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(h.index))
		return
	}
	d, known := h.documents[path]
	if !known {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	header.Set("Content-Type", kind)
	header.Set("ETag", `"`+d.hash+`"`)
	header.Set("Vary", "Accept, Accept-Encoding")
	if r.URL.Query().Get(queryHash) == d.hash {
		header.Set("Cache-Control", forever)
	}
	packed, err := d.open()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if takesGzip(r) {
		header.Set("Content-Encoding", "gzip")
		http.ServeContent(w, r, "", time.Time{}, packed)
		return
	}
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// A failure from here on is the client's connection, or shows as a document that ends early.
	_, _ = io.Copy(w, unpacked) //nolint:gosec // what is unpacked is part of the program
}

func takesGzip(r *http.Request) bool {
	return slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(part string) bool {
		return strings.TrimSpace(part) == "gzip"
	})
}
