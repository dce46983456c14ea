package recall

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
)

const (
	// answerBytes bounds one answer. documentBytes bounds a document of the API server (discovery, OpenAPI) as it came,
	// compressed or not, and is enough for some thousand kinds.
	answerBytes, documentBytes = 128 << 10, 700 << 10
	// requestBytes bounds the body of a request whose answer is remembered: a TokenRequest has some hundred bytes.
	requestBytes = 64 << 10
	// pathBytes bounds a path: the disk has keys of at most 1 KiB.
	pathBytes = 512
	// answerPrefix begins the disk's keys of answers to the node's programs. guestPrefix, followed by a digest of the caller's
	// name, begins the keys of answers to a caller.
	answerPrefix, guestPrefix = "answer/", "guest/"
)

// Disk is where the answers are remembered; store.Store is one. It bounds them, and removes the least recent ones.
type Disk interface {
	PutBlob(key string, value []byte) error
	Blob(key string) ([]byte, error)
	DropBlob(key string)
	Blobs(prefix string) []string
}

// Config is what Answers need.
type Config struct {
	// Client is the owner of the answers: a caller with credentials of its own; empty means the node's programs.
	Client string
	// Disk is required.
	Disk Disk
	// Node is this node.
	Node edge.NodeName
	// Gone reports whether the node certainly no longer has a Pod of that name. If uid is not empty, a Pod of that name with
	// another UID counts as gone, too. Tidy forgets the token of a Pod that is gone, and reads of the Pod if it was this node's.
	// nil means that no Pod counts as gone.
	Gone func(namespace, name, uid string) bool
	// Tenure says how long the answers to reviews hold. Required.
	Tenure TenureJudge
	// Given is called with each token for API servers that the cloud gives kubelet for a Pod. nil means that nothing is called.
	Given func(token string)
}

// Answers are the cloud's last answers to one client, all of which are on the disk. Safe for concurrent use.
type Answers struct {
	cfg    Config
	disk   Disk
	prefix string
}

// answer is what the cloud said.
type answer struct {
	Status      int    `json:"status"`
	ContentType string `json:"contentType"`
	// Encoding is the Content-Encoding.
	Encoding string `json:"encoding,omitempty"`
	Body     []byte `json:"body"`
	// Said says when the cloud gave this answer to a review; nil means that it is no answer to a review.
	Said *Stamp `json:"said,omitempty"`
}

// New returns Answers.
func New(c Config) *Answers {
	if c.Gone == nil {
		c.Gone = func(string, string, string) bool { return false }
	}
	a := &Answers{cfg: c, disk: c.Disk, prefix: answerPrefix}
	if c.Client != "" {
		sum := sha256.Sum256([]byte(c.Client))
		a.prefix = guestPrefix + hex.EncodeToString(sum[:16]) + "/"
	}
	return a
}

// Recall answers a single read from memory. If it can't, it writes nothing and returns false. The request's context must have
// its RequestInfo.
func (a *Answers) Recall(w http.ResponseWriter, r *http.Request) bool {
	asked, err := a.questionOf(r)
	return err == nil && a.remembered(w, asked)
}

// Remember answers a request by the handler pass, and remembers the answer if the request is a single read. The request's context
// must have its RequestInfo.
func (a *Answers) Remember(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	asked, err := a.questionOf(r)
	if err != nil {
		pass.ServeHTTP(w, r)
		return
	}
	key := asked.key
	t := &tee{ResponseWriter: w, most: answerBytes}
	if asked.document {
		t.most, t.compressed = documentBytes, true
	}
	pass.ServeHTTP(t, r) // one that breaks off panics, and is not remembered
	switch {
	case w.Header().Get("Cache-Control") == "no-store": // somebody else has answered
	case t.status == http.StatusNotFound || t.status == http.StatusGone,
		t.status == http.StatusForbidden && a.cfg.Client != "": // not the node's: a server that has just begun denies all
		a.forget(key)
		if r.Method == http.MethodGet { // of an object, in whatever form it was read
			a.forgetAt(r.URL.Path, key)
		}
	case t.whole() && (t.status == http.StatusOK || t.status == http.StatusCreated):
		a.heard(asked, answer{
			Status: t.status, ContentType: w.Header().Get("Content-Type"), Encoding: w.Header().Get("Content-Encoding"),
			Body: t.body.Bytes(),
		})
	case t.status == http.StatusOK && t.unfit():
		a.forget(key) // it was newer than what is remembered, which would be a wrong answer
	}
}

// Overhear answers a request by the handler pass, and returns the answer too, if it is a whole, uncompressed one of success.
func Overhear(w http.ResponseWriter, r *http.Request, pass http.Handler) (answer []byte, ok bool) {
	t := &tee{ResponseWriter: w, most: answerBytes}
	pass.ServeHTTP(t, r) // one that breaks off panics
	return t.body.Bytes(), t.whole() && (t.status == http.StatusOK || t.status == http.StatusCreated)
}

// errNotSingle says that a request is not one whose answer is remembered.
var errNotSingle = errors.New("it does not read one thing")

// single reports whether a request reads one thing, or creates something. The only creates that the front sends here are as good
// as a read: those of a Pod's token or a review. single returns false for a URL that two parsers could read differently.
func single(r *http.Request) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !sound(r.URL) {
		return false
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return false
	}
	if r.Method != http.MethodGet {
		return info.Verb == "create"
	}
	return !info.IsResourceRequest || info.Verb != "list" && info.Verb != "watch"
}

// sound reports whether every parser reads a path in the same way, and the path fits into a key of the disk.
func sound(u *url.URL) bool {
	return u.RawPath == "" && path.Clean(u.Path) == u.Path && len(u.Path) <= pathBytes
}

