package pool

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sys/unix"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/etcd"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
)

func TestListensOnItsPortsAndNowhereElse(t *testing.T) {
	before := listeners(t)
	c := start(t, nil)
	ports := []string{
		fmt.Sprintf("tcp 127.0.0.1:%d", portOf(t, c.address)), fmt.Sprintf("tcp 127.0.0.1:%d", portOf(t, c.probes)),
	}
	slices.Sort(ports)
	var added []string
	for _, name := range listeners(t) {
		if !slices.Contains(before, name) {
			added = append(added, name)
		}
	}
	all := slices.Concat(ports, []string{"unix " + filepath.Join(c.dataDir, "etcd-peer.sock"),
		"unix " + filepath.Join(c.dataDir, "etcd.sock")})
	if !slices.Equal(added, all) {
		t.Errorf("listens on %v, want %v", added, all)
	}
	err := filepath.WalkDir(c.dataDir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// listeners names what this process listens on: TCP ports, and unix sockets with the abstract ones among them.
func listeners(t *testing.T) []string {
	t.Helper()
	mine := map[string]bool{} // inodes
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil &&
			strings.HasPrefix(target, "socket:[") {
			mine[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	var found []string
	for _, table := range []string{"tcp", "tcp6"} {
		for _, row := range rows(t, "/proc/self/net/"+table) {
			if row[3] == "0A" && mine[row[9]] {
				host, port, _ := strings.Cut(row[1], ":")
				if host == "0100007F" {
					host = "127.0.0.1"
				}
				number, err := strconv.ParseUint(port, 16, 16)
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, fmt.Sprintf("tcp %s:%d", host, number))
			}
		}
	}
	const accepts = "00010000"
	for _, row := range rows(t, "/proc/self/net/unix") {
		if row[3] == accepts && mine[row[6]] {
			found = append(found, "unix "+strings.Join(row[7:], " "))
		}
	}
	slices.Sort(found)
	return found
}

func rows(t *testing.T, file string) [][]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var found [][]string
	scanner := bufio.NewScanner(f)
	for scanner.Scan() {
		if fields := strings.Fields(scanner.Text()); len(fields) >= 7 {
			found = append(found, fields)
		}
	}
	return found[1:]
}

func TestStopsCleanlyAndStartsEmpty(t *testing.T) {
	c := start(t, nil)
	n1 := c.as(t, pooltest.Node("n1")).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if _, err := n1.Create(t.Context(), heartbeat("n1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watch, err := n1.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	began := time.Now()
	if err := c.stop(t); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped in %s with a watch open", time.Since(began).Round(time.Millisecond))
	if took := time.Since(began); took > StopTimeout {
		t.Errorf("stopped in %s, want %s at most", took, StopTimeout)
	}
	if _, err := os.Stat(c.dataDir); !os.IsNotExist(err) {
		t.Errorf("the data directory is still there: %v", err)
	}
	// Who has told its owner of its end has yet to return.
	allowed(t, "the end of all goroutines", eventually(t.Context(), func() error {
		if left := ourGoroutines(); len(left) > 0 {
			return fmt.Errorf("still running:\n%s", strings.Join(left, "\n\n"))
		}
		return nil
	}))

	again := start(t, func(config *Config) { config.DataDir = c.dataDir })
	heartbeats := again.as(t, pooltest.Operator()).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	list, err := heartbeats.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("not empty: %+v, %v", list, err)
	}
}

// ourGoroutines are the stacks of goroutines that run this package's code, not its tests'.
func ourGoroutines() []string {
	stacks := make([]byte, 8<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var ours []string
	for _, stack := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(stack, "internal/pool.") && !strings.Contains(stack, "_test.go:") {
			ours = append(ours, stack)
		}
	}
	return ours
}

// tries pushes a Pod on top of a node's state, which it asks for, and returns the code of the answer. The coordinator may end
// meanwhile.
func tries(t *testing.T, hub *pooltest.Hub, pod *corev1.Pod) (code int, err error) {
	t.Helper()
	do := func(method, path string, header map[string]string, body io.Reader) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, hub.Base+path, body)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range header {
			r.Header.Set(k, v)
		}
		response, err := hub.Client.Do(r)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return response, errors.Join(err, response.Body.Close())
	}
	asked, err := do(http.MethodGet, edge.PathOwn, nil, nil)
	if err != nil {
		return 0, err
	}
	hub.Tag = strings.Trim(asked.Header.Get("ETag"), `"`)
	pushed, err := do(http.MethodPost, hub.On("pods"), map[string]string{
		"Content-Type": stream.Protobuf.ContentType(true),
	}, pooltest.Frames(t, pooltest.ProtobufType(pooltest.KindPod), pooltest.Put(pooltest.AsObject(t, pod))))
	if err != nil {
		return 0, err
	}
	return pushed.StatusCode, nil
}

// Who gives up waiting takes nothing away from under etcd, which would end the whole process: its files stay, as after a kill.
func TestAnEndThatTakesTooLong(t *testing.T) {
	c := start(t, func(config *Config) { config.stopTimeout = time.Nanosecond })
	if err := c.stop(t); !errors.Is(err, ErrStopTimeout) {
		t.Fatalf("stopped with %v, want %v", err, ErrStopTimeout)
	}
	c.meant = ErrStopTimeout
	database, err := os.Open(filepath.Join(c.dataDir, "etcd", "member", "snap", "db"))
	if err != nil {
		t.Fatalf("etcd's files were removed while it may still write: %v", err)
	}
	defer database.Close()
	if err := unix.Flock(int(database.Fd()), unix.LOCK_EX); err != nil { // etcd has it until its end
		t.Fatal(err)
	}
}

func TestFullEtcdEndsTheCoordinator(t *testing.T) {
	t.Parallel()
	c := start(t, func(config *Config) { config.QuotaBytes = minQuotaBytes }) // less than what hubs may push
	const size = 200 << 10
	for i := 0; ; i++ {
		n := []edge.NodeName{"n1", "n2"}[i%2]
		hub := c.hub(t, n)
		pod := &corev1.Pod{}
		if err := pod.Unmarshal(pooltest.PodOf(t, n, fmt.Sprintf("p-%d", i), 1).Raw); err != nil {
			t.Fatal(err)
		}
		pod.Annotations = map[string]string{"filler": strings.Repeat("x", size)}
		code, err := tries(t, hub, pod)
		if err != nil || code != http.StatusOK {
			t.Logf("after %d objects: %d, %v", i, code, err)
			break
		}
		if i*size > 4*minQuotaBytes {
			t.Fatal("etcd holds more than its quota")
		}
	}
	err := c.wait(t)
	if !errors.Is(err, etcd.ErrNoSpace) || !strings.Contains(err.Error(), "--etcd-quota-bytes") {
		t.Errorf("got %v, want ErrNoSpace, and what to do", err)
	}
	again := start(t, func(config *Config) { config.QuotaBytes, config.DataDir = minQuotaBytes, c.dataDir })
	list, err := again.as(t, pooltest.Operator()).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("started again, it is not empty: %d Pods, %v", len(list.Items), err)
	}
}
