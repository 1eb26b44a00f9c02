package hostinfo

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"
)

// maxScaled bounds what MaxPerCore asks for on a machine of many cores, as in kube-proxy: a million entries are 300 MB.
const maxScaled = 1 << 20

const (
	conntrackDir     = "net/netfilter/"
	conntrackMax     = conntrackDir + "nf_conntrack_max"
	conntrackBuckets = conntrackDir + "nf_conntrack_buckets"
	beLiberal        = conntrackDir + "nf_conntrack_tcp_be_liberal"
)

// Conntrack is what the user wants of the kernel's connection tracking: kube-proxy's --conntrack-* flags. A zero leaves the
// kernel's value alone.
type Conntrack struct {
	// MaxPerCore times the number of cores, at least Min, is the number of connections that may be tracked. MaxPerCore 0
	// leaves the kernel's limit alone whatever Min is.
	MaxPerCore, Min int
	// Time-outs are rounded down to seconds.
	TCPEstablished, TCPCloseWait, UDP, UDPStream time.Duration
	// TCPBeLiberal takes packets out of the window for valid.
	TCPBeLiberal bool
}

// DefaultConntrack has kube-proxy's defaults.
func DefaultConntrack() Conntrack {
	return Conntrack{MaxPerCore: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour}
}

// Validate names each field that cannot be, by its flag.
func (c Conntrack) Validate() error {
	var errs []error
	for _, n := range []struct {
		flag  string
		value int
	}{{"conntrack-max-per-core", c.MaxPerCore}, {"conntrack-min", c.Min}} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("--%s: %d: want 0 (leave as is) or more", n.flag, n.value))
		}
	}
	for _, t := range c.timeouts() {
		if t.value < 0 || t.value > 0 && t.value < time.Second {
			errs = append(errs, fmt.Errorf("--%s: %v: want 0 (leave as is), or a second or more", t.flag, t.value))
		}
	}
	return errors.Join(errs...)
}

type timeout struct {
	flag, sysctl string
	value        time.Duration
}

func (c Conntrack) timeouts() []timeout {
	return []timeout{
		{"conntrack-tcp-timeout-established", "nf_conntrack_tcp_timeout_established", c.TCPEstablished},
		{"conntrack-tcp-timeout-close-wait", "nf_conntrack_tcp_timeout_close_wait", c.TCPCloseWait},
		{"conntrack-udp-timeout", "nf_conntrack_udp_timeout", c.UDP},
		{"conntrack-udp-timeout-stream", "nf_conntrack_udp_timeout_stream", c.UDPStream},
	}
}

// Max is the limit for a number of cores; 0 leaves the kernel's.
func (c Conntrack) Max(cores int) int {
	if c.MaxPerCore <= 0 {
		return 0
	}
	scaled := c.MaxPerCore * cores
	if scaled > maxScaled {
		return maxScaled
	}
	return max(scaled, c.Min)
}

// Apply sets what c asks for and differs, and returns what it changed. Hash buckets are only ever added, to a quarter of the
// limit. Limit and buckets can be set in the host's own network namespace only; the errors of what could not be set are
// joined.
func (c Conntrack) Apply(s Sysctls, cores int) ([]Setting, error) {
	var settings []Setting
	if limit := c.Max(cores); limit > 0 {
		settings = append(settings, Setting{Name: conntrackMax, Value: strconv.Itoa(limit)})
		buckets, err := s.Get(conntrackBuckets)
		if have, convErr := strconv.Atoi(buckets); err == nil && convErr == nil && have < limit/4 {
			settings = append(settings, Setting{Name: conntrackBuckets, Value: strconv.Itoa(limit / 4)})
		}
	}
	for _, t := range c.timeouts() {
		if t.value > 0 {
			settings = append(settings, Setting{Name: conntrackDir + t.sysctl, Value: strconv.Itoa(int(t.value / time.Second))})
		}
	}
	if c.TCPBeLiberal {
		settings = append(settings, Setting{Name: beLiberal, Value: "1"})
	}
	return Ensure(s, settings)
}

// TCPBeLiberal reports whether the kernel takes TCP packets out of the window for valid; backends drop invalid packets
// only where it does not. A kernel without the setting does not.
func TCPBeLiberal(s Sysctls) (bool, error) {
	v, err := s.Get(beLiberal)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", beLiberal, err)
	}
	return v != "0", nil
}