// question is what a request asks.
type question struct {
	key    string
	review bool
	// given says that the answer is a token for API servers.
	given bool
	// document says that the request asks for what the server says of itself: discovery, or OpenAPI.
	document bool
	// token is the token in a TokenReview; empty means that the request is no TokenReview. The key has only a digest of the
	// token.
	token string
}

// questionOf returns everything in a request that its answer depends on. It reads the request's body and puts it back.
func (a *Answers) questionOf(r *http.Request) (asked question, err error) {
	if !single(r) {
		return question{}, errNotSingle
	}
	query := r.URL.Query()
	for _, transient := range []string{"timeout", "resourceVersion", "resourceVersionMatch"} {
		query.Del(transient)
	}
	body, err := peek(r)
	if err != nil {
		return question{}, err
	}
	about := asksAbout(r)
	asked.review = about != ""
	if about == tokenReviews {
		if asked.token, err = shown(body); err != nil {
			return question{}, err
		}
	}
	coding := ""
	if asked.document = isDocument(r); asked.document && strings.Contains(r.Header.Get("Accept-Encoding"), gzipped) {
		coding = gzipped
	}
	asked.key = a.key(r.URL.Path, r.Method, query.Encode(), accept(r), r.Header.Get("Content-Type"), string(body)+coding)
	if token := podToken(r, body); token != nil {
		asked.key += " " + token.Spec.BoundObjectRef.Name
		asked.given = len(token.Spec.Audiences) == 0 // an API server's own
	}
	return asked, nil
}

// gzipped is the only coding in which API servers compress.
const gzipped = "gzip"

// isDocument reports whether a request asks for what the server says of itself.
func isDocument(r *http.Request) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	top, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return ok && !info.IsResourceRequest && r.Method == http.MethodGet && (top == "api" || top == "apis" || top == "openapi")
}

func accept(r *http.Request) string { return strings.Join(r.Header.Values("Accept"), ",") }

// key returns the key of an answer: the request's path and everything else that the answer depends on.
func (a *Answers) key(path string, parts ...string) string {
	digest := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(digest, "%d %s", len(part), part)
	}
	return a.prefix + path + " " + hex.EncodeToString(digest.Sum(nil))
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

// heard remembers the cloud's answer. It stores an answer to a review without the token of the request.
func (a *Answers) heard(asked question, said answer) {
	if asked.review {
		var err error
		if said, err = a.stamped(asked, said); err != nil {
			a.forget(asked.key)
			return
		}
	}
	a.remember(asked.key, said)
	if asked.given && a.cfg.Client == "" && a.cfg.Given != nil {
		if token, err := tokenRequest(said.Body); err == nil {
			a.cfg.Given(token.Status.Token)
		}
	}
}

// remember writes an answer to the disk.
func (a *Answers) remember(key string, said answer) {
	value, err := json.Marshal(said)
	if err != nil {
		return // strings and bytes always are JSON
	}
	if a.disk.PutBlob(key, value) != nil {
		a.forget(key) // an old answer would be a wrong one
	}
}

func (a *Answers) forget(key string) { a.disk.DropBlob(key) }

// forgetAt removes the answers to all GETs of a path, except one.
func (a *Answers) forgetAt(path, but string) {
	for _, key := range a.disk.Blobs(a.prefix + path + " ") {
		if key != but {
			a.forget(key)
		}
	}
}

// remembered writes the cloud's last answer. Into an answer to a TokenReview it puts the token of this request.
func (a *Answers) remembered(w http.ResponseWriter, asked question) bool {
	said, err := a.read(asked.key)
	if err != nil || !a.lasts(asked.key, said) {
		return false
	}
	if asked.token != "" {
		if said, err = withToken(said, asked.token); err != nil {
			a.forget(asked.key)
			return false
		}
	}
	h := w.Header()
	h.Set("Warning", edge.FromMemory)
	h.Set("Cache-Control", "no-cache, private")
	h.Set("Content-Type", said.ContentType)
	if said.Encoding != "" {
		h.Set("Content-Encoding", said.Encoding)
	}
	h.Set("Content-Length", strconv.Itoa(len(said.Body)))
	w.WriteHeader(said.Status)
	_, _ = w.Write(said.Body) // fails only if the client is gone
	return true
}

// read returns the answer that the disk has.
func (a *Answers) read(key string) (said answer, err error) {
	value, err := a.disk.Blob(key)
	if err == nil {
		err = json.Unmarshal(value, &said)
	}
	if err == nil && said.Status < http.StatusOK {
		err = fmt.Errorf("an answer with the status %d", said.Status)
	}
	return said, err
}

// tee keeps what is written through it, up to most bytes.
type tee struct {
	http.ResponseWriter
	most       int
	compressed bool // the answer may be compressed
	status     int
	body       bytes.Buffer
	over       bool // not all of the answer is kept
	large      bool // because the answer is longer than most
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
	t.large = t.large || t.body.Len()+n > t.most
	if t.over = t.over || err != nil || t.body.Len()+n > t.most; t.over {
		t.body = bytes.Buffer{}
	} else {
		t.body.Write(p[:n])
	}
	return n, err
}

// whole reports whether the whole answer was kept, in a coding that may be remembered.
func (t *tee) whole() bool {
	length := t.Header().Get("Content-Length")
	return !t.over && t.plain() && (length == "" || length == strconv.Itoa(t.body.Len()))
}

// plain reports whether the answer is not compressed, or is compressed as is allowed.
func (t *tee) plain() bool {
	coding := t.Header().Get("Content-Encoding")
	return coding == "" || t.compressed && coding == gzipped
}

// unfit reports whether the answer must not be remembered because it is too large or compressed.
func (t *tee) unfit() bool { return t.large || !t.plain() }

// Unwrap lets http.ResponseController reach Flush and the deadlines.
func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }
