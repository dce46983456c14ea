package keep

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/utils/lru"

	"yurtcoordinator/internal/store"
)

const (
	// maxAnswers bounds how many answers are remembered, and answerBytes how large one may be. The disk has its own bound
	// of all of them.
	maxAnswers  = 2000
	answerBytes = 128 << 10
	// requestBytes bounds the body of a request whose answer is remembered: a TokenRequest has some hundred bytes.
	requestBytes = 64 << 10
	// pathBytes bounds a path: the disk has keys of at most 1 KiB.
	pathBytes = 512
	// evictMost bounds how many answers have to go for a new one, if the disk's bound is reached first: the largest takes
	// the place of that many small ones.
	evictMost = 200
	// maxGuestAnswers bounds those to one caller with credentials of its own.
	maxGuestAnswers = 100
	// answerPrefix begins the disk's keys of answers to the node's programs, guestPrefix with the digest of a name those to
	// somebody else.
	answerPrefix, guestPrefix = "answer/", "guest/"
)

// answers are the cloud's last answers to requests that read one thing: an object, a discovery document, a Pod's token.
type answers struct {
	disk   Disk
	prefix string
	// order has the digest of each answer on the disk, nil while it has not been compared. The least recently used goes
	// first, and from the disk too.
	order *lru.Cache
}

// answer is what the cloud said.
type answer struct {
	Status      int    `json:"status"`
	ContentType string `json:"contentType"`
	Body        []byte `json:"body"`
}

func newAnswers(disk Disk, client string) *answers {
	a := &answers{disk: disk, prefix: answerPrefix}
	if client != "" {
		sum := sha256.Sum256([]byte(client))
		a.prefix = guestPrefix + hex.EncodeToString(sum[:16]) + "/"
	}
	most := maxAnswers
	if client != "" {
		most = maxGuestAnswers
	}
	a.order = lru.NewWithEvictionFunc(most, func(key lru.Key, _ any) {
		if k, ok := key.(string); ok {
			disk.DropBlob(k)
		}
	})
	for _, key := range disk.Blobs(a.prefix) {
		a.order.Add(key, nil)
	}
	return a
}

// keyOf names a request, and all in it that its answer depends on. It reads the body and puts it back.
func (a *answers) keyOf(r *http.Request) (string, error) {
	query := r.URL.Query()
	for _, transient := range []string{"timeout", "resourceVersion", "resourceVersionMatch"} {
		query.Del(transient)
	}
	path := r.URL.Path
	if len(path) > pathBytes {
		return "", fmt.Errorf("the path has %d bytes", len(path))
	}
	body, err := peek(r)
	if err != nil {
		return "", err
	}
	digest := sha256.New()
	for _, part := range []string{
		r.Method, query.Encode(), strings.Join(r.Header.Values("Accept"), ","), r.Header.Get("Content-Type"), string(body),
	} {
		fmt.Fprintf(digest, "%d %s", len(part), part)
	}
	return a.prefix + path + " " + hex.EncodeToString(digest.Sum(nil)), nil
}

// peek reads a request's body and puts it back.
func peek(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, requestBytes+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	if err == nil && len(body) > requestBytes {
		err = fmt.Errorf("the request has more than %d bytes", requestBytes)
	}
	return body, err
}

// pass has a request answered by pass, and remembers what it says.
func (a *answers) pass(w http.ResponseWriter, r *http.Request, key string, pass http.Handler) {
	t := &tee{ResponseWriter: w}
	pass.ServeHTTP(t, r) // one that breaks off panics, and is not remembered
	switch {
	case w.Header().Get("Cache-Control") == "no-store": // somebody else has answered
	case t.status == http.StatusNotFound || t.status == http.StatusGone:
		a.forget(key)
	case t.whole() && (t.status == http.StatusOK || t.status == http.StatusCreated):
		a.remember(key, answer{t.status, w.Header().Get("Content-Type"), t.body.Bytes()})
	}
}

// remember brings an answer to the disk, if it is not there. The client may still wait for the end of the answer, so the
// disk is read at most once for each key.
func (a *answers) remember(key string, said answer) {
	value, err := json.Marshal(said)
	if err != nil {
		return // strings and bytes always are JSON
	}
	digest := sha256.Sum256(value)
	known, ours := a.order.Get(key)
	if known == any(digest) {
		return
	}
	if ours && known == nil {
		if old, err := a.disk.Blob(key); err == nil && bytes.Equal(old, value) {
			a.order.Add(key, digest)
			return
		}
	}
	// The blob comes first: what is in the order but not on the disk does no harm, but nobody would remove the other.
	err = a.disk.PutBlob(key, value)
	if errors.Is(err, store.ErrFull) && a.prefix == answerPrefix {
		// Without what kubelet was told, no Pod starts: those of others have to go for it.
		for _, guest := range a.disk.Blobs(guestPrefix) {
			a.disk.DropBlob(guest)
		}
		err = a.disk.PutBlob(key, value)
	}
	for n := 0; n < evictMost && errors.Is(err, store.ErrFull) && a.order.Len() > 0; n++ {
		a.order.RemoveOldest()
		err = a.disk.PutBlob(key, value)
	}
	if err != nil {
		a.forget(key) // an old answer would be a wrong one
		return
	}
	a.order.Add(key, digest)
}

// forget removes an answer, whether or not it is in the order.
func (a *answers) forget(key string) {
	a.order.Remove(key)
	a.disk.DropBlob(key)
}

// recall answers from memory, if it can.
func (a *answers) recall(w http.ResponseWriter, key string) bool {
	value, err := a.disk.Blob(key)
	var said answer
	if err != nil || json.Unmarshal(value, &said) != nil || said.Status < http.StatusOK {
		if _, ours := a.order.Get(key); ours {
			a.order.Add(key, nil) // the disk has lost it, and is to be asked before it is said to have it
		}
		return false
	}
	a.order.Get(key) // it is of use
	h := w.Header()
	fromMemory(h)
	h.Set("Content-Type", said.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(said.Body)))
	w.WriteHeader(said.Status)
	_, _ = w.Write(said.Body) // fails only if the client is gone
	return true
}

// fromMemory says that an answer is not the cloud's of this moment.
func fromMemory(h http.Header) {
	h.Set("Warning", `110 yurthub "the cloud cannot be reached; this is what it said last"`)
	h.Set("Cache-Control", "no-cache, private")
}

// tee keeps what is written through it, up to answerBytes.
type tee struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
	over   bool
}

func (t *tee) WriteHeader(status int) {
	if t.status == 0 && status >= 200 {
		t.status = status
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *tee) Write(p []byte) (int, error) {
	if t.status == 0 {
		t.status = http.StatusOK
	}
	n, err := t.ResponseWriter.Write(p)
	if t.over = t.over || err != nil || t.body.Len()+n > answerBytes; t.over {
		t.body = bytes.Buffer{}
	} else {
		t.body.Write(p[:n])
	}
	return n, err
}

// whole reports whether all of the answer was kept, in plain.
func (t *tee) whole() bool {
	h := t.Header()
	length := h.Get("Content-Length")
	return !t.over && h.Get("Content-Encoding") == "" && (length == "" || length == strconv.Itoa(t.body.Len()))
}

// Unwrap lets http.ResponseController reach Flush and the deadlines.
func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }
