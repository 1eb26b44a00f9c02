package stream

import (
	"context"
	"errors"
	"log/slog"
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

// Guard bounds the connections of callers that have not proved who they are: how many there may be, for how long, and how
// often an address may come whose connections are of no use, before anything is spent on them. Where there are too many,
// the address that holds most of them loses its oldest one, so that who floods displaces himself and an agent that comes
// meanwhile finds room. It bounds the streams of a stranger's connection, too. Safe for concurrent use.
type Guard struct {
	most     int
	within   time.Duration
	refusals *Refusals

	mu sync.Mutex // guards the rest
	// sources are the addresses that strangers come from, and those that have come and gone without use; byRemote are all
	// connections of strangers.
	sources  map[netip.Addr]*source
	byRemote map[string]*guarded
}

// source is an address.
type source struct {
	conns    []*guarded // the oldest first
	standing standing
}

// GuardConfig says what a Guard bounds; zeros take the defaults.
type GuardConfig struct {
	// Most strangers may be connected, for some time each.
	Most   int
	Within time.Duration
	// Refusals are told of what the Guard ends; nil is fine.
	Refusals *Refusals
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

// NewGuard returns a Guard.
func NewGuard(cfg GuardConfig) *Guard {
	orDefault(&cfg.Most, DefaultStrangers)
	orDefault(&cfg.Within, DefaultStrangerTime)
	return &Guard{
		most: cfg.Most, within: cfg.Within, refusals: cfg.Refusals, sources: map[netip.Addr]*source{}, byRemote: map[string]*guarded{},
	}
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
	tooMany := false
	if c != nil {
		c.streams++
		tooMany = c.streams > strangerStreams
	}
	g.mu.Unlock()
	if tooMany {
		c.end(reasonStreams)
		return nil, status.Error(codes.ResourceExhausted, "too many streams of a stranger")
	}
	return ctx, nil
}

// Admitted lifts the limits from the connection of an address.
func (g *Guard) Admitted(remote net.Addr) {
	g.mu.Lock()
	c, ok := g.byRemote[remote.String()]
	if ok {
		if c.paid {
			g.sources[c.from].standing.forgive(time.Now())
		}
		g.remove(c)
	}
	g.mu.Unlock()
	if ok {
		c.timer.Stop()
	}
}

// Refused says that the caller at an address got an error instead of what it asked for, and adds to what is logged. The
// reason is the one that a Reasoned error gives. Who may come again at once has done nothing wrong.
func (g *Guard) Refused(remote net.Addr, err error, about ...slog.Attr) {
	reason := reasonOther
	var known Reasoned
	switch {
	case errors.As(err, &known):
		reason = known.Reason()
	case status.Code(err) == codes.InvalidArgument:
		reason = reasonHello
	}
	g.mu.Lock()
	if c := g.byRemote[remote.String()]; c != nil && status.Code(err) != codes.Unavailable {
		g.miss(c)
	}
	g.mu.Unlock()
	g.refusals.note(reason, append(about, slog.String("remote", remote.String()), slog.Any("err", err))...)
}

// miss counts a connection as useless, once. The caller holds mu.
func (g *Guard) miss(c *guarded) {
	if s := g.sources[c.from]; s != nil && !c.paid {
		c.paid = true
		s.standing.miss(time.Now())
	}
}

// guardedListener wraps what it accepts.
type guardedListener struct {
	net.Listener
	guard *Guard
}

// Accept implements net.Listener.
func (l *guardedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := l.guard.take(conn)
		if c.wait <= longestTurn {
			return c, nil
		}
		c.end(reasonPaced)
	}
}

// take notes a connection and closes another one where there are too many.
func (g *Guard) take(conn net.Conn) *guarded {
	now := time.Now()
	c := &guarded{Conn: conn, guard: g, remote: conn.RemoteAddr().String(), since: now, closed: make(chan struct{})}
	if at, err := netip.ParseAddrPort(c.remote); err == nil {
		c.from = at.Addr().Unmap().WithZone("")
	}
	var victim *guarded
	g.mu.Lock()
	c.timer = time.AfterFunc(g.within, func() { c.end(reasonSilent) })
	if len(g.byRemote) >= g.most {
		victim = g.oldestOfMost()
	}
	s := g.sources[c.from]
	if s == nil {
		g.forget(now)
		s = &source{}
		g.sources[c.from] = s
	}
	c.wait, c.paid = s.standing.turn(now)
	s.conns = append(s.conns, c)
	g.byRemote[c.remote] = c
	g.mu.Unlock()
	if victim != nil {
		victim.end(reasonDisplaced)
	}
	return c
}

// oldestOfMost returns the oldest connection of the address that has most; among equals, the oldest of all.
func (g *Guard) oldestOfMost() *guarded {
	var worst []*guarded
	for _, s := range g.sources {
		if conns := s.conns; len(conns) > len(worst) || len(conns) > 0 && len(conns) == len(worst) && conns[0].since.Before(worst[0].since) {
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
	s := g.sources[c.from]
	s.conns = slices.DeleteFunc(s.conns, func(o *guarded) bool { return o == c })
	if len(s.conns) == 0 && s.standing.good(time.Now()) {
		delete(g.sources, c.from)
	}
}

// forget drops addresses that nobody is connected from, where there are many: first those in good standing, and if that is not
// enough, all. The caller holds mu.
func (g *Guard) forget(now time.Time) {
	for _, all := range []bool{false, true} {
		if len(g.sources) < 2*g.most {
			return
		}
		for from, s := range g.sources {
			if len(s.conns) == 0 && (all || s.standing.good(now)) {
				delete(g.sources, from)
			}
		}
	}
}
