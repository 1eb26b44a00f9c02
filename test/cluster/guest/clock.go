package guest

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is a machine's.
type Clock interface {
	Now() time.Time
	// Shift moves it at once.
	Shift(by time.Duration) error
}

// SystemClock is the clock of the machine that this runs on.
type SystemClock struct{}

// Now implements Clock.
func (SystemClock) Now() time.Time { return time.Now() }

// Shift implements Clock, by ADJ_SETOFFSET of adjtimex(2), which needs CAP_SYS_TIME.
func (SystemClock) Shift(by time.Duration) error {
	seconds := by.Truncate(time.Second)
	if by < seconds {
		seconds -= time.Second // the kernel wants the rest to be positive
	}
	change := unix.Timex{Modes: unix.ADJ_SETOFFSET | unix.ADJ_NANO}
	change.Time.Sec, change.Time.Usec = int64(seconds/time.Second), int64(by-seconds)
	if _, err := unix.ClockAdjtime(unix.CLOCK_REALTIME, &change); err != nil {
		return fmt.Errorf("move the clock: %w", err)
	}
	return nil
}
