package hostinfo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses returns the unicast addresses of all devices in the current network namespace, of both families, sorted and
// without duplicates. Loopback and link-local addresses are included: packets to them are local as well.
func Addresses() ([]netip.Addr, error) {
	list, err := netlink.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	addrs := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		if a.IPNet == nil {
			continue
		}
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			addrs = append(addrs, addr.Unmap())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), nil
}

// Limits of watching addresses.
const (
	watchBuffer = 1 << 20     // bytes of the socket: a node may gain thousands of addresses at once
	watchRetry  = time.Second // between attempts to subscribe again
)

// WatchAddresses returns a channel that receives when addresses of the current network namespace may have changed; several
// changes may come as one, and a loss of messages counts as a change. Read Addresses then. The channel is closed when ctx
// ends. It fails when the kernel does not let us subscribe.
func WatchAddresses(ctx context.Context) (<-chan struct{}, error) {
	w := addressWatch{changed: make(chan struct{}, 1)}
	updates, stop, err := w.subscribe()
	if err != nil {
		return nil, err
	}
	go w.run(ctx, updates, stop)
	return w.changed, nil
}

type addressWatch struct{ changed chan struct{} }

// subscribe opens a socket; updates is closed when it fails or stop is called.
func (w addressWatch) subscribe() (updates chan netlink.AddrUpdate, stop func(), err error) {
	updates, done := make(chan netlink.AddrUpdate), make(chan struct{})
	options := netlink.AddrSubscribeOptions{ReceiveBufferSize: watchBuffer}
	if err := netlink.AddrSubscribeWithOptions(updates, done, options); err != nil {
		return nil, nil, fmt.Errorf("subscribe to addresses: %w", err)
	}
	return updates, sync.OnceFunc(func() { close(done) }), nil
}

func (w addressWatch) run(ctx context.Context, updates chan netlink.AddrUpdate, stop func()) {
	defer close(w.changed)
	for {
		release := context.AfterFunc(ctx, stop)
		for range updates {
			w.signal()
		}
		release()
		stop()
		if updates, stop = w.again(ctx); updates == nil {
			return
		}
		w.signal() // for what was lost in between
	}
}

// again subscribes until that works; nil updates mean that ctx has ended.
func (w addressWatch) again(ctx context.Context) (updates chan netlink.AddrUpdate, stop func()) {
	retry := time.NewTicker(watchRetry)
	defer retry.Stop()
	for ctx.Err() == nil {
		updates, stop, err := w.subscribe()
		if err == nil {
			return updates, stop
		}
		select {
		case <-ctx.Done():
		case <-retry.C:
		}
	}
	return nil, nil
}

func (w addressWatch) signal() {
	select {
	case w.changed <- struct{}{}:
	default: // one is waiting already
	}
}
