package pool

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"yurtcoordinator/internal/pool/pooltest"
)

var idleFor = flag.Duration("idle", 20*time.Second,
	"how long BenchmarkProgram leaves the coordinator idle before it reads its memory")

// BenchmarkProgram builds the program, starts it, and reports how long it takes to be ready and to stop, and what
// memory it has idle, in units of 1024². The budgets are 1000 ready-ms, 128 rss-MB and 50 anon-MB.
//
//	go test ./internal/pool -run '^$' -bench Program -benchtime 3x
func BenchmarkProgram(b *testing.B) {
	file, size := buildProgram(b)
	var ready, stop time.Duration
	memory := map[string]float64{}
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute+*idleFor)
		p := startProgram(ctx, b, file)
		p.rest(ctx, *idleFor)
		for unit, megabytes := range p.memory(b) {
			memory[unit] += megabytes
		}
		ready, stop = ready+p.ready, stop+p.stop(b)
		cancel()
	}
	n := float64(b.N)
	b.ReportMetric(float64(ready.Milliseconds())/n, "ready-ms")
	b.ReportMetric(float64(stop.Milliseconds())/n, "stop-ms")
	for unit, sum := range memory {
		b.ReportMetric(sum/n, unit)
	}
	b.ReportMetric(float64(size)/1e6, "program-MB")
	b.ReportMetric(0, "ns/op")
}

// program is the coordinator as a process of its own.
type program struct {
	cmd     *exec.Cmd
	log     strings.Builder
	address string
	dataDir string
	ca      *pooltest.Authority
	ready   time.Duration // from its start
}

// loadGroup may do everything at a coordinator that buildProgram has built.
const loadGroup = "load"

// withLoad returns a file for go build's -overlay. With it, a coordinator has one more role, of loadGroup: all other clients may
// write next to nothing.
func withLoad(b *testing.B) string {
	b.Helper()
	file, err := filepath.Abs("access/rbac.go")
	if err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	for before, more := range map[string]string{
		"return []*rbacv1.ClusterRole{\n":        `clusterRole("load", rule([]string{"*"}, "*", "*")),`,
		"return []*rbacv1.ClusterRoleBinding{\n": `clusterRoleBinding("load", "` + loadGroup + `"),`,
	} {
		if bytes.Count(text, []byte(before)) != 1 {
			b.Fatalf("%s has not %q once", file, before)
		}
		text = bytes.Replace(text, []byte(before), []byte(before+more+"\n"), 1)
	}
	dir := b.TempDir()
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: pooltest.WriteFile(b, dir, "rbac.go", text)}})
	if err != nil {
		b.Fatal(err)
	}
	return pooltest.WriteFile(b, dir, "overlay.json", overlay)
}

// buildProgram builds the program, with a role for the load.
func buildProgram(b *testing.B) (file string, size int64) {
	b.Helper()
	if *programFile != "" {
		info, err := os.Stat(*programFile)
		if err != nil {
			b.Fatal(err)
		}
		return *programFile, info.Size()
	}
	file = filepath.Join(b.TempDir(), "yurt-coordinator")
	build := exec.CommandContext(b.Context(), "go", "build", "-tags", "grpcnotrace", "-ldflags", "-s -w",
		"-overlay", withLoad(b), "-o", file, "yurtcoordinator/cmd/yurt-coordinator")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(file)
	if err != nil {
		b.Fatal(err)
	}
	return file, info.Size()
}

// freeAddresses are addresses of this machine where nobody listens.
func freeAddresses(ctx context.Context, b *testing.B, n int) (free []string) {
	b.Helper()
	for range n {
		l, err := listen(ctx, "", loopback, "", 0)
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		free = append(free, l.Addr().String())
	}
	return free
}

func startProgram(ctx context.Context, b *testing.B, file string) *program {
	b.Helper()
	addresses := freeAddresses(ctx, b, 2)
	p := &program{address: addresses[0], ca: pooltest.NewAuthority(b, "ca"), dataDir: shortDir(b)}
	probes := addresses[1]
	config := goodConfig(b, p.ca)
	p.cmd = exec.CommandContext(ctx, file, "--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(portOf(b, p.address)), "--data-dir="+p.dataDir,
		"--probe-port="+strconv.Itoa(portOf(b, probes)),
		"--tls-cert-file="+config.TLSCertFile, "--tls-private-key-file="+config.TLSPrivateKeyFile,
		"--client-ca-file="+config.ClientCAFile, "--kubelet-certificate-authority="+config.ClientCAFile,
		"--kubelet-client-certificate="+config.TLSCertFile, "--kubelet-client-key="+config.TLSPrivateKeyFile)
	p.cmd.Stderr = &p.log
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	client := &http.Client{
		Timeout: time.Second,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
	}
	defer client.CloseIdleConnections()
	for {
		if response, err := client.Get("https://" + probes + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				p.ready = time.Since(began)
				return p
			}
		}
		if ctx.Err() != nil {
			b.Fatalf("not ready: %s", p.log.String())
		}
	}
}

func (p *program) stop(b *testing.B) time.Duration {
	b.Helper()
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		b.Fatalf("%v: %s", err, p.log.String())
	}
	return time.Since(began)
}

// rest leaves the coordinator alone for d.
func (p *program) rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// processor reads what the process has taken of processors since its start, by /proc/PID/stat, which counts in 1/100 s.
func (p *program) processor(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		b.Fatalf("%v: %s", err, p.log.String())
	}
	_, after, _ := strings.Cut(string(text), ") ") // the program's name may have spaces
	fields := strings.Fields(after)
	var ticks int
	for _, field := range fields[11:13] { // of user, of system
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// memory reads what the kernel says of the process, in units of 1024², and of its files, which are memory as well: pages
// that it has only written are in no process's RSS.
func (p *program) memory(b *testing.B) map[string]float64 {
	b.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid))
	if err != nil {
		b.Fatalf("%v: %s", err, p.log.String())
	}
	defer f.Close()
	units := map[string]string{"Rss:": "rss-MB", "Anonymous:": "anon-MB"}
	found := map[string]float64{}
	scanner := bufio.NewScanner(f)
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) < 2 || units[fields[0]] == "" {
			continue
		}
		kilobytes, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		found[units[fields[0]]] = kilobytes / 1024
	}
	err = filepath.WalkDir(p.dataDir, func(path string, _ os.DirEntry, err error) error {
		var st syscall.Stat_t
		if err == nil && syscall.Lstat(path, &st) == nil { // gone meanwhile: deleted log segments
			found["files-MB"] += float64(st.Blocks) / 2048
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return found
}
