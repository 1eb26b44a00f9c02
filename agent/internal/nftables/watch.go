package nftables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Watch delivers a value when somebody else has changed a table of ours, and when that may have been missed. Call it from a
// thread of the network namespace that New was called in. The channel is closed when ctx ends, and when the kernel does not
// let us listen, which is logged: then audits alone find such changes.
func (b *Backend) Watch(ctx context.Context) <-chan struct{} { return b.watch(ctx, monitorBuffer) }

func (b *Backend) watch(ctx context.Context, buffer int) <-chan struct{} {
	changes := make(chan struct{}, 1)
	f, err := openMonitor(buffer)
	if err != nil {
		b.config.Logger.WarnContext(ctx, "cannot watch nftables", slog.Any("error", err))
		close(changes)
		return changes
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	go func() {
		defer close(changes)
		defer stop()
		if err := b.listen(f, changes); ctx.Err() == nil {
			b.config.Logger.WarnContext(ctx, "stop watching nftables", slog.Any("error", err))
		}
	}()
	return changes
}

// monitorBuffer is how many bytes of notifications may wait. More is no loss: what overflows is looked for by an audit.
const monitorBuffer = 1 << 20

// lossRest is the least time between two signs that notifications were lost. One transaction of somebody else's can overflow
// any buffer, and each sign costs an audit: whoever writes a lot all the time makes us look once in that time.
const lossRest = time.Second

func openMonitor(buffer int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "nftables notifications")
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("bind netlink socket: %w", err)
	}
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer},
		{unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("listen to nftables: %w", err)
		}
	}
	return f, nil
}

// listen reads notifications until the file is closed. A loss is told at once or, soon after another one, when the rest is
// over; reading goes on meanwhile.
func (b *Backend) listen(f *os.File, changes chan<- struct{}) error {
	buf := make([]byte, maxDump)
	var rested time.Time
	for {
		n, err := f.Read(buf)
		lost, due := errors.Is(err, syscall.ENOBUFS), errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case lost && time.Now().Before(rested):
			if err := f.SetReadDeadline(rested); err != nil {
				return fmt.Errorf("read notifications: %w", err)
			}
			continue
		case lost, due:
			rested = time.Now().Add(lossRest)
			if err := f.SetReadDeadline(time.Time{}); err != nil {
				return fmt.Errorf("read notifications: %w", err)
			}
		case err != nil:
			return fmt.Errorf("read notifications: %w", err)
		case !b.concerns(buf[:n]):
			continue
		}
		select {
		case changes <- struct{}{}:
		default: // one is waiting already
		}
	}
}

// concerns reports whether notifications tell that somebody else changed a table of ours. All of them name the table by the
// attribute of the same number.
func (b *Backend) concerns(notifications []byte) bool {
	for m := range messages(notifications) {
		if m.kind>>8 != unix.NFNL_SUBSYS_NFTABLES || m.kind&0xff == unix.NFT_MSG_NEWGEN || m.port == b.port || len(m.data) < genSize {
			continue
		}
		if a, err := parse(m.data[genSize:]); err != nil || a.text(unix.NFTA_TABLE_NAME) == tableName {
			return true
		}
	}
	return false
}
