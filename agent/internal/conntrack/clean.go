package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Cleaner removes flows from the kernel of the current network namespace; it needs CAP_NET_ADMIN. The zero value is ready
// for use. It keeps nothing between calls, so that nothing of a failure lasts.
type Cleaner struct{}

// Clean removes the flows that filters select, and returns how many it removed. The table is read once per family and kind
// that a filter names, streamed and narrowed by the kernel where it can be (Linux 5.8), so that neither many filters nor a
// large table cost memory (kubernetes issue 129982). No filters: nothing is read. After an error some flows may be left, and
// a later Clean of the same filters finishes the work.
func (Cleaner) Clean(ctx context.Context, filters []Filter) (deleted int, err error) {
	for _, f := range fwd.Families() {
		for _, protocol := range []fwd.Protocol{fwd.UDP, fwd.TCP} {
			mine := ofKind(filters, f, protocol)
			if len(mine) == 0 {
				continue
			}
			n, err := cleanKind(ctx, f, mine)
			deleted += n
			if err != nil {
				return deleted, fmt.Errorf("clean %v flows of %v: %w", f, protocol, err)
			}
		}
	}
	return deleted, nil
}

// protocol is that of the flows that f selects.
func (f Filter) protocol() fwd.Protocol {
	if f.Attempts {
		return fwd.TCP
	}
	return fwd.UDP
}

func ofKind(filters []Filter, f fwd.Family, protocol fwd.Protocol) []Filter {
	var mine []Filter
	for _, x := range filters {
		if fwd.FamilyOf(x.To.Addr()) == f && x.protocol() == protocol {
			mine = append(mine, x)
		}
	}
	return mine
}

// cleanKind takes filters of one family and protocol.
func cleanKind(ctx context.Context, f fwd.Family, filters []Filter) (int, error) {
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, fmt.Errorf("open netlink socket: %w", err)
	}
	defer socket.Close()
	if err := socket.SetReceiveTimeout(&nl.SocketTimeoutTv); err != nil {
		return 0, fmt.Errorf("set time-out of netlink socket: %w", err)
	}
	c := conversation{family: f, sockets: map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: socket}}}
	victims, err := c.dump(ctx, filters)
	if err != nil {
		return 0, err
	}
	deleted := 0
	for _, v := range victims {
		if err := ctx.Err(); err != nil {
			return deleted, fmt.Errorf("delete flow to %v: %w", v.to, err)
		}
		switch err := c.delete(v); {
		case errors.Is(err, unix.ENOENT): // it ended by itself
		case err != nil:
			return deleted, fmt.Errorf("delete flow to %v: %w", v.to, err)
		default:
			deleted++
		}
	}
	return deleted, nil
}

// match reports whether filters, by their destination, select the flow, which is of their protocol.
func match(byTo map[netip.AddrPort]Filter, f *flow) bool {
	filter, ok := byTo[f.to]
	switch {
	case !ok:
		return false
	case filter.Attempts:
		return f.unanswered && f.repliesFrom == f.to
	}
	return !contains(filter.Keep, f.repliesFrom)
}
