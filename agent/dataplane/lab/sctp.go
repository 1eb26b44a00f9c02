package lab

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// SCTP sockets, which Go's package net has not, are used like those of TCP here. They block.

// sctpConn is an association.
type sctpConn int

var _ io.ReadWriteCloser = sctpConn(0)

// Read implements io.Reader.
func (c sctpConn) Read(p []byte) (int, error) {
	n, err := again(func() (int, error) { return unix.Read(int(c), p) })
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return max(0, n), err
}

// Write implements io.Writer.
func (c sctpConn) Write(p []byte) (int, error) {
	return again(func() (int, error) { return unix.Write(int(c), p) })
}

// Close implements io.Closer.
func (c sctpConn) Close() error { return unix.Close(int(c)) } //nolint:wrapcheck // as io says

// SetLinger is that of a net.TCPConn.
func (c sctpConn) SetLinger(seconds int) error {
	return unix.SetsockoptLinger(int(c), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: int32(seconds)}) //nolint:gosec,wrapcheck // 0 of tests
}

// again repeats a system call that a signal of Go's runtime has interrupted.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// sctpSocket opens a socket that waits for nothing longer than some seconds.
func sctpSocket(from netip.AddrPort, seconds int64) (fd int, err error) {
	family := unix.AF_INET
	if from.Addr().Is6() {
		family = unix.AF_INET6
	}
	if fd, err = unix.Socket(family, unix.SOCK_STREAM, unix.IPPROTO_SCTP); err != nil {
		return 0, fmt.Errorf("open SCTP socket: %w", err)
	}
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		err = errors.Join(err, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &unix.Timeval{Sec: seconds}))
	}
	if err = errors.Join(err, unix.Bind(fd, sockaddr(from))); err != nil {
		_ = unix.Close(fd)
		return 0, fmt.Errorf("prepare SCTP socket: %w", err)
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func dialSCTP(from netip.Addr, to netip.AddrPort) (sctpConn, error) {
	fd, err := sctpSocket(netip.AddrPortFrom(from, 0), int64(patience.Seconds()))
	if err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil {
		_ = unix.Close(fd)
		return 0, err //nolint:wrapcheck // the caller names it
	}
	return sctpConn(fd), nil
}

// sctpServer ends within its socket's patience after Close.
type sctpServer struct{ closed atomic.Bool }

// Close implements io.Closer.
func (s *sctpServer) Close() error {
	s.closed.Store(true)
	return nil
}

func talkSCTP(at netip.AddrPort) (io.Closer, error) {
	const patient = 1
	fd, err := sctpSocket(at, patient)
	if err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, 64); err != nil {
		_ = unix.Close(fd)
		return nil, err //nolint:wrapcheck // the caller names it
	}
	s := &sctpServer{}
	go func() {
		defer func() { _ = unix.Close(fd) }()
		for !s.closed.Load() {
			c, _, err := unix.Accept(fd)
			if err == nil {
				go answerLines(sctpConn(c), at)
			}
		}
	}()
	return s, nil
}
