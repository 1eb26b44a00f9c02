package measure

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// raw measures what a change would cost at least: as many bytes, written to as many sockets by one thread.
func (r *run) raw(ctx context.Context) error {
	const rounds = 50
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer listener.Close()
	go drain(listener)
	var d net.Dialer
	var files []int
	for range r.figures.Agents {
		conn, err := d.DialContext(ctx, "tcp", listener.Addr().String())
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		defer conn.Close()
		file, err := conn.(*net.TCPConn).File() // a blocking copy
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		defer file.Close()
		files = append(files, int(file.Fd())) //nolint:gosec // a small number
	}
	message := make([]byte, max(1, int(r.figures.Lone.Wire)))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := threadTime()
	if err != nil {
		return err
	}
	for range rounds {
		for _, fd := range files {
			if _, err := unix.Write(fd, message); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
	}
	after, err := threadTime()
	r.figures.RawWrite = (after - before) / time.Duration(rounds*len(files))
	return err
}

// drain reads whatever comes on each connection.
func drain(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(io.Discard, conn) // until the other end closes
		}()
	}
}

func threadTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("read thread's processor time: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
