package stream

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// guarded is a connection of a stranger, or of one who was.
type guarded struct {
	net.Conn
	guard  *Guard
	remote string
	from   netip.Addr
	since  time.Time
	timer  *time.Timer
	// wait is how long nothing is read at first; only the goroutine that reads looks at it once the connection is served.
	wait      time.Duration
	closed    chan struct{} // by the first Close
	closeOnce sync.Once

	// streams that a stranger has opened, and whether the connection counts as a miss of its address. Guard.mu guards both.
	streams int
	paid    bool
}

// Read implements net.Conn. The first one waits for the connection's turn, before any handshake.
func (c *guarded) Read(p []byte) (int, error) {
	if c.wait > 0 {
		turn := time.NewTimer(c.wait)
		defer turn.Stop()
		select {
		case <-turn.C:
		case <-c.closed:
		}
		c.wait = 0
	}
	return c.Conn.Read(p)
}

// Close implements net.Conn. A stranger's connection that ends before it has carried a call was of no use.
func (c *guarded) Close() error { return c.close(reasonNoCall, false) }

// end closes a stranger's connection for a reason of ours, whatever it carried.
func (c *guarded) end(reason string) { _ = c.close(reason, true) }

func (c *guarded) close(reason string, ours bool) error {
	c.closeOnce.Do(func() { close(c.closed) })
	g := c.guard
	g.mu.Lock()
	useless := g.byRemote[c.remote] == c && (ours || c.streams == 0)
	if useless {
		g.miss(c)
	}
	g.remove(c)
	g.mu.Unlock()
	c.timer.Stop()
	if useless {
		g.refusals.note(reason, slog.String("remote", c.remote))
	}
	return c.Conn.Close()
}
