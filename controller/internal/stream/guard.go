package stream

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// Guard bounds the connections of callers that have not proved who they are: how many there may be, and for how long.
// Where there are too many, the address that holds most of them loses its oldest one, so that who floods displaces
// himself and an agent that comes meanwhile finds room. It bounds the streams of a stranger's connection, too. Safe for concurrent use.
type Guard struct {
	most   int
	within time.Duration

	mu sync.Mutex // guards the rest
	// strangers are the connections by where they come from, the oldest first; byRemote are all of them.
	strangers map[netip.Addr][]*guarded
	byRemote  map[string]*guarded
}

// Limits of a Guard that NewGuard is not told others.
const (
	// DefaultStrangers is more than the agents of a large cluster that come at once, and costs some 100 MB at the worst.
	DefaultStrangers = 4096
	// DefaultStrangerTime is enough for the handshakes, the hello and one question to the API server.
	DefaultStrangerTime = 20 * time.Second
	// strangerStreams is more than an agent tries on one connection before it is let in.
	strangerStreams = 16
)

// NewGuard returns a Guard that lets most strangers be connected for some time each; zeros take the defaults.
func NewGuard(most int, within time.Duration) *Guard {
	orDefault(&most, DefaultStrangers)
	orDefault(&within, DefaultStrangerTime)
	return &Guard{most: most, within: within, strangers: map[netip.Addr][]*guarded{}, byRemote: map[string]*guarded{}}
}

// Strangers is how many connections there are that nobody has proved anything on.
func (g *Guard) Strangers() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.byRemote)
}

// Listener returns a listener whose connections are guarded until Admitted is told of their remote address.
func (g *Guard) Listener(l net.Listener) net.Listener { return &guardedListener{l, g} }

// Tap counts the streams that strangers open, before anything is done for them, and closes the connection of who opens too
// many: streams that are reset at once are cheap to ask for (CVE-2023-44487). It suits grpc.InTapHandle.
func (g *Guard) Tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	g.mu.Lock()
	c := g.byRemote[p.Addr.String()]
	if c != nil {
		c.streams++
	}
	g.mu.Unlock()
	if c != nil && c.streams > strangerStreams {
		_ = c.Close()
		return nil, status.Error(codes.ResourceExhausted, "too many streams of a stranger")
	}
	return ctx, nil
}

// Admitted lifts the limits from the connection of an address.
func (g *Guard) Admitted(remote net.Addr) {
	g.mu.Lock()
	c, ok := g.byRemote[remote.String()]
	if ok {
		g.remove(c)
	}
	g.mu.Unlock()
	if ok {
		c.timer.Stop()
	}
}

// guardedListener wraps what it accepts.
type guardedListener struct {
	net.Listener
	guard *Guard
}

// Accept implements net.Listener.
func (l *guardedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.guard.take(conn), nil
}

// guarded is a connection of a stranger, or of one who was.
type guarded struct {
	net.Conn
	guard  *Guard
	remote string
	from   netip.Addr
	since  time.Time
	timer  *time.Timer
	// streams that a stranger has opened; only the goroutine that reads the connection counts.
	streams int
}

// take notes a connection and closes another one where there are too many.
func (g *Guard) take(conn net.Conn) *guarded {
	c := &guarded{Conn: conn, guard: g, remote: conn.RemoteAddr().String(), since: time.Now()}
	if at, err := netip.ParseAddrPort(c.remote); err == nil {
		c.from = at.Addr().Unmap().WithZone("")
	}
	var victim *guarded
	g.mu.Lock()
	c.timer = time.AfterFunc(g.within, func() { _ = c.Close() })
	if len(g.byRemote) >= g.most {
		victim = g.oldestOfMost()
		g.remove(victim)
	}
	g.byRemote[c.remote] = c
	g.strangers[c.from] = append(g.strangers[c.from], c)
	g.mu.Unlock()
	if victim != nil {
		_ = victim.Close()
	}
	return c
}

// oldestOfMost returns the oldest connection of the address that has most; among equals, the oldest of all.
func (g *Guard) oldestOfMost() *guarded {
	var worst []*guarded
	for _, conns := range g.strangers {
		if len(conns) > len(worst) || len(conns) == len(worst) && conns[0].since.Before(worst[0].since) {
			worst = conns
		}
	}
	return worst[0]
}

// remove forgets a connection, which may be forgotten already. The caller holds mu.
func (g *Guard) remove(c *guarded) {
	if g.byRemote[c.remote] != c {
		return
	}
	delete(g.byRemote, c.remote)
	left := slices.DeleteFunc(g.strangers[c.from], func(o *guarded) bool { return o == c })
	if len(left) == 0 {
		delete(g.strangers, c.from)
	} else {
		g.strangers[c.from] = left
	}
}

// Close implements net.Conn.
func (c *guarded) Close() error {
	c.guard.mu.Lock()
	c.guard.remove(c)
	c.guard.mu.Unlock()
	c.timer.Stop()
	return c.Conn.Close()
}
