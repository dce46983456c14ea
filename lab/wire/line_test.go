package wire

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"yurtcoordinator/lab/line"
)

const ms = time.Millisecond

// Frames come out when the model says, in order, whole, with the kernel's header, which is not counted.
func TestFramesComeOutInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := ends(t)
		w := newWay(line.NewWay(line.Shape{Rate: 1_000_000, Delay: 300 * ms, Queue: 2500}, 1, ""), time.Now())
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.run(ctx)
		}()
		for i := range 4 {
			w.take(frame(i, 1250), in)
		}
		if got := w.counted(); got != (line.Counts{Frames: 4, Bytes: 5000, Overflowed: 1}) {
			t.Errorf("counted %+v", got)
		}
		for i, at := range []time.Duration{310 * ms, 320 * ms, 330 * ms} {
			time.Sleep(at - time.Since(w.began) - time.Nanosecond)
			synctest.Wait()
			if got := read(t, out); got != nil {
				t.Errorf("frame %d came out before %v", i, at)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if got := read(t, out); string(got) != string(frame(i, 1250)) {
				t.Errorf("frame %d is not there after %v", i, at)
			}
		}
		time.Sleep(time.Minute) // the way is idle, and begins again
		w.take(frame(9, 125), in)
		time.Sleep(301 * ms)
		synctest.Wait()
		if got := read(t, out); string(got) != string(frame(9, 125)) {
			t.Error("no frame after an idle time")
		}
		stop()
		<-ended
	})
}

// A frame whose cable has been taken off meanwhile goes nowhere, and no later one waits for it.
func TestFramesOfACableThatIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, _ := ends(t)
		in, out := ends(t)
		w := newWay(line.NewWay(line.Shape{Delay: 10 * ms}, 1, ""), time.Now())
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.run(ctx)
		}()
		w.take(frame(1, 100), gone)
		w.take(frame(2, 100), in)
		gone.file.Close()
		time.Sleep(10 * ms)
		synctest.Wait()
		if got := read(t, out); string(got) != string(frame(2, 100)) {
			t.Error("the second frame did not come out")
		}
		if n := w.refused(); n != 0 {
			t.Errorf("%d frames count as missed: nobody waits for them", n)
		}
		stop()
		<-ended
	})
}

func TestPortsOfALine(t *testing.T) {
	// The longest that a lab has; the kernel allows 15 bytes.
	c := Cable{Port: "w-p50-n250"}
	for _, name := range []string{c.farPort(), c.farEnd()} {
		if len(name) > 15 || name == c.Port {
			t.Errorf("interface %q", name)
		}
	}
	if c.farPort() != "sw-p50-n250" || c.farEnd() != "xw-p50-n250" {
		t.Errorf("%s, %s", c.farPort(), c.farEnd())
	}
}

func frame(n, size int) []byte {
	b := make([]byte, headerSize+size)
	copy(b[headerSize:], fmt.Sprint(n))
	return b
}

// ends is where a way writes, and where that can be read.
func ends(t *testing.T) (*end, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return &end{file: w}, r
}

// read is what has come out; nil for nothing.
func read(t *testing.T, f *os.File) []byte {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	if err := raw.Control(func(fd uintptr) { // the descriptor does not wait
		buffer := make([]byte, 1<<16)
		if n, err := unix.Read(int(fd), buffer); err == nil {
			got = buffer[:n]
		}
	}); err != nil {
		t.Fatal(err)
	}
	return got
}
