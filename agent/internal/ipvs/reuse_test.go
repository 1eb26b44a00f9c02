package ipvs

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// testSamePort holds that a client whose connection straight to an endpoint has just ended may use its port again at once for
// one to the virtual IP, though the kernel still remembers the former, and the endpoint's answers to both look alike.
func testSamePort(t *testing.T) {
	b, port := newBed(t), uint16(samePort)
	for _, f := range fwd.Families() {
		for where, server := range map[string]string{"same node": "10.244.1.5:8080", "other node": "10.244.2.5:8080"} {
			endpoint := address(f, server)
			b.talk(t, fwd.TCP, endpoint)
			sync(t, b.backend, parseTable(t, trace.InFamily(web("", server), f)))
			for _, abort := range []bool{false, true} {
				port++
				t.Run(fmt.Sprintf("%v/%s/abort %v", f, where, abort), func(t *testing.T) {
					for i, to := range []string{endpoint, address(f, "10.96.0.10:80")} {
						if at, err := b.once(from(f, port), to, abort); err != nil || at != endpoint {
							t.Errorf("connection %d, to %s: %s answered, error %v", i+1, to, at, err)
						}
					}
				})
			}
		}
	}
}

// samePort is a port that is used again and again, as those after it; from is it on a Pod.
const samePort = 33333

func from(f fwd.Family, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddrPort(address(f, "10.244.1.9:1")).Addr(), port)
}

// testSharedPort holds what docs/ipvs.md says of a client that uses one port for two virtual IPs that lead to one endpoint: a
// connection is stuck while another one is there. This is how Linux looks for the connection that an answer belongs to
// (ip_vs_conn_out_get, 6.1): by client and endpoint alone.
func testSharedPort(t *testing.T) {
	b, endpoint := newBed(t), "10.244.2.5:8080"
	b.talk(t, fwd.TCP, endpoint)
	sync(t, b.backend, parseTable(t, web("load-balancer-ips=203.0.113.10", endpoint)))
	client := from(fwd.IPv4, samePort)
	pod, err := b.Place(client.Addr())
	if err != nil {
		t.Fatal(err)
	}
	connect := func(to string) (ask func(patience time.Duration) error) {
		var c net.Conn
		if err := pod.Do(func() (err error) {
			c, err = dialer(client).Dial("tcp", to)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		in := bufio.NewReader(c)
		return func(patience time.Duration) error {
			if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
				return err
			}
			if _, err := c.Write([]byte("?\n")); err != nil {
				return err
			}
			_, err := in.ReadString('\n')
			return err
		}
	}
	first := connect("203.0.113.10:80")
	if err := errors.Join(first(10*time.Second), connect("10.96.0.10:80")(10*time.Second)); err != nil {
		t.Error(err)
	}
	if err := first(time.Second); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("asked beside a connection from the same port: error %v, want none in time: docs/ipvs.md is out of date", err)
	}
}

func dialer(from netip.AddrPort) *net.Dialer {
	return &net.Dialer{Timeout: 10 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(from), Control: reuse}
}

// once asks through a connection of its own, and ends it: in good order, or by
// a reset.
func (b *bed) once(client netip.AddrPort, to string, abort bool) (at string, err error) {
	pod, err := b.Place(client.Addr())
	if err != nil {
		return "", err
	}
	err = pod.Do(func() error {
		c, err := dialer(client).Dial("tcp", to)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := c.Write([]byte("?\n")); err != nil {
			return err
		}
		at, err = bufio.NewReader(c).ReadString('\n')
		if abort {
			return c.(*net.TCPConn).SetLinger(0)
		}
		return err
	})
	return strings.TrimSpace(at), err
}

// reuse lets a socket have a port whose last connection the host still remembers.
func reuse(_, _ string, c syscall.RawConn) error {
	var set error
	if err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }); err != nil {
		return err
	}
	return set
}
