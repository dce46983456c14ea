package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"yurtcoordinator/internal/run"
	"yurtcoordinator/lab/build"
	"yurtcoordinator/lab/wire"
)

// order is the input of the lab's own process.
type order struct {
	Config   Config         `json:"config"`
	Binaries build.Binaries `json:"binaries"`
	Images   Images         `json:"images"`
}

// Step is a line of progress while a lab boots; the last one has Done or Error.
type Step struct {
	At    time.Duration `json:"at"` // since the start
	Text  string        `json:"text,omitempty"`
	Done  bool          `json:"done,omitempty"`
	Error string        `json:"error,omitempty"`
}

// supervise is the lab's own process: pid 1 of the lab's namespaces. It returns when the lab is down.
func supervise(dir string) error {
	content, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(content, &o); err != nil {
		return fmt.Errorf("%s: %w", configFile, err)
	}
	if err := ownMounts(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	// What runs here may have to be restarted, so a newer build meanwhile must not prune it.
	release, err := o.Binaries.Hold()
	if err != nil {
		return err
	}
	defer func() { _ = release() }() // the process ends, and the hold with it

	l := newLab(o.Config, dir, o.Binaries, o.Images)
	s := &server{lab: l, log: newSteps(), stop: stop}
	listeners, err := s.listen(dir)
	if err != nil {
		return err
	}
	go s.boot(ctx)
	go s.serveDials(ctx, listeners.dial)
	srv := &http.Server{Handler: s.routes(ctx), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		l.down()
		_ = srv.Close() // the process ends with it
	}()
	if err := srv.Serve(listeners.api); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ownMounts hides the host's /proc and /run from the lab, and the lab's mounts from the host.
func ownMounts() error {
	for _, m := range []struct {
		source, target, fstype string
		flags                  uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV},
	} {
		if err := unix.Mount(m.source, m.target, m.fstype, m.flags, ""); err != nil {
			return refused(fmt.Errorf("mount %s: %w", m.target, err))
		}
	}
	return nil
}

type server struct {
	lab  *Lab
	log  *steps
	stop func()
}

type listeners struct{ api, dial net.Listener }

func (s *server) listen(dir string) (listeners, error) {
	api, err := net.Listen("unix", filepath.Join(dir, socketFile))
	if err != nil {
		return listeners{}, err
	}
	dial, err := net.Listen("unix", filepath.Join(dir, dialFile))
	if err != nil {
		return listeners{}, errors.Join(err, api.Close())
	}
	return listeners{api, dial}, nil
}

func (s *server) boot(ctx context.Context) {
	bootCtx, cancel := context.WithTimeoutCause(ctx, s.lab.cfg.bootTimeout(),
		errors.New("the lab took too long to boot"))
	defer cancel()
	err := s.lab.begin(ctx)
	if err == nil {
		err = s.lab.boot(bootCtx, s.log.add)
	}
	s.log.end(err)
}

func (s *server) routes(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /boot", s.log.stream)
	mux.HandleFunc("GET /status", s.whenBooted(func(w http.ResponseWriter, r *http.Request) (any, error) {
		return s.lab.Status(r.Context()), nil
	}))
	mux.HandleFunc("GET /traffic", s.whenBooted(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return s.lab.Traffic(r.URL.Query().Has("since-mark")), nil
	}))
	mux.HandleFunc("POST /mark", s.whenBooted(func(http.ResponseWriter, *http.Request) (any, error) {
		s.lab.MarkTraffic()
		return nil, nil
	}))
	mux.HandleFunc("POST /link", s.whenBooted(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return nil, s.link(r)
	}))
	mux.HandleFunc("POST /shape", s.whenBooted(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return nil, s.shape(r)
	}))
	mux.HandleFunc("POST /node", s.whenBooted(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		q := r.URL.Query()
		return nil, s.lab.Node(r.Context(), Action(q.Get("action")), q.Get("node"), Component(q.Get("component")))
	}))
	mux.HandleFunc("POST /output", s.whenBooted(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		q := r.URL.Query()
		return s.lab.Output(r.Context(), q.Get("node"), q["arg"])
	}))
	mux.HandleFunc("POST /cloud", s.whenBooted(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		q := r.URL.Query()
		return nil, s.lab.Cloud(r.Context(), Action(q.Get("action")), Component(q.Get("component")), q["flag"])
	}))
	mux.HandleFunc("GET /pid", s.whenBooted(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return s.pid(r.URL.Query().Get("machine"))
	}))
	mux.HandleFunc("POST /cluster", s.whenBooted(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return nil, s.lab.follow(ctx, r.Context())
	}))
	s.coordinatorRoutes(mux)
	s.formerRoute(mux)
	mux.HandleFunc("POST /down", func(http.ResponseWriter, *http.Request) { s.stop() })
	return mux
}

