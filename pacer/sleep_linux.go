package pacer

import (
	"syscall"

	"github.com/weirlimit/weir/internal/mono"
)

// sleepFine lets the thread sleep until shortly before a time.
//
// Linux adds up to 50 µs to the sleeps of a thread, in order to wake several at
// once, unless the thread asks for less. It asks before each sleep because the
// goroutine may be on another thread by then; that costs a tenth of a microsecond.
func sleepFine(until int64) {
	left := until - mono.Now() - wakeLag
	if left <= 0 {
		return
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerslack, 1, 0)
	ts := syscall.NsecToTimespec(left)
	_ = syscall.Nanosleep(&ts, nil) // shorter if there is a signal; the caller looks at the clock
}

const (
	prSetTimerslack = 29
	wakeLag         = 30_000 // ns that waking up takes
)
