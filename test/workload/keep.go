package workload

import (
	"bufio"
	"context"
	"net"
	"sync"
	"time"
)

// kept is one connection that is asked over for as long as it lasts.
type kept struct {
	cfg     LoadConfig
	conn    net.Conn
	replies *bufio.Reader
}

// keep asks over connections that stay, in turn. All are there before the first is asked for the second time.
func keep(ctx context.Context, cfg LoadConfig, samples chan<- Sample) {
	turns := make([]chan struct{}, max(1, cfg.Connections))
	var under sync.WaitGroup
	for i := range turns {
		turns[i] = make(chan struct{}, 1)
		under.Go(func() {
			k := kept{cfg: cfg}
			for range turns[i] {
				// A request under way ends by its own time limit, not with ctx.
				samples <- k.ask(context.WithoutCancel(ctx))
			}
			k.close()
		})
	}
	next := 0
	pace(ctx, cfg.Rate, func() {
		// A connection that still waits for an answer is left alone: that request tells enough.
		select {
		case turns[next] <- struct{}{}:
		default:
		}
		next = (next + 1) % len(turns)
	})
	for _, turn := range turns {
		close(turn)
	}
	under.Wait()
}

// ask connects where there is no connection, and asks once.
func (k *kept) ask(ctx context.Context) Sample {
	start := time.Now()
	if k.conn == nil {
		fresh, err := dial(ctx, k.cfg, start.Add(k.cfg.Timeout))
		if err != nil {
			return sampleOf(k.cfg, start, "", err)
		}
		k.conn, k.replies = fresh, bufio.NewReader(fresh)
	}
	err := k.conn.SetDeadline(start.Add(k.cfg.Timeout))
	var reply string
	if err == nil {
		reply, err = ask(k.conn, k.replies, k.cfg)
	}
	if err != nil && k.cfg.Protocol != UDP {
		k.close()
	}
	return sampleOf(k.cfg, start, reply, err)
}

// close leaves the connection; what may be wrong with it has been said.
func (k *kept) close() {
	if k.conn != nil {
		_ = k.conn.Close()
		k.conn = nil
	}
}
