package onecpu

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestNth(t *testing.T) {
	var may unix.CPUSet
	if _, ok := nth(&may, 1); ok {
		t.Error("there is one among none")
	}
	may.Set(3)
	may.Set(70)
	for n, want := range []int{3, 70, 3, 70} {
		if only, ok := nth(&may, n); !ok || only.Count() != 1 || !only.IsSet(want) {
			t.Errorf("%d: %v, %v; want processor %d", n, only, ok, want)
		}
	}
}

func TestStay(t *testing.T) {
	ended := make(chan int)
	go func() {
		Stay()
		var now unix.CPUSet
		if err := unix.SchedGetaffinity(0, &now); err != nil {
			t.Error(err)
		}
		ended <- now.Count()
	}()
	if count := <-ended; count != 1 {
		t.Errorf("it may use %d processors", count)
	}
}
