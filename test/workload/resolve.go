package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// ResolveConfig says what to ask a DNS server.
type ResolveConfig struct {
	Server  string // host:port
	Network string // UDP or TCP
	Name    string // fully qualified
	Timeout time.Duration
}

// Resolve asks once and writes the addresses, sorted, a line each.
func Resolve(ctx context.Context, cfg ResolveConfig, out io.Writer) error {
	if cfg.Network != UDP && cfg.Network != TCP {
		return fmt.Errorf("--protocol %q: give %s or %s", cfg.Network, UDP, TCP)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, cfg.Network, cfg.Server)
	}}
	addrs, err := resolver.LookupHost(ctx, cfg.Name)
	if err == nil && len(addrs) == 0 {
		err = errors.New("no address")
	}
	if err != nil {
		return fmt.Errorf("resolve %s at %s over %s: %w", cfg.Name, cfg.Server, cfg.Network, err)
	}
	slices.Sort(addrs)
	for _, addr := range addrs {
		if _, err := fmt.Fprintln(out, addr); err != nil {
			return fmt.Errorf("write addresses: %w", err)
		}
	}
	return nil
}
