package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Servers answer at backends' addresses with their own address and the client's.
type Servers struct{ open []io.Closer }

// Close stops them.
func (s *Servers) Close() {
	for _, c := range s.open {
		_ = c.Close()
	}
}

// Serve starts a server at each backend of each Service port of the table; of SCTP only where the kernel has its sockets.
func (l *Lab) Serve(t *fwd.Table) (*Servers, error) {
	type place struct {
		protocol fwd.Protocol
		addr     netip.AddrPort
	}
	s, served := &Servers{}, map[place]bool{}
	for _, p := range t.Ports() {
		for _, b := range slices.Concat(p.List(fwd.Common), p.List(fwd.Zone), p.List(fwd.Node)) {
			at := place{p.Protocol, b.Addr}
			if served[at] {
				continue
			}
			served[at] = true
			c, err := l.serve(p.Protocol, b.Addr)
			if p.Protocol == fwd.SCTP && errors.Is(err, syscall.EPROTONOSUPPORT) {
				continue
			}
			if err != nil {
				s.Close()
				return nil, fmt.Errorf("serve %v %v: %w", p.Protocol, b.Addr, err)
			}
			s.open = append(s.open, c)
		}
	}
	return s, nil
}

func (l *Lab) serve(protocol fwd.Protocol, at netip.AddrPort) (c io.Closer, err error) {
	n, err := l.Place(at.Addr())
	if err != nil {
		return nil, err
	}
	err = n.Do(func() (err error) {
		switch protocol {
		case fwd.SCTP:
			c, err = serveSCTP(at)
			return err
		case fwd.UDP:
			conn, err := net.ListenPacket("udp", at.String())
			c = conn
			if err == nil {
				go serveUDP(conn, at)
			}
			return err
		case fwd.TCP:
		}
		listener, err := net.Listen("tcp", at.String())
		c = listener
		if err == nil {
			go serveTCP(listener, at)
		}
		return err
	})
	return c, err
}

func serveTCP(l net.Listener, at netip.AddrPort) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(conn, "%v %v\n", at, conn.RemoteAddr())
		_ = conn.Close()
	}
}

func serveUDP(c net.PacketConn, at netip.AddrPort) {
	buffer := make([]byte, 64)
	for {
		_, from, err := c.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(fmt.Appendf(nil, "%v %v\n", at, from), from)
	}
}

// Answer is what a client got.
type Answer struct {
	// Endpoint answered; invalid: none did.
	Endpoint netip.AddrPort
	// Client is the address that the endpoint saw.
	Client netip.Addr
	// Refused: the client was told at once that nobody serves.
	Refused bool
}

// Patience with an answer that should come, and with one that should not. Answers in a lab take less than a millisecond on
// an idle machine; the first bound is for machines that are not.
const (
	patience = 10 * time.Second
	silence  = 300 * time.Millisecond
)

// question is one packet and how long to wait for the answer.
type question struct {
	client   trace.Client
	protocol fwd.Protocol
	to       netip.AddrPort
	patience time.Duration
}

// Ask sends from a client, from a new port, and waits for an answer. No answer is no error.
func (l *Lab) Ask(client trace.Client, protocol fwd.Protocol, to netip.AddrPort) (Answer, error) {
	return l.ask(question{client, protocol, to, patience})
}

func (l *Lab) ask(q question) (Answer, error) {
	n, err := l.home(q.client)
	if err != nil {
		return Answer{}, err
	}
	var text string
	err = n.Do(func() (err error) {
		text, err = q.send()
		return err
	})
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPERM): // the latter from an own reject in OUTPUT
		return Answer{Refused: true}, nil
	case unanswered(err):
		return Answer{}, nil
	case err != nil:
		return Answer{}, fmt.Errorf("ask %v from %v: %w", q.to, q.client.Addr, err)
	}
	return parseAnswer(text)
}

// home returns the namespace of a client. A node may carry addresses that look as if they were elsewhere.
func (l *Lab) home(c trace.Client) (*Namespace, error) {
	if c.Kind == trace.Node && c.Addr != trace.Plan(fwd.FamilyOf(c.Addr)).Node {
		return l.Node, l.Node.address("lo", netip.PrefixFrom(c.Addr, c.Addr.BitLen()))
	}
	return l.Place(c.Addr)
}

