package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

// loadEnv is the environment variable with a child's load. Each measurement runs in a process of its own, as a hub does, because
// what one leaves in memory would count in the next.
const loadEnv = "SAVER_BENCH_LOAD"

// TestUnderLoad checks that all of a rolling update is on the disk in the end. BenchmarkDisk runs it in a process of its own,
// with more load, to measure the cost.
func TestUnderLoad(t *testing.T) {
	l := load{Dir: t.TempDir(), PerSecond: 50, Events: 2000, Scattered: true}
	if raw := os.Getenv(loadEnv); raw != "" {
		l = load{}
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			t.Fatal(err)
		}
	}
	if l.Profile != "" {
		f, err := os.Create(l.Profile)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			t.Fatal(err)
		}
		defer pprof.StopCPUProfile()
	}
	// In simulated time: a minute of a quiet cluster takes none.
	synctest.Test(t, l.run)
}

// load is a rolling update, and where to keep it.
type load struct {
	Dir       string // empty: no disk
	PerSecond int
	Events    int
	Scattered bool   // not in the order of the names
	Profile   string // a file; empty: none
}

// cost is what it took.
type cost struct {
	CPU             time.Duration
	Written, Writes int64
	RSS, Anonymous  int64
}

const (
	benchSlices    = 1000
	benchEndpoints = 50
)

// benchSlice is an EndpointSlice as the lab's load makes it, 7 KB of it.
func benchSlice(i int) *discoveryv1.EndpointSlice {
	yes, no, node := true, false, "n1"
	name, number, protocol := "http", int32(8080), corev1.ProtocolTCP
	service := fmt.Sprintf("load-%05d", i)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: service + "-000", Namespace: "load", GenerateName: service + "-",
			UID: types.UID(fmt.Sprintf("6f1d0c9e-0000-4000-9000-%012d", i)),
			Labels: map[string]string{
				discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "load", "app": service,
			},
			Annotations: map[string]string{"load/sequence": benchNumber(0)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &number, Protocol: &protocol}},
	}
	for e := range benchEndpoints {
		n := i*benchEndpoints + e
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("172.%d.%d.%d", 16+n>>16, n>>8&255, n&255)},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: "load", Name: fmt.Sprintf("%s-7f9c6d5b48-%07d", service, n),
				UID: types.UID(fmt.Sprintf("6f1d0c9e-0000-4000-8000-%012d", n)),
			},
			NodeName: &node, Zone: &node,
		})
	}
	return s
}

func benchNumber(n int) string { return fmt.Sprintf("sequence-%012d", n) }

