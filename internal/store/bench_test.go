package store

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

func bench5000(b *testing.B) string {
	dir := b.TempDir()
	s := opening(b, Config{Dir: dir}, nil)
	replace(b, s, slicesID, snapshotOf(5000, 2000, 5))
	flush(b, s)
	_ = s.Close()
	return dir
}

// BenchmarkOpenAndLoad is a hub's start with 5000 objects of 2 KB: all is verified, and one client's view is read.
func BenchmarkOpenAndLoad(b *testing.B) {
	dir := bench5000(b)
	b.ReportAllocs()
	for b.Loop() {
		s, err := Open(Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		if got, err := s.Load(slicesID); err != nil || len(got.Objects) != 5000 {
			b.Fatal(len(got.Objects), err)
		}
		_ = s.Close()
	}
}

// BenchmarkReplaceSame is what a feeder costs that has to begin anew: nothing is written but the header.
func BenchmarkReplaceSame(b *testing.B) {
	s := opening(b, Config{Dir: bench5000(b)}, nil)
	snapshot := snapshotOf(5000, 2000, 5)
	b.ReportAllocs()
	for b.Loop() {
		snapshot.Revision++
		replace(b, s, slicesID, snapshot)
		flush(b, s)
	}
}

// BenchmarkApply is the cost of queueing an event of 2 KB, BenchmarkFlush that of writing n of them together.
func BenchmarkApply(b *testing.B) {
	s := opening(b, Config{Dir: bench5000(b), queueBytes: 1 << 40}, nil)
	all := snapshotOf(5000, 2000, 5).Objects
	k := s.Sink(slicesID)
	b.ReportAllocs()
	r := edge.Revision(5)
	for b.Loop() {
		r++
		o := all[int(r)%len(all)]
		o.Revision = r
		if err := k.Apply(context.Background(), []stream.Event{{Type: stream.Modified, Object: o}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFlush(b *testing.B) {
	for name, n := range map[string]int{"1": 1, "10": 10, "100": 100} {
		b.Run(name, func(b *testing.B) {
			s := opening(b, Config{Dir: bench5000(b)}, nil)
			all := snapshotOf(5000, 2000, 5).Objects
			k := s.Sink(slicesID)
			r := edge.Revision(5)
			before := written(b)
			for b.Loop() {
				for range n {
					r++
					o := all[int(r)*7919%len(all)]
					o.Revision = r
					if err := k.Apply(context.Background(), []stream.Event{{Type: stream.Modified, Object: o}}); err != nil {
						b.Fatal(err)
					}
				}
				flush(b, s)
			}
			b.ReportMetric(float64(written(b)-before)/float64(r-5), "B-written/event")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(r-5), "µs/event")
		})
	}
}

// written is what this process has written, by the kernel's count of bytes given to write calls.
func written(b *testing.B) int64 {
	b.Helper()
	raw, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skip(err)
	}
	return field(b, string(raw), "wchar: ")
}

func field(b *testing.B, text, name string) int64 {
	b.Helper()
	_, rest, _ := strings.Cut(text, name)
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