func (s *server) link(r *http.Request) error {
	q := r.URL.Query()
	network, err := ParseNetwork(q.Get("network"))
	if err != nil {
		return err
	}
	fault := wire.None
	if mode := q.Get("mode"); mode != "" {
		if fault, err = wire.ParseFault(mode); err != nil {
			return err
		}
	}
	return s.lab.Link(network, q.Get("target"), fault)
}

func (s *server) shape(r *http.Request) error {
	q := r.URL.Query()
	network, err := ParseNetwork(q.Get("network"))
	if err != nil {
		return err
	}
	if !q.Has("shape") {
		return s.lab.Unshape(network, q.Get("target"))
	}
	var shape LinkShape
	if err := json.Unmarshal([]byte(q.Get("shape")), &shape); err != nil {
		return err
	}
	return s.lab.Shape(network, q.Get("target"), shape)
}

// pid returns a machine's first process, as numbered in the lab.
func (s *server) pid(name string) (int, error) {
	s.lab.mu.Lock()
	defer s.lab.mu.Unlock()
	h, ok := s.lab.hosts[name]
	switch {
	case !ok:
		return 0, fmt.Errorf("no machine %q in this lab", name)
	case h.machine == nil:
		return 0, fmt.Errorf("%s has no power", name)
	}
	return h.machine.PID, nil
}

// whenBooted refuses orders before the lab is up, and answers in JSON.
func (s *server) whenBooted(f func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.log.booted() {
			http.Error(w, "the lab is not up yet", http.StatusConflict)
			return
		}
		out, err := f(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		_ = json.NewEncoder(w).Encode(out) // on failure the caller is gone
	}
}

// serveDials serves connections into the lab. A caller sends "MACHINE ADDRESS" in one line, gets "ok" or the error in one line,
// and then has the connection. The machine "-" means the lab itself, which is on every switch.
func (s *server) serveDials(ctx context.Context, l net.Listener) {
	var all sync.WaitGroup
	defer all.Wait()
	context.AfterFunc(ctx, func() { l.Close() })
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, for example
			fmt.Fprintln(os.Stderr, "yurtlab: accept a connection into the lab:", err)
			_ = run.Pause(ctx, time.Second) // the next Accept fails once ctx has ended
			continue
		}
		all.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			s.serveDial(ctx, conn)
		})
	}
}

func (s *server) serveDial(ctx context.Context, conn net.Conn) {
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	name, address, _ := strings.Cut(strings.TrimSpace(line), " ")
	there, err := s.dial(ctx, name, address)
	if err != nil {
		fmt.Fprintln(conn, err)
		return
	}
	defer there.Close()
	if _, err := fmt.Fprintln(conn, dialOK); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { splice(there, in, conn) })
	both.Go(func() { splice(conn, there, there) })
	both.Wait()
}

const (
	dialOK = "ok"
	// dialTimeout bounds a connection attempt into the lab.
	dialTimeout = 10 * time.Second
)

// splice copies until the source ends, then tells the sink that nothing more comes. If the sink is gone, it closes the source's
// connection, because nobody reads what the source sends.
func splice(to net.Conn, from io.Reader, source net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_, _ = to.Close(), source.Close()
}

func (s *server) dial(ctx context.Context, name, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if name == "-" {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	pid, err := s.pid(name)
	if err != nil {
		return nil, err
	}
	return dialInside(ctx, pid, address)
}

// steps is the record of a boot. Any number of callers can follow it.
type steps struct {
	start time.Time
	mu    sync.Mutex
	all   []Step
	more  chan struct{} // closed when all has grown
}

func newSteps() *steps { return &steps{start: time.Now(), more: make(chan struct{})} }

func (s *steps) add(text string) { s.append(Step{Text: text}) }

func (s *steps) end(err error) {
	if err != nil {
		s.append(Step{Error: err.Error()})
		return
	}
	s.append(Step{Done: true})
}

// append adds a step. It drops steps after the end of the boot, because the cloud may be powered on again later.
func (s *steps) append(step Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.all); n > 0 && (s.all[n-1].Done || s.all[n-1].Error != "") {
		return
	}
	step.At = time.Since(s.start)
	s.all = append(s.all, step)
	close(s.more)
	s.more = make(chan struct{})
}

func (s *steps) booted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) > 0 && s.all[len(s.all)-1].Done
}

// stream sends every step as a line of JSON, until the last.
func (s *steps) stream(w http.ResponseWriter, r *http.Request) {
	out := json.NewEncoder(w)
	for next := 0; ; {
		s.mu.Lock()
		news, more := s.all[next:], s.more
		s.mu.Unlock()
		for _, step := range news {
			if out.Encode(step) != nil || step.Done || step.Error != "" {
				return
			}
		}
		next += len(news)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}
