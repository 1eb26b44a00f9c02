package ipvs

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Config is all that the backend needs to be told.
type Config struct {
	// Rules says how sources are told apart, what is masqueraded, and where node ports answer, as in iptables mode.
	Rules iptables.Config
	// MarkBit is the bit (0 to 31) of the packet mark that says "masquerade" on connections of IPVS. It is not that of
	// Rules: while a mode takes over from another the rules of both are there, and internal/iptables takes its mark from all
	// packets that it did not translate.
	MarkBit int
	// Scheduler is used where a Service asks for none.
	Scheduler string
	// Exclude are virtual IPs that are left alone: nothing is programmed for them, and virtual servers there are foreign.
	Exclude []netip.Prefix
	// StrictARP: the host answers ARP for an address only on the device that carries it.
	StrictARP bool
	// Timeouts of idle connections, in whole seconds; 0 leaves the kernel's (15 min, 2 min, 5 min).
	TCPTimeout, TCPFinTimeout, UDPTimeout time.Duration
	// ProcSys is where kernel parameters are mounted so that they can be written.
	ProcSys string

	Logger *slog.Logger
}

// MaxTimeout is the longest that the kernel takes: 2^31 ticks of a millisecond.
const MaxTimeout = 24 * 24 * time.Hour

// Defaults returns a valid Config with kube-proxy's defaults.
func Defaults() Config {
	return Config{Rules: iptables.Defaults(), MarkBit: 13, Scheduler: "rr", ProcSys: "/proc/sys", Logger: slog.New(slog.DiscardHandler)}
}

// Schedulers are the names that Linux knows (6.1; ip_vs_*.ko), sorted. A kernel may have been built without some.
func Schedulers() []string {
	return []string{"dh", "fo", "lblc", "lblcr", "lc", "mh", "nq", "ovf", "rr", "sed", "sh", "wlc", "wrr"}
}

// Validate returns all that is wrong, each naming the field.
func (c Config) Validate() error {
	errs := []error{c.Rules.Validate()}
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("ipvs: "+format, args...)) }
	if c.MarkBit < 0 || c.MarkBit > 31 {
		fail("mark bit %d: want 0 to 31", c.MarkBit)
	}
	if c.MarkBit == c.Rules.MasqueradeBit {
		fail("mark bit %d: want another one than the masquerade bit", c.MarkBit)
	}
	if !slices.Contains(Schedulers(), c.Scheduler) {
		fail("scheduler %q: want one of %s", c.Scheduler, strings.Join(Schedulers(), ", "))
	}
	for _, p := range c.Exclude {
		if !p.IsValid() || p.Masked() != p || p.Addr().Is4In6() {
			fail("excluded range %v: want a network such as 10.0.0.0/8, without bits behind the prefix", p)
		}
	}
	for name, d := range map[string]time.Duration{"tcp": c.TCPTimeout, "tcpfin": c.TCPFinTimeout, "udp": c.UDPTimeout} {
		if d < 0 || d%time.Second != 0 || d > MaxTimeout {
			fail("%s timeout %v: want whole seconds, at most %v", name, d, MaxTimeout)
		}
	}
	return errors.Join(errs...)
}

// families returns the configured families.
func (c Config) families() []fwd.Family {
	if len(c.Rules.Families) == 0 {
		return fwd.Families()
	}
	return c.Rules.Families
}

// excluded reports whether an address is left alone.
func (c Config) excluded(a netip.Addr) bool {
	return slices.ContainsFunc(c.Exclude, func(p netip.Prefix) bool { return p.Contains(a) })
}
