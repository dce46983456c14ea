package audit

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
)

const (
	// auditFileMB is the size at which the file is moved aside. Both files together take at most twice that.
	auditFileMB = 10
	// refusalsPerSecond and refusalBurst bound what a caller that loops on refusals can write.
	refusalsPerSecond = 10
	refusalBurst      = 50
	// maxAuditField bounds, in bytes, each value from a caller in a line. maxAuditCommand bounds the words of a
	// command.
	maxAuditField   = 512
	maxAuditCommand = 20
	// maxKept bounds, in bytes, each value that a Keeper gets.
	maxKept = 200
)

// Line is what is kept of a request: who, what, from where. It never holds a header or a body, and of a query only the
// fields below. The content of streams is never logged.
type Line struct {
	Time      time.Time `json:"time"`
	Event     string    `json:"event"` // "refused", or "opened" for a stream into a container
	Code      int       `json:"code,omitempty"`
	User      string    `json:"user,omitempty"`
	Claimed   string    `json:"claimedSubject,omitempty"` // subject of a certificate that was refused
	Verb      string    `json:"verb"`
	Path      string    `json:"path"`
	Container string    `json:"container,omitempty"` // of a stream, if the caller named it
	Command   []string  `json:"command,omitempty"`   // of an exec that was allowed
	Source    string    `json:"source"`
	// Certificate is the client certificate's digest, as --denied-users-file takes it.
	Certificate string `json:"certificate,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Suppressed  int    `json:"suppressed,omitempty"` // refusals before this one that the rate limit left out
}

// logged is a Line among those of the program's log, which a collector of logs knows by these fields.
type logged struct {
	TS  float64 `json:"ts"` // milliseconds since 1970
	V   int     `json:"v"`
	Msg string  `json:"msg"`
	Line
}

func (l Line) logged() logged {
	return logged{TS: float64(l.Time.UnixMicro()) / 1000, Msg: "Audit: " + l.Event, Line: l}
}

// Keeper keeps who opened what until it was told elsewhere. It hears of each stream, also of those that the Log counts only.
type Keeper interface {
	// Opened notes a stream that was let in. The Log calls ended when it is over.
	Opened(a edge.Attempt) (ended func())
	Refused(a edge.Attempt)
}

// Log writes one line per event. Its methods may be called concurrently.
type Log struct {
	clock  clock.PassiveClock
	keeper Keeper
	limit  *rate.Limiter
	inLog  bool // the lines are among those of the program's log

	mu         sync.Mutex // also keeps lines whole
	out        io.WriteCloser
	suppressed int
}

// New returns a Log that writes to path; "-" is stderr, where each line also has the fields of Kubernetes' logs in JSON. The
// first line creates the file.
func New(path string, c clock.PassiveClock, keeper Keeper) *Log {
	var out io.WriteCloser = unclosed{os.Stderr}
	if path != "-" {
		out = &lumberjack.Logger{Filename: path, MaxSize: auditFileMB, MaxBackups: 1}
	}
	return &Log{
		clock: c, keeper: keeper, limit: rate.NewLimiter(refusalsPerSecond, refusalBurst), inLog: path == "-", out: out,
	}
}

type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Close()
}

// Refused writes a line about a refused request, or counts it in the next line.
func (l *Log) Refused(ctx context.Context, line Line) {
	if !l.limit.AllowN(l.clock.Now(), 1) {
		l.mu.Lock()
		l.suppressed++
		l.mu.Unlock()
		return
	}
	line.Event = "refused"
	l.write(ctx, line)
}

func (l *Log) opened(ctx context.Context, line Line) {
	line.Event = "opened"
	l.write(ctx, line)
}

func (l *Log) write(ctx context.Context, line Line) {
	line.Time = l.clock.Now().UTC()
	line.User, line.Claimed = shortened(line.User), shortened(line.Claimed)
	line.Path, line.Reason = shortened(line.Path), shortened(line.Reason)
	line.Container, line.Command = shortened(line.Container), shortenedAll(line.Command)
	l.mu.Lock()
	defer l.mu.Unlock()
	if line.Event == "refused" {
		line.Suppressed, l.suppressed = l.suppressed, 0
	}
	var entry any = line
	if l.inLog {
		entry = line.logged()
	}
	text, err := json.Marshal(entry)
	if err == nil {
		_, err = l.out.Write(append(text, '\n'))
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to write to --audit-log-path; a line is lost", "event", line.Event,
			"code", line.Code, "user", line.User, "verb", line.Verb, "path", line.Path)
	}
}

func shortened(s string) string { return cut(s, maxAuditField) }

func cut(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func shortenedAll(words []string) []string {
	more := len(words) - maxAuditCommand
	if more > 0 {
		words = append(slices.Clone(words[:maxAuditCommand]), fmt.Sprintf("… and %d more", more))
	}
	for i, w := range words {
		words[i] = shortened(w)
	}
	return words
}

// Noting wraps an authenticator so that the audit log learns who calls, or why that is unknown. It keeps the error in
// that log: the handler chain would also write it to stderr, as often as the caller tries.
func Noting(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := inner.AuthenticateRequest(r)
		switch {
		case err != nil:
			exchange.Explain(r.Context(), err)
			return nil, false, nil
		case !ok:
			exchange.Explain(r.Context(), ErrNoCertificate)
		default:
			exchange.NoteUser(r.Context(), response.User.GetName())
		}
		return response, ok, nil
	})
}

// LogRefusals is the outermost handler. It logs every request that was answered 401 or 403, and tells the caller of a
// 401 the reason, and hint.
func (l *Log) LogRefusals(next http.Handler, resolver request.RequestInfoResolver, hint string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, found := exchange.WithFindings(r.Context())
		recorder := &codeRecorder{ResponseWriter: w, why: found.Reason, hint: hint}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(recorder), r.WithContext(ctx))
		code := recorder.status()
		if code != http.StatusUnauthorized && code != http.StatusForbidden {
			return
		}
		line := Line{Code: code, User: found.User(), Reason: found.Reason()}
		if line.User == "" && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			line.Claimed = r.TLS.PeerCertificates[0].Subject.String()
		}
		line, info := about(r, line, resolver)
		if line.User != "" && isStream(info) {
			l.keeper.Refused(attempt(r, line, info))
		}
		l.Refused(r.Context(), line)
	})
}

// LogStreams stands right before the API. It logs every allowed stream into a container.
func (l *Log) LogStreams(next http.Handler, resolver request.RequestInfoResolver) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && isStream(info) {
			line := Line{Container: r.URL.Query().Get("container")} // kube-apiserver takes it from there as well
			if info.Subresource == "exec" {
				line.Command = r.URL.Query()["command"]
			}
			if user, ok := request.UserFrom(r.Context()); ok {
				line.User = user.GetName()
			}
			line, _ = about(r, line, resolver)
			l.opened(r.Context(), line)
			defer l.keeper.Opened(attempt(r, line, info))()
		}
		next.ServeHTTP(w, r)
	})
}

// isStream reports whether a request is for a stream into a container.
func isStream(info *request.RequestInfo) bool {
	return info != nil && info.IsResourceRequest && slices.Contains([]string{"exec", "attach", "portforward"}, info.Subresource)
}

// attempt is what a Keeper hears of a stream: of its command the first word, because arguments can be secrets.
func attempt(r *http.Request, line Line, info *request.RequestInfo) edge.Attempt {
	a := edge.Attempt{
		User: line.User, Certificate: line.Certificate, Source: line.Source, Stream: info.Subresource,
		Namespace: info.Namespace, Pod: info.Name, Container: r.URL.Query().Get("container"), Reason: line.Reason,
	}
	if host, _, err := net.SplitHostPort(line.Source); err == nil {
		a.Source = host
	}
	if command := strings.Fields(r.URL.Query().Get("command")); info.Subresource == "exec" && len(command) > 0 {
		a.Program = command[0]
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		shown := r.TLS.PeerCertificates[0]
		a.Groups, a.Serial = strings.Join(shown.Subject.Organization, ","), shown.SerialNumber.Text(16)
	}
	for _, text := range []*string{&a.User, &a.Groups, &a.Namespace, &a.Pod, &a.Container, &a.Program, &a.Reason} {
		*text = cut(*text, maxKept)
	}
	return a
}

func about(r *http.Request, line Line, resolver request.RequestInfoResolver) (Line, *request.RequestInfo) {
	line.Verb, line.Path, line.Source = strings.ToLower(r.Method), r.URL.Path, r.RemoteAddr
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		line.Certificate = fmt.Sprintf("X509SHA256=%x", sha256.Sum256(r.TLS.PeerCertificates[0].Raw))
	}
	info, err := resolver.NewRequestInfo(r)
	if err != nil {
		return line, nil
	}
	line.Verb = info.Verb
	return line, info
}

// codeRecorder remembers the answer's status, and adds the reason to a bare 401. The chain's own timeout may answer
// from another goroutine than the waiting one, but never after the handler has returned.
type codeRecorder struct {
	http.ResponseWriter
	why  func() string
	hint string

	mu      sync.Mutex
	code    int
	instead bool // the body is written
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (c *codeRecorder) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (c *codeRecorder) WriteHeader(code int) {
	why := ""
	c.mu.Lock()
	if c.code == 0 {
		c.code = code
		if code == http.StatusUnauthorized {
			why = c.why()
		}
	}
	c.instead = c.instead || why != ""
	c.mu.Unlock()
	if why == "" {
		c.ResponseWriter.WriteHeader(code)
		return
	}
	c.Header().Del("Content-Length")
	c.Header().Del("Content-Encoding")
	a := &exchange.Reply{ResponseWriter: c.ResponseWriter}
	a.Refuse(context.Background(), exchange.Refused(code, "%s; %s", shortened(why), c.hint))
}

// Write implements http.ResponseWriter.
func (c *codeRecorder) Write(p []byte) (int, error) {
	c.mu.Lock()
	instead := c.instead
	c.mu.Unlock()
	if instead {
		return len(p), nil
	}
	return c.ResponseWriter.Write(p)
}

func (c *codeRecorder) status() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.code
}

// ErrNoCertificate is why a caller without a client certificate is refused.
var ErrNoCertificate = fmt.Errorf("the caller showed no client certificate, and tokens are not accepted")
