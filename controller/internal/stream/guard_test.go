package stream

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// strange is a connection from an address that never was.
type strange struct {
	net.Conn
	from   netip.AddrPort
	closed chan struct{}
}

func (s *strange) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.from) }
func (s *strange) Close() error {
	close(s.closed)
	return nil
}

func come(g *Guard, from string) (*strange, *guarded) {
	s := newStrange(from)
	return s, g.take(s)
}

func newStrange(from string) *strange {
	return &strange{from: netip.MustParseAddrPort(from), closed: make(chan struct{})}
}

func (s *strange) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// TestGuardDisplacesTheFlood: who holds most connections loses the oldest, nobody else any.
func TestGuardDisplacesTheFlood(t *testing.T) {
	g := NewGuard(GuardConfig{Most: 4, Within: time.Hour})
	honest, _ := come(g, "192.0.2.1:1000")
	admitted, _ := come(g, "192.0.2.2:1000")
	g.Admitted(admitted.RemoteAddr())
	var flood []*strange
	for port := range 10 {
		s, _ := come(g, netip.AddrPortFrom(netip.MustParseAddr("2001:db8::1"), uint16(port+1)).String())
		flood = append(flood, s)
	}
	late, lateConn := come(g, "192.0.2.3:1000")
	if honest.isClosed() || admitted.isClosed() || late.isClosed() {
		t.Error("one who does not flood was displaced")
	}
	for i, s := range flood {
		if want := i < 8; s.isClosed() != want {
			t.Errorf("connection %d of the flood: closed %v, want %v", i, s.isClosed(), want)
		}
	}
	if n := g.Strangers(); n != 4 {
		t.Errorf("%d strangers, want 4", n)
	}
	if err := lateConn.Close(); err != nil || g.Strangers() != 3 {
		t.Errorf("after one closed: %d strangers, %v", g.Strangers(), err)
	}
}

// TestGuardAmongEquals: where everybody has one, the oldest goes.
func TestGuardAmongEquals(t *testing.T) {
	g := NewGuard(GuardConfig{Most: 2, Within: time.Hour})
	first, _ := come(g, "192.0.2.1:1")
	second, _ := come(g, "192.0.2.2:1")
	third, _ := come(g, "192.0.2.3:1")
	if !first.isClosed() || second.isClosed() || third.isClosed() {
		t.Errorf("closed: %v %v %v", first.isClosed(), second.isClosed(), third.isClosed())
	}
}

// TestGuardTime: a stranger's time ends, an agent's does not.
func TestGuardTime(t *testing.T) {
	g := NewGuard(GuardConfig{Most: 10, Within: 20 * time.Millisecond})
	agent, _ := come(g, "192.0.2.1:1")
	g.Admitted(agent.RemoteAddr())
	stranger, _ := come(g, "192.0.2.2:1")
	select {
	case <-stranger.closed:
	case <-time.After(10 * time.Second):
		t.Fatal("a stranger stays")
	}
	if agent.isClosed() {
		t.Error("an agent was cut off")
	}
	if n := g.Strangers(); n != 0 {
		t.Errorf("%d strangers left", n)
	}
}
