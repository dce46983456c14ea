// Package cloudtest runs the cloud's controllers against a real API server. kube-apiserver and etcd run as
// subprocesses, with our CRDs and without Kubernetes' controllers.
//
// The start takes seconds. A package whose tests share one server has
//
//	func TestMain(m *testing.M) { os.Exit(cloudtest.Main(m)) }
//
// and its tests use separate namespaces and names. The server starts with the first test that asks for it.
package cloudtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// assets names the directory with kube-apiserver and etcd. controller-runtime's own tools use the same name.
	assets = "KUBEBUILDER_ASSETS"

	// startTimeout and stopTimeout allow for a machine that is busy with other tests.
	startTimeout, stopTimeout = 2 * time.Minute, 30 * time.Second

	crds = "deploy/charts/yurt-coordinator/files/crds"
)

// Option changes how a server starts.
type Option func(*options)

type options struct {
	withoutCRDs bool
	flags       map[string][]string
}

// WithoutCRDs leaves our CRDs out.
func WithoutCRDs() Option { return func(o *options) { o.withoutCRDs = true } }

// Flag sets a flag of kube-apiserver in place of its default; name has no dashes.
func Flag(name string, values ...string) Option {
	return func(o *options) { o.flags[name] = values }
}

// shared is the server of the package under test. It is package state because TestMain can hand nothing else to tests.
var shared struct {
	mu     sync.Mutex
	inMain bool // between the start and the end of Main
	env    *envtest.Environment
	err    error
}

// Main runs a package's tests, which share one server, and returns the exit status.
func Main(m *testing.M) int {
	shared.mu.Lock()
	shared.inMain = true
	shared.mu.Unlock()
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.inMain = false
	if shared.env != nil {
		if err := shared.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
			return max(code, 1)
		}
	}
	return code
}

// Start returns an administrator's (system:masters) configuration for an API server. Without options, and if TestMain calls
// Main, that is the server that the package's tests share. Otherwise it is a new server, which stops when the test ends.
func Start(t testing.TB, opts ...Option) *rest.Config {
	t.Helper()
	if cfg := startShared(t, len(opts) > 0); cfg != nil {
		return cfg
	}
	env, err := start(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	return rest.CopyConfig(env.Config)
}

// startShared returns nil if the test needs its own server.
func startShared(t testing.TB, own bool) *rest.Config {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if own || !shared.inMain {
		return nil
	}
	if shared.env == nil && shared.err == nil {
		shared.env, shared.err = start()
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return rest.CopyConfig(shared.env.Config)
}

func start(opts ...Option) (*envtest.Environment, error) {
	o := options{flags: make(map[string][]string)}
	for _, opt := range opts {
		opt(&o)
	}
	log.SetLogger(logr.Discard()) // otherwise the library complains after a while that no logger was set
	env := &envtest.Environment{
		ControlPlaneStartTimeout: startTimeout, ControlPlaneStopTimeout: stopTimeout, ErrorIfCRDPathMissing: true,
	}
	server := env.ControlPlane.GetAPIServer()
	env.ControlPlane.Etcd = &envtest.Etcd{}
	wrappers, err := os.MkdirTemp("", "cloudtest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(wrappers) }() // a running script has already been read
	for name, path := range map[string]*string{"kube-apiserver": &server.Path, "etcd": &env.ControlPlane.Etcd.Path} {
		if *path, err = program(wrappers, name); err != nil {
			return nil, err
		}
	}
	for name, values := range o.flags {
		server.Configure().Set(name, values...)
	}
	if !o.withoutCRDs {
		root, err := moduleRoot()
		if err != nil {
			return nil, err
		}
		env.CRDDirectoryPaths = []string{filepath.Join(root, crds)}
	}
	said := &tail{}
	server.Err, env.ControlPlane.Etcd.Err = said, said
	if _, err := env.Start(); err != nil {
		_ = env.Stop() // one of the two may have started; the first error counts
		return nil, fmt.Errorf("start an API server: %w; its last words:\n%s", err, said)
	}
	return env, nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

const tailSize = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	t.last = t.last[max(0, len(t.last)-tailSize):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}

// program returns the path of a program of Kubernetes. If setpriv is installed, it is the path of a script that makes the
// program end with the test's process. So even a test that is killed, or that `go test` ends after its timeout, leaves nothing
// behind.
func program(dir, name string) (string, error) {
	bin := os.Getenv(assets)
	if bin == "" {
		return "", fmt.Errorf("%s is not set: run `make unit`, or export %[1]s=$(bin/yurtlab build --print kubernetes)", assets)
	}
	path := filepath.Join(bin, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s must be a directory that has %s, as `bin/yurtlab build --print kubernetes` prints it: %w",
			assets, name, err)
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		return path, nil //nolint:nilerr // not every system has it
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %q --pdeathsig KILL %q \"$@\"\n", setpriv, path)
	wrapper := filepath.Join(dir, name)
	return wrapper, os.WriteFile(wrapper, []byte(script), 0o700)
}

// moduleRoot returns the directory that has go.mod: tests run in their package's directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.mod above the working directory: run the test from the source tree")
		}
		dir = parent
	}
}
