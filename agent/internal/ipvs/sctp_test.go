package ipvs

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/proto/fwd"
)

// testSCTP holds that an association through a cluster IP reaches the endpoint, in both families. Go's package net has no
// SCTP; its sockets are used like those of TCP here.
func testSCTP(t *testing.T) {
	b := newBed(t)
	sync(t, b.backend, parseTable(t, facts+`
service default/sctp:/SCTP/IPv4 cluster-ip=10.96.0.20 port=80 usable
  common 10.244.1.5:8080
service default/sctp:/SCTP/IPv6 cluster-ip=fd00::10:96:0:20 port=80 usable
  common [fd00::10:244:1:5]:8080
`))
	for _, c := range []struct{ client, to, endpoint string }{
		{"10.244.1.9", "10.96.0.20:80", "10.244.1.5:8080"},
		{"fd00::10:244:1:9", "[fd00::10:96:0:20]:80", "[fd00::10:244:1:5]:8080"},
	} {
		endpoint := netip.MustParseAddrPort(c.endpoint)
		served := make(chan error, 1)
		listener := b.sctpSocket(t, endpoint.Addr())
		if err := unix.Bind(listener, sockaddr(endpoint)); err != nil {
			t.Fatal(err)
		}
		if err := unix.Listen(listener, 1); err != nil {
			t.Fatal(err)
		}
		go func() { served <- answerOnce(listener, c.endpoint) }()
		socket := b.sctpSocket(t, netip.MustParseAddr(c.client))
		patience := unix.Timeval{Sec: 5}
		if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience); err != nil {
			t.Fatal(err)
		}
		if err := unix.Connect(socket, sockaddr(netip.MustParseAddrPort(c.to))); err != nil {
			t.Fatalf("connect to %s: %v", c.to, err)
		}
		buffer := make([]byte, 64)
		n, err := unix.Read(socket, buffer)
		if err != nil || string(buffer[:n]) != c.endpoint {
			t.Errorf("%s answered %q, want %s (error %v)", c.to, buffer[:max(n, 0)], c.endpoint, err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// sctpSocket opens a socket where an address is.
func (b *bed) sctpSocket(t *testing.T, at netip.Addr) (fd int) {
	t.Helper()
	n, err := b.Place(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Do(func() (err error) {
		fd, err = unix.Socket(int(addressFamily(fwd.FamilyOf(at))), unix.SOCK_STREAM, unix.IPPROTO_SCTP)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// answerOnce sends a text to the first client.
func answerOnce(listener int, text string) error {
	fd, _, err := unix.Accept(listener)
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}
