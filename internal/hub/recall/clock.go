package recall

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// clockKey is the disk's key of the clock.
	clockKey = "clock/tenure"
	// saveEvery is how often the clock is saved. After a power cut nobody knows how much of the current interval had passed, so
	// the clock counts all of it. Repeated power cuts make the clock run faster, never slower.
	saveEvery = 10 * time.Minute
)

// clock counts seconds from an arbitrary number: by the time since boot while the machine runs, and by the wall clock for the
// time that the machine was off.
type clock struct {
	cfg   TenureConfig
	from  int64 // what the clock showed when this process began
	began int64 // when this process began, in seconds since boot
}

// saved is the clock on the disk.
type saved struct {
	Ran   int64  `json:"ran"`
	Wall  int64  `json:"wall"`
	Boot  string `json:"boot"`
	Since int64  `json:"since"` // seconds since boot
}

func newClock(c TenureConfig) *clock {
	id, since := c.Boot()
	k := &clock{cfg: c, began: seconds(since)}
	var was saved
	value, err := c.Disk.Blob(clockKey)
	if err != nil || json.Unmarshal(value, &was) != nil || was.Ran < 0 {
		// Another clock's Stamp is in the future or long ago, so it counts as too old.
		k.from = c.Chance.Int64N(1 << 40)
		return k
	}
	if off := k.began - was.Since; id != "" && id == was.Boot && off >= 0 {
		k.from = was.Ran + off
	} else {
		k.from = was.Ran + max(k.began+seconds(saveEvery), c.Wall().Unix()-was.Wall)
	}
	return k
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// now returns the time by this clock, and by the machine's wall clock.
func (k *clock) now() (ran, wall int64) {
	_, since := k.cfg.Boot()
	return k.from + seconds(since) - k.began, k.cfg.Wall().Unix()
}

// age returns how old a Stamp is: by this clock or by the wall clock, whichever shows the greater age.
func (k *clock) age(s Stamp) time.Duration {
	ran, wall := k.now()
	if s.Wall == 0 || s.Ran > ran {
		return math.MaxInt64
	}
	const most = math.MaxInt64 / int64(time.Second)
	return time.Duration(min(max(ran-s.Ran, wall-s.Wall), most)) * time.Second
}

// save writes the clock to the disk. If the disk fails, new Stamps hold for a shorter time after a restart.
func (k *clock) save() {
	id, since := k.cfg.Boot()
	ran, wall := k.now()
	if value, err := json.Marshal(saved{ran, wall, id, seconds(since)}); err == nil {
		_ = k.cfg.Disk.PutBlob(clockKey, value)
	}
}

// boot asks the kernel for the ID of the present boot, and for the time since the boot.
func boot() (id string, since time.Duration) {
	name, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without a name, each start counts as the machine's
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return "", 0
	}
	return strings.TrimSpace(string(name)), time.Duration(t.Nano())
}
