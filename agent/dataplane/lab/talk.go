package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

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
	// release gives the client's port back.
	release func()
}

// Begin connects a client to an address, from a port that no other conversation in the lab has, nor had a while ago. The
// kernel's own choice would be the same for different addresses now and then, and IPVS takes an endpoint's answers to two
// connections from one port for answers to one of them.
func (l *Lab) Begin(client trace.Client, protocol fwd.Protocol, to netip.AddrPort) (*Conversation, error) {
	n, err := l.home(client)
	if err != nil {
		return nil, err
	}
	port := l.ports.take()
	c, from := &Conversation{release: sync.OnceFunc(func() { l.ports.release(port) })}, netip.AddrPortFrom(client.Addr, port)
	err = n.Do(func() (err error) {
		if protocol == fwd.SCTP {
			c.conn, err = dialSCTP(from, to, patience)
			return err
		}
		c.conn, err = dial(from, protocol, to)
		return err
	})
	if err != nil {
		c.release()
		return nil, fmt.Errorf("connect %v to %v %v: %w", from, protocol, to, err)
	}
	c.in = bufio.NewReader(c.conn)
	return c, nil
}

func dial(from netip.AddrPort, protocol fwd.Protocol, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: net.TCPAddrFromAddrPort(from)}
	if protocol == fwd.UDP {
		d.LocalAddr = net.UDPAddrFromAddrPort(from)
	}
	return d.Dial(strings.ToLower(protocol.String()), to.String()) //nolint:wrapcheck // the caller names it
}

// The ports of conversations: none that servers listen on, or that the kernel gives away.
const firstPort, endPort = 10_000, 30_000

// ports are in use or not. The zero value is ready.
type ports struct {
	mu sync.Mutex
	// mu guards last, the port taken last, and used.
	last uint16
	used map[uint16]bool
}

// take returns the next port that is not in use.
func (p *ports) take() uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used == nil {
		p.last, p.used = firstPort, map[uint16]bool{}
	}
	for {
		if p.last++; p.last >= endPort {
			p.last = firstPort
		}
		if !p.used[p.last] {
			p.used[p.last] = true
			return p.last
		}
	}
}

func (p *ports) release(port uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.used, port)
}

// Tell sends a question whose answer nobody waits for.
func (c *Conversation) Tell() error {
	if _, err := c.conn.Write([]byte("?\n")); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	return nil
}

// Ask returns the endpoint that answers.
func (c *Conversation) Ask() (netip.AddrPort, error) {
	if d, ok := c.conn.(net.Conn); ok {
		if err := d.SetDeadline(time.Now().Add(patience)); err != nil {
			return netip.AddrPort{}, fmt.Errorf("ask: %w", err)
		}
	}
	if err := c.Tell(); err != nil {
		return netip.AddrPort{}, err
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
func (c *Conversation) Close() {
	_ = c.conn.Close()
	c.release()
}

// Abort ends it by a reset, which a kernel forgets sooner.
func (c *Conversation) Abort() {
	if l, ok := c.conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = l.SetLinger(0)
	}
	c.Close()
}
