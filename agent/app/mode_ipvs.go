package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/ipvs"
	"github.com/fairlead/fairlead/proto/fwd"
)

// IPVS is what IPVS mode is told besides. Other modes do not look at it.
type IPVS struct {
	// Scheduler is used where a Service asks for none.
	Scheduler string
	// StrictARP: the host answers ARP for an address only on the device that carries it.
	StrictARP bool
	// Exclude are ranges of virtual IPs that are left alone, and virtual servers there to others.
	Exclude []netip.Prefix
	// Timeouts of idle connections, in whole seconds; 0 leaves the kernel's.
	TCPTimeout, TCPFinTimeout, UDPTimeout time.Duration
	// MasqueradeBit of the packet mark asks for masquerading of connections of IPVS; not that of Rules.
	MasqueradeBit int
	// Fallback takes iptables mode where the kernel has no IPVS.
	Fallback bool
}

func defaultIPVS() IPVS {
	c := ipvs.Defaults()
	return IPVS{Scheduler: c.Scheduler, MasqueradeBit: c.MarkBit, Fallback: true}
}

// bind adds the flags, named as kube-proxy's where it has them.
func (v *IPVS) bind(fs *pflag.FlagSet) {
	fs.StringVar(&v.Scheduler, "ipvs-scheduler", v.Scheduler, "IPVS `scheduler` of Services that ask for none: "+strings.Join(ipvs.Schedulers(), ", "))
	fs.BoolVar(&v.StrictARP, "ipvs-strict-arp", v.StrictARP, "in IPVS mode, answer ARP for an address on the device that carries it alone (arp_ignore=1, arp_announce=2)")
	fs.Var(&prefixes{&v.Exclude}, "ipvs-exclude-cidrs", "`ranges` of virtual IPs that IPVS mode leaves alone, separated by commas")
	fs.DurationVar(&v.TCPTimeout, "ipvs-tcp-timeout", v.TCPTimeout, "idle time of TCP connections through IPVS; 0 leaves the kernel's")
	fs.DurationVar(&v.TCPFinTimeout, "ipvs-tcpfin-timeout", v.TCPFinTimeout, "idle time of TCP connections through IPVS that have seen a FIN; 0 leaves the kernel's")
	fs.DurationVar(&v.UDPTimeout, "ipvs-udp-timeout", v.UDPTimeout, "idle time of UDP flows through IPVS; 0 leaves the kernel's")
	fs.IntVar(&v.MasqueradeBit, "ipvs-masquerade-bit", v.MasqueradeBit, "`bit` of the packet mark that asks for masquerading in IPVS mode, 0 to 31, another one than --iptables-masquerade-bit")
	fs.BoolVar(&v.Fallback, "ipvs-fallback", v.Fallback, "use iptables mode where the kernel has no IPVS; false: fail there")
}

// validate reports everything that is wrong in IPVS mode, by the name of the flag. iptablesBit is the other bit in use.
func (v IPVS) validate(iptablesBit int) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(slices.Contains(ipvs.Schedulers(), v.Scheduler), "--ipvs-scheduler %q: want %s", v.Scheduler, strings.Join(ipvs.Schedulers(), ", "))
	check(v.MasqueradeBit >= 0 && v.MasqueradeBit <= 31, "--ipvs-masquerade-bit %d: want 0 to 31", v.MasqueradeBit)
	check(v.MasqueradeBit != iptablesBit, "--ipvs-masquerade-bit %d: is --iptables-masquerade-bit as well: choose another one", v.MasqueradeBit)
	for _, t := range []struct {
		flag string
		time.Duration
	}{{"--ipvs-tcp-timeout", v.TCPTimeout}, {"--ipvs-tcpfin-timeout", v.TCPFinTimeout}, {"--ipvs-udp-timeout", v.UDPTimeout}} {
		check(t.Duration >= 0 && t.Duration%time.Second == 0 && t.Duration <= ipvs.MaxTimeout, "%s %v: want whole seconds, at most %v", t.flag, t.Duration, ipvs.MaxTimeout)
	}
	return errors.Join(errs...)
}

//nolint:wrapcheck // backends name themselves, callers the mode
func ipvsMode() mode {
	return mode{
		name: modeIPVS,
		validate: func(r Rules) error {
			if err := r.IPVS.validate(r.MasqueradeBit); err != nil {
				return err
			}
			return r.ipvs().Validate()
		},
		open: func(ctx context.Context, r Rules, h hostFacts) (dataplane.Interface, error) {
			c := r.ipvs()
			c.Logger, c.Rules.Logger, c.Rules.KeepInvalid = h.logger, h.logger, h.keepInvalid
			c.ProcSys = h.procSys
			return ipvs.New(ctx, c)
		},
		impossible: func(err error) bool { return errors.Is(err, ipvs.ErrNoIPVS) },
		retire:     func(ctx context.Context, h hostFacts) (int, error) { return ipvs.Retire(ctx, h.procSys) },
		remove:     func(ctx context.Context, h hostFacts) error { return ipvs.Remove(ctx, h.procSys) },
		plan: func(w io.Writer, r Rules, f fwd.Family, t *fwd.Table) error {
			return ipvs.WritePlan(w, r.ipvs(), f, t)
		},
	}
}

// ipvs is the IPVS backend's view of the rules.
func (r Rules) ipvs() ipvs.Config {
	c := ipvs.Defaults()
	c.Rules = r.iptables()
	c.Scheduler, c.StrictARP, c.Exclude, c.MarkBit = r.IPVS.Scheduler, r.IPVS.StrictARP, r.IPVS.Exclude, r.IPVS.MasqueradeBit
	c.TCPTimeout, c.TCPFinTimeout, c.UDPTimeout = r.IPVS.TCPTimeout, r.IPVS.TCPFinTimeout, r.IPVS.UDPTimeout
	return c
}
