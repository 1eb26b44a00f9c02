package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Retire takes away what this mode has left in the calling thread's network namespace, after another mode has taken over,
// so that no new connection comes this way. A virtual server with connections stays for them, without weight; Retire returns
// how many do, and has to be called again until none does. Flows of UDP know no end and are not waited for. No module is
// loaded: what is not there has left nothing. procSys is the folder of kernel parameters, as in Config.
func Retire(ctx context.Context, procSys string) (waiting int, err error) {
	return takeAway(ctx, procSys, true)
}

// Remove takes it away at once. Connections through IPVS end.
func Remove(ctx context.Context, procSys string) error {
	_, err := takeAway(ctx, procSys, false)
	return err
}

func takeAway(ctx context.Context, procSys string, wait bool) (waiting int, err error) {
	k, err := openLinks(procSys)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return 0, nil // no netfilter over netlink, no sets
	}
	if err != nil {
		return 0, err
	}
	if _, err := os.Stat(serverList); err == nil {
		if err := k.openServers(); err != nil {
			return 0, err
		}
	}
	defer k.close()
	if !k.hasSets() {
		return 0, nil // they come first and go last
	}
	return k.takeAway(ctx, usable(fwd.Families(), addressList), wait)
}

// takeAway removes all that is ours, but for what the virtual servers need that it waits for.
func (k *kernel) takeAway(ctx context.Context, families []fwd.Family, wait bool) (waiting int, err error) {
	before, err := k.remembered()
	if err != nil {
		return 0, err
	}
	snap, err := k.read(ctx, families)
	if err != nil {
		return 0, fmt.Errorf("clean up: %w", err)
	}
	if err := k.removeProbed(families); err != nil {
		return 0, fmt.Errorf("clean up: %w", err)
	}
	if before == nil && len(snap.missingSets) == len(setKinds())*len(families) {
		return 0, nil
	}
	mine := snap.ours(Config{}, func(object) bool { return false })
	var errs []error
	busy := occupied{map[object]bool{}, map[netip.Addr]bool{}, map[object]object{}}
	if wait {
		errs = append(errs, k.quiesce(mine, busy))
	}
	waiting = len(busy.servers)
	for _, o := range slices.Backward(sorted(mine)) {
		if !busy.need(o) {
			_, err := k.do(operation{verb: remove, object: o})
			errs = append(errs, err)
		}
	}
	if waiting > 0 {
		return waiting, errors.Join(errs...)
	}
	for _, flavor := range []iptables.Flavor{iptables.FlavorNFT, iptables.FlavorLegacy} {
		errs = append(errs, cleanRules(ctx, flavor, families))
	}
	for _, f := range families {
		for _, of := range setKinds() {
			errs = append(errs, k.destroySet(setName(of, f)))
		}
	}
	return 0, errors.Join(append(errs, k.restore(before))...)
}

// occupied are virtual servers with connections, and their addresses.
type occupied struct {
	servers map[object]bool
	addrs   map[netip.Addr]bool
	// shortcuts are the virtual servers by mark that local clients get at a virtual server's address.
	shortcuts map[object]object
}

// need reports whether the servers need an object: themselves, what tells that they are ours, and what makes their address
// local and keeps the host's processes out of reach.
func (b occupied) need(o object) bool {
	switch o.kind {
	case clusterPort, externalPort:
		o.kind = server
		return b.servers[o]
	case server, shortcut:
		return b.servers[o]
	case localPort:
		o.kind = server
		return b.servers[o] || b.servers[b.shortcuts[o]]
	case protected, route:
		return b.addrs[o.addr.Addr()]
	case health, allowed, guarded, dropped, numKinds:
	}
	return false
}

// quiesce keeps new connections away from virtual servers and looks for old ones, also such as are about to begin or have
// ended but may see late packets.
func (k *kernel) quiesce(mine state, busy occupied) error {
	var errs []error
	for _, o := range sorted(mine) {
		if !o.kind.serves() || o.protocol == fwd.UDP {
			continue
		}
		connections, err := k.quiesceServer(o)
		if err != nil {
			errs = append(errs, fmt.Errorf("retire %v: %w", o, err))
		}
		if connections > 0 || err != nil {
			busy.servers[o], busy.addrs[o.addr.Addr()] = true, true
		}
	}
	for o, h := range mine {
		by, ok := markServer(o.family(), h.mark)
		if o.kind != localPort || !ok || !busy.servers[by] {
			continue
		}
		busy.addrs[o.addr.Addr()] = true
		o.kind = server
		busy.shortcuts[o] = by
	}
	return errors.Join(errs...)
}

func (k *kernel) quiesceServer(o object) (connections int, err error) {
	s := service(o, value{})
	all, err := k.servers.GetDestinations(s)
	if err != nil {
		return 0, fmt.Errorf("read real servers: %w", err)
	}
	for _, d := range all {
		if d.Weight == 0 {
			continue
		}
		d.Weight = 0
		if err := k.around(func() error { return k.servers.UpdateDestination(s, d) }); err != nil {
			return 0, fmt.Errorf("take weight from real server: %w", err)
		}
	}
	// Read again: one more may have come before its weight was gone.
	if all, err = k.servers.GetDestinations(s); err != nil {
		return 0, fmt.Errorf("read real servers: %w", err)
	}
	for _, d := range all {
		connections += d.ActiveConnections + d.InactiveConnections
	}
	return connections, nil
}

func (k *kernel) destroySet(name string) error {
	err := k.around(func() error { return unless(k.links.IpsetDestroy(name), unix.ENOENT) })
	if err != nil {
		return fmt.Errorf("destroy ipset %s: %w", name, err)
	}
	return nil
}

// cleanRules removes our chains in one flavour of iptables. What cannot be listed is not there: a program or a kernel
// without this flavour or family. If it is there after all, its sets cannot be destroyed, and that is said.
func cleanRules(ctx context.Context, flavor iptables.Flavor, families []fwd.Family) error {
	var errs []error
	for _, f := range families {
		p := findPrograms(flavor, f)
		if !onPath(p.save) {
			continue
		}
		has, err := p.list(ctx)
		if err != nil {
			continue
		}
		if err := p.write(ctx, has, nil); err != nil {
			errs = append(errs, fmt.Errorf("clean up %s: %w", p.iptables, err))
		}
	}
	return errors.Join(errs...)
}
