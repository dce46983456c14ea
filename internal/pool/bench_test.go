package pool

import (
	"bufio"
	"context"
	"crypto/tls"
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
)

var idleFor = flag.Duration("idle", 20*time.Second,
	"how long BenchmarkProgram leaves the coordinator idle before it reads its memory")

// BenchmarkProgram builds the program, starts it, and reports how long it takes to be ready and to stop, and what
// memory it has idle, in units of 1024². The budgets are 1000 ready-ms, 128 rss-MB and 50 anon-MB.
//
//	go test ./internal/pool -run '^$' -bench Program -benchtime 3x
func BenchmarkProgram(b *testing.B) {
	dir := b.TempDir()
	program := filepath.Join(dir, "yurt-coordinator")
	build := exec.CommandContext(b.Context(), "go", "build", "-tags", "grpcnotrace", "-trimpath", "-ldflags", "-s -w",
		"-o", program, "yurtcoordinator/cmd/yurt-coordinator")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(program)
	if err != nil {
		b.Fatal(err)
	}
	config := goodConfig(b, newAuthority(b, "ca"))

	var ready, stop time.Duration
	memory := map[string]float64{}
	for b.Loop() {
		r, s := runOnce(b, program, config, memory)
		ready, stop = ready+r, stop+s
	}
	n := float64(b.N)
	b.ReportMetric(float64(ready.Milliseconds())/n, "ready-ms")
	b.ReportMetric(float64(stop.Milliseconds())/n, "stop-ms")
	for unit, sum := range memory {
		b.ReportMetric(sum/n, unit)
	}
	b.ReportMetric(float64(info.Size())/1e6, "program-MB")
	b.ReportMetric(0, "ns/op")
}

func runOnce(b *testing.B, program string, config Config, memory map[string]float64) (ready, stop time.Duration) {
	b.Helper()
	free, err := listen(b.Context(), "127.0.0.1", 0)
	if err != nil {
		b.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()

	ctx, cancel := context.WithTimeout(b.Context(), time.Minute+*idleFor)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(portOf(b, address)),
		"--tls-cert-file="+config.TLSCertFile, "--tls-private-key-file="+config.TLSPrivateKeyFile,
		"--client-ca-file="+config.ClientCAFile)
	var log strings.Builder
	cmd.Stderr = &log
	began := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	client := &http.Client{
		Timeout: time.Second,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
	}
	for {
		if response, err := client.Get("https://" + address + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
		}
		if ctx.Err() != nil {
			b.Fatalf("not ready: %s", log.String())
		}
	}
	ready = time.Since(began)
	client.CloseIdleConnections()

	select {
	case <-time.After(*idleFor):
	case <-ctx.Done():
	}
	for unit, kilobytes := range memoryOf(b, cmd.Process.Pid) {
		memory[unit] += kilobytes / 1024
	}
	began = time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		b.Fatalf("%v: %s", err, log.String())
	}
	return ready, time.Since(began)
}

// memoryOf reads what the kernel says of a process, in KB by unit.
func memoryOf(b *testing.B, pid int) map[string]float64 {
	b.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	units := map[string]string{"Rss:": "rss-MB", "Anonymous:": "anon-MB", "Pss:": "pss-MB"}
	found := map[string]float64{}
	scanner := bufio.NewScanner(f)
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) < 2 || units[fields[0]] == "" {
			continue
		}
		if found[units[fields[0]]], err = strconv.ParseFloat(fields[1], 64); err != nil {
			b.Fatal(err)
		}
	}
	return found
}
