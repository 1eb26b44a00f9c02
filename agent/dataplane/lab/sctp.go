package lab

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

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

// sctpSocket opens a socket that waits for nothing longer than it should.
func sctpSocket(from netip.AddrPort, patience time.Duration) (fd int, err error) {
	family := unix.AF_INET
	if from.Addr().Is6() {
		family = unix.AF_INET6
	}
	if fd, err = unix.Socket(family, unix.SOCK_STREAM, unix.IPPROTO_SCTP); err != nil {
		return 0, fmt.Errorf("open SCTP socket: %w", err)
	}
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		err = errors.Join(err, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit))
	}
	// Only so does the kernel tell that a host has refused a packet.
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if family == unix.AF_INET6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	err = errors.Join(err, unix.SetsockoptInt(fd, level, option, 1), unix.Bind(fd, sockaddr(from)))
	if err != nil {
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

// dialSCTP connects; from port 0 is one of the kernel's choice. The error is ECONNREFUSED for one that says so, or
// os.ErrDeadlineExceeded.
func dialSCTP(from, to netip.AddrPort, patience time.Duration) (sctpConn, error) {
	fd, err := sctpSocket(from, patience)
	if err != nil {
		return 0, err
	}
	// A call that blocks would not end with a refusal.
	err = unix.SetNonblock(fd, true)
	if err == nil {
		if err = unix.Connect(fd, sockaddr(to)); errors.Is(err, unix.EINPROGRESS) {
			err = connected(fd, patience)
		}
	}
	if err = errors.Join(err, unix.SetNonblock(fd, false)); err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	return sctpConn(fd), nil
}

// connected waits for the end of a connect.
func connected(fd int, patience time.Duration) error {
	end := time.Now().Add(patience)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(max(0, time.Until(end)).Milliseconds())) //nolint:gosec // few descriptors
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for SCTP connection: %w", err)
		case n == 0:
			return os.ErrDeadlineExceeded
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code) //nolint:gosec // a number of an error
		}
		return err
	}
}

// sctpServer ends within its socket's patience after Close.
type sctpServer struct{ closed atomic.Bool }

// Close implements io.Closer.
func (s *sctpServer) Close() error {
	s.closed.Store(true)
	return nil
}

// listenSCTP serves each association by a goroutine, until it is closed.
func listenSCTP(at netip.AddrPort, serve func(c sctpConn, client unix.Sockaddr)) (io.Closer, error) {
	fd, err := sctpSocket(at, time.Second)
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
			c, client, err := unix.Accept(fd)
			if err == nil {
				go serve(sctpConn(c), client)
			}
		}
	}()
	return s, nil
}

func talkSCTP(at netip.AddrPort) (io.Closer, error) {
	return listenSCTP(at, func(c sctpConn, _ unix.Sockaddr) { answerLines(c, at) })
}

func serveSCTP(at netip.AddrPort) (io.Closer, error) {
	return listenSCTP(at, func(c sctpConn, client unix.Sockaddr) {
		_, _ = fmt.Fprintf(c, "%v %v\n", at, addrPort(client))
		_ = c.Close()
	})
}

func addrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)) //nolint:gosec // a port
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)) //nolint:gosec // a port
	}
	return netip.AddrPort{}
}

// HasSCTP reports whether this kernel has sockets of SCTP, which few have.
func HasSCTP() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}