// run prints what the load has cost, and checks that the disk has all of it in the end.
func (l load) run(t *testing.T) {
	r := replica.New(replica.Config{Resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices")})
	begin := benchContent(t)
	replace(t, r, begin)
	id := store.Collection{Resource: r.Resource()}
	stop := func() {}
	if l.Dir != "" {
		stop = l.keep(t, id, r)
	}
	time.Sleep(time.Minute)
	debug.FreeOSMemory()
	before := l.count(t)
	l.roll(t, r, begin.Objects)
	c := l.count(t)
	c.CPU -= before.CPU
	c.Written -= before.Written
	c.Writes -= before.Writes
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("cost %s\n", out)
	synctest.Wait()
	stop()
	if l.Dir == "" {
		return
	}
	disk, err := store.Open(store.Config{Dir: l.Dir})
	if err != nil {
		t.Fatal(err)
	}
	got, err := disk.Load(id)
	if err := errors.Join(err, disk.Close()); err != nil {
		t.Fatal(err)
	}
	want, err := r.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Type != want.Type || got.Revision != want.Revision || !slices.EqualFunc(got.Objects, want.Objects, sameObject) {
		t.Errorf("the disk has %d objects at %s, or others; want those at %s", len(got.Objects), got.Revision, want.Revision)
	}
}

func sameObject(a, b stream.Object) bool {
	return a.Key == b.Key && a.Revision == b.Revision && bytes.Equal(a.Raw, b.Raw)
}

// keep keeps a replica on the disk until the function that it returns is called.
func (l load) keep(t *testing.T, id store.Collection, r *replica.Replica) (stop func()) {
	t.Helper()
	disk, err := store.Open(store.Config{Dir: l.Dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var owned sync.WaitGroup
	owned.Go(func() {
		if err := disk.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	s := NewSaver(disk, id, r, ends.Chance{})
	owned.Go(func() { s.Run(ctx) })
	return func() {
		cancel()
		owned.Wait()
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	}
}

func benchContent(t *testing.T) stream.Snapshot {
	t.Helper()
	s := stream.Snapshot{
		Type: stream.Type{
			GroupVersionKind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), Encoding: stream.Protobuf,
		},
		Revision: benchSlices,
	}
	for i := range benchSlices {
		o := benchSlice(i)
		raw, err := o.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		s.Objects = append(s.Objects, stream.Object{
			Key: stream.Key{Namespace: o.Namespace, Name: o.Name}, Revision: edge.Revision(i + 1), Raw: raw,
		})
	}
	return s
}

// roll changes one object after the other.
func (l load) roll(t *testing.T, r *replica.Replica, all []stream.Object) {
	for n := range l.Events {
		time.Sleep(time.Second / time.Duration(l.PerSecond))
		i := n % len(all)
		if l.Scattered {
			i = n * 617 % len(all)
		}
		o := &all[i]
		raw := append([]byte(nil), o.Raw...)
		at := strings.Index(string(raw[:1000]), "sequence-0")
		copy(raw[at:], benchNumber(n))
		o.Raw, o.Revision = raw, edge.Revision(benchSlices+n+1)
		apply(t, r, stream.Modified, *o)
	}
}

// count reads what the process has taken until now.
func (l load) count(t *testing.T) cost {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	io, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	c := cost{
		CPU:     time.Duration(used.Utime.Nano() + used.Stime.Nano()),
		Written: field(t, string(io), "wchar:"), Writes: field(t, string(io), "syscw:"),
		RSS:       field(t, string(memory), "VmRSS:") << 10,
		Anonymous: field(t, string(memory), "RssAnon:") << 10,
	}
	return c
}

func field(t *testing.T, text, name string) int64 {
	t.Helper()
	_, rest, _ := strings.Cut(text, name)
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// BenchmarkDisk measures what the disk costs a hub while 1000 EndpointSlices of 50 endpoints change. It runs the same load with
// and without the disk, each in a process of its own with one processor. Time is simulated, because real time would be a quarter
// of an hour; the syncs of files are real. SAVER_BENCH_PROFILE is a directory for profiles.
func BenchmarkDisk(b *testing.B) {
	const events = 20_000
	for _, each := range []load{
		{PerSecond: 20, Events: events}, {PerSecond: 140, Events: events}, {PerSecond: 140, Events: events, Scattered: true},
	} {
		for _, disk := range []bool{false, true} {
			name := fmt.Sprintf("rate=%d/scattered=%t/disk=%t", each.PerSecond, each.Scattered, disk)
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					l := each
					if disk {
						l.Dir = b.TempDir()
					}
					if p := os.Getenv("SAVER_BENCH_PROFILE"); p != "" {
						l.Profile = filepath.Join(p, strings.ReplaceAll(name, "/", ",")+".pprof")
					}
					l.measure(b).report(b, events/1000)
				}
			})
		}
	}
}

func (c cost) report(b *testing.B, thousands float64) {
	b.Helper()
	b.ReportMetric(c.CPU.Seconds()*1000/thousands, "ms-CPU/1000")
	b.ReportMetric(float64(c.Written)/1e6/thousands, "MB-written/1000")
	b.ReportMetric(float64(c.Writes)/thousands, "writes/1000") // each is followed by a sync, but for those of a compaction
	b.ReportMetric(float64(c.RSS)/1e6, "MB-RSS")
	b.ReportMetric(float64(c.Anonymous)/1e6, "MB-anon")
}

func (l load) measure(b *testing.B) (c cost) {
	b.Helper()
	raw, err := json.Marshal(l)
	if err != nil {
		b.Fatal(err)
	}
	child := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestUnderLoad$", "-test.v")
	child.Env = append(os.Environ(), loadEnv+"="+string(raw), "GOMAXPROCS=1")
	child.Stderr = os.Stderr
	out, err := child.Output()
	_, said, _ := strings.Cut(string(out), "cost ")
	said, _, _ = strings.Cut(said, "\n")
	if err == nil {
		err = json.Unmarshal([]byte(said), &c)
	}
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return c
}
