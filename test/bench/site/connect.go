package site

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a connection may take; on one machine, one that takes longer was dropped.
const patience = 2 * time.Second

// Ask connects from the client and says which endpoint answered.
func (s *Site) Ask(to netip.AddrPort) (netip.AddrPort, error) {
	var from netip.AddrPort
	err := s.client.do(func() error {
		conn, err := net.DialTimeout("tcp", to.String(), patience)
		if err != nil {
			return fmt.Errorf("connect to %v: %w", to, err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return fmt.Errorf("connect to %v: %w", to, err)
		}
		text, err := io.ReadAll(conn)
		if err != nil {
			return fmt.Errorf("read answer of %v: %w", to, err)
		}
		if from, err = netip.ParseAddrPort(string(text)); err != nil {
			return fmt.Errorf("read answer of %v: %w", to, err)
		}
		return nil
	})
	return from, err
}

// Probe measures how long connections take to be made, from the client. Use is inside of the call alone.
type Probe struct{ address unix.SockaddrInet4 }

// Connect returns how long the kernel took for one new connection: the first packet there and the answer to it.
func (p *Probe) Connect(to netip.AddrPort) (time.Duration, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	// Closed by a reset, which leaves no port behind in TIME_WAIT; a connection that takes longer than patience fails.
	if err := errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_SYNCNT, 1),
	); err != nil {
		return 0, fmt.Errorf("prepare socket: %w", err)
	}
	p.address.Port, p.address.Addr = int(to.Port()), to.Addr().As4()
	began := time.Now()
	if err := unix.Connect(fd, &p.address); err != nil {
		return 0, fmt.Errorf("connect to %v: %w", to, err)
	}
	return time.Since(began), nil
}

// Probing runs fn on a thread of its own in the client's namespace.
func (s *Site) Probing(fn func(*Probe) error) error {
	return s.client.do(func() error { return fn(&Probe{}) })
}

// answerer answers each connection with the address that the connection was made to.
type answerer struct {
	listener net.Listener
	done     chan struct{}
}

func answer(port uint16) (*answerer, error) {
	l, err := net.Listen("tcp4", netip.AddrPortFrom(netip.IPv4Unspecified(), port).String())
	if err != nil {
		return nil, fmt.Errorf("listen for all endpoints: %w", err)
	}
	a := &answerer{listener: l, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil { // else the client has reset it already
				_, _ = io.WriteString(conn, conn.LocalAddr().String())
				_ = conn.Close()
			}
		}
	}()
	return a, nil
}

// Close returns when nothing is answered any more.
func (a *answerer) Close() error {
	err := a.listener.Close()
	<-a.done
	if err != nil {
		return fmt.Errorf("stop answering: %w", err)
	}
	return nil
}
