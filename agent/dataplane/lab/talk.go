package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Talk starts a server that keeps its connections: it answers each line with its own address, until it is closed.
func (l *Lab) Talk(protocol fwd.Protocol, at netip.AddrPort) (io.Closer, error) {
	n, err := l.Place(at.Addr())
	if err != nil {
		return nil, err
	}
	var c io.Closer
	err = n.Do(func() (err error) {
		switch protocol {
		case fwd.UDP:
			c, err = talkUDP(at)
		case fwd.SCTP:
			c, err = talkSCTP(at)
		case fwd.TCP:
			c, err = talkTCP(at)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("serve %v %v: %w", protocol, at, err)
	}
	return c, nil
}

func talkTCP(at netip.AddrPort) (io.Closer, error) {
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names it
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerLines(c, at)
		}
	}()
	return l, nil
}

// answerLines answers until the client leaves.
func answerLines(c io.ReadWriteCloser, at netip.AddrPort) {
	defer func() { _ = c.Close() }()
	for in := bufio.NewReader(c); ; {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		if _, err := fmt.Fprintf(c, "%v\n", at); err != nil {
			return
		}
	}
}

func talkUDP(at netip.AddrPort) (io.Closer, error) {
	c, err := net.ListenPacket("udp", at.String())
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names it
	}
	go func() {
		buffer := make([]byte, 64)
		for {
			_, from, err := c.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = c.WriteTo(fmt.Appendf(nil, "%v\n", at), from)
			}
		}
	}()
	return c, nil
}

// Conversation is one connection of a client, or one flow of UDP.
type Conversation struct {
	conn io.ReadWriteCloser
	in   *bufio.Reader
}

// Begin connects a client to an address.
func (l *Lab) Begin(client trace.Client, protocol fwd.Protocol, to netip.AddrPort) (*Conversation, error) {
	n, err := l.home(client)
	if err != nil {
		return nil, err
	}
	c := &Conversation{}
	err = n.Do(func() (err error) {
		if protocol == fwd.SCTP {
			c.conn, err = dialSCTP(client.Addr, to)
			return err
		}
		c.conn, err = dial(client.Addr, protocol, to)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect %v to %v %v: %w", client.Addr, protocol, to, err)
	}
	c.in = bufio.NewReader(c.conn)
	return c, nil
}

func dial(from netip.Addr, protocol fwd.Protocol, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: from.AsSlice()}, Control: portLater}
	if protocol == fwd.UDP {
		d.LocalAddr = &net.UDPAddr{IP: from.AsSlice()}
	}
	return d.Dial(strings.ToLower(protocol.String()), to.String()) //nolint:wrapcheck // the caller names it
}

// portLater has the kernel choose a socket's port when it connects: one after the other, not by chance, so that none comes
// again while kernels remember the connection that had it.
func portLater(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) })
	return errors.Join(err, set)
}

// Ask returns the endpoint that answers.
func (c *Conversation) Ask() (netip.AddrPort, error) {
	if d, ok := c.conn.(net.Conn); ok {
		if err := d.SetDeadline(time.Now().Add(patience)); err != nil {
			return netip.AddrPort{}, fmt.Errorf("ask: %w", err)
		}
	}
	if _, err := c.conn.Write([]byte("?\n")); err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask: %w", err)
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask: %w", err)
	}
	at, err := netip.ParseAddrPort(strings.TrimSpace(line))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask: %w", err)
	}
	return at, nil
}

// Close ends it in good order.
func (c *Conversation) Close() { _ = c.conn.Close() }

// Abort ends it by a reset, which a kernel forgets sooner.
func (c *Conversation) Abort() {
	if l, ok := c.conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.conn.Close()
}