// unanswered reports errors that mean silence, or that nobody on the way knew the address.
func unanswered(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

func (q question) send() (string, error) {
	if q.protocol == fwd.SCTP {
		conn, err := dialSCTP(netip.AddrPortFrom(q.client.Addr, 0), q.to, q.patience)
		if err != nil {
			return "", err
		}
		defer func() { _ = conn.Close() }()
		buffer := make([]byte, 256)
		n, err := conn.Read(buffer)
		return string(buffer[:n]), err
	}
	dialer := net.Dialer{Timeout: q.patience, LocalAddr: &net.TCPAddr{IP: q.client.Addr.AsSlice()}}
	if q.protocol == fwd.UDP {
		dialer.LocalAddr = &net.UDPAddr{IP: q.client.Addr.AsSlice()}
	}
	conn, err := dialer.Dial(strings.ToLower(q.protocol.String()), q.to.String())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(q.patience)); err != nil {
		return "", err
	}
	if q.protocol == fwd.UDP {
		if _, err := conn.Write([]byte("?")); err != nil {
			return "", err
		}
	}
	buffer := make([]byte, 256)
	n, err := conn.Read(buffer)
	return string(buffer[:n]), err
}

func parseAnswer(text string) (Answer, error) {
	endpoint, client, _ := strings.Cut(strings.TrimSpace(text), " ")
	e, err := netip.ParseAddrPort(endpoint)
	if err != nil {
		return Answer{}, fmt.Errorf("parse answer: %w", err)
	}
	c, err := netip.ParseAddrPort(client)
	if err != nil {
		return Answer{}, fmt.Errorf("parse answer: %w", err)
	}
	return Answer{Endpoint: e, Client: c.Addr()}, nil
}

// Observe asks until it has seen as many endpoints as are expected, or tried so often that others are improbable, and
// says what became of the packets. Silence is a drop; a drop cannot be told from packets that nobody answers, nor a
// reject from a host that has nobody listening, so these count as "none" where that is expected.
func (l *Lab) Observe(c trace.Case, want trace.Outcome) (trace.Outcome, error) {
	o := trace.Outcome{Verdict: trace.Forwarded}
	q := question{c.Client, c.Protocol, c.To, patience}
	if want.Verdict == trace.Passed || want.Verdict == trace.Dropped {
		q.patience = silence
	}
	for range 60 {
		a, err := l.ask(q)
		if err != nil {
			return o, err
		}
		switch untouched := !a.Endpoint.IsValid() || a.Endpoint == c.To; {
		case want.Verdict == trace.Passed && untouched:
			return want, nil
		case a.Refused:
			o.Verdict = trace.Rejected
			return o, nil
		case untouched:
			o.Verdict = trace.Dropped
			return o, nil
		}
		if i, found := slices.BinarySearchFunc(o.Endpoints, a.Endpoint, netip.AddrPort.Compare); !found {
			o.Endpoints = slices.Insert(o.Endpoints, i, a.Endpoint)
		}
		o.Masquerade = a.Client != c.Client.Addr
		if o.Masquerade != want.Masquerade || len(o.Endpoints) > len(want.Endpoints) {
			return o, nil
		}
		if slices.Equal(o.Endpoints, want.Endpoints) {
			return l.again(q, o)
		}
	}
	return o, nil
}

// again looks a few more times whether it is always one of these endpoints.
func (l *Lab) again(q question, o trace.Outcome) (trace.Outcome, error) {
	for range 4 {
		a, err := l.ask(q)
		if err != nil {
			return o, err
		}
		if !slices.Contains(o.Endpoints, a.Endpoint) {
			o.Endpoints = append(o.Endpoints, a.Endpoint)
			return o, nil
		}
	}
	return o, nil
}

// warm waits until a client gets through to a port of the node that nobody serves: devices take a moment to come up, and
// neighbours to find each other.
func (l *Lab) warm(client, node netip.Addr) error {
	const tries = 20
	for range tries {
		a, err := l.Ask(trace.Client{Addr: client}, fwd.TCP, netip.AddrPortFrom(node, closedPort))
		if err != nil {
			return err
		}
		if a.Refused {
			return nil
		}
	}
	return fmt.Errorf("reach %v from %v: no answer after %d tries", node, client, tries)
}

// closedPort is a port that nothing in a lab listens on.
const closedPort = 9
