package ipvs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// setting is a kernel parameter and the value that it should have.
type setting struct{ name, value string }

// expireGone ends connections whose real server is gone.
const expireGone = "net/ipv4/vs/expire_nodest_conn"

// settingsOf lists the parameters that forwarding by IPVS needs besides those that every mode needs. Without conntrack,
// masquerading does not see connections of IPVS; without the two that expire, flows stay with real servers that are gone.
// Kernels before 5.9 delay a client that uses a port again by a second, unless conn_reuse_mode is 0 (kubernetes issue
// 81775); later ones do not.
func settingsOf(c Config, connReuse bool) []setting {
	list := []setting{
		{"net/ipv4/vs/conntrack", "1"},
		{expireGone, "1"},
		{"net/ipv4/vs/expire_quiescent_template", "1"},
	}
	if connReuse {
		list = append(list, setting{"net/ipv4/vs/conn_reuse_mode", "0"})
	}
	if c.StrictARP {
		list = append(list, setting{"net/ipv4/conf/all/arp_ignore", "1"}, setting{"net/ipv4/conf/all/arp_announce", "2"})
	}
	return list
}

// everySetting is all that any Config may ask for.
func everySetting() []setting { return settingsOf(Config{StrictARP: true}, true) }

func (k *kernel) readSetting(name string) (value string, there bool, err error) {
	text, err := os.ReadFile(filepath.Join(k.procSys, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read sysctl %s: %w", name, err)
	}
	return strings.TrimSpace(string(text)), true, nil
}

func (k *kernel) writeSetting(s setting) error {
	if err := os.WriteFile(filepath.Join(k.procSys, s.name), []byte(s.value), 0o600); err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", s.name, s.value, err)
	}
	return nil
}

// timeouts gives idle connections the configured times.
func (k *kernel) timeouts(c Config) (int, error) {
	if c.TCPTimeout == 0 && c.TCPFinTimeout == 0 && c.UDPTimeout == 0 {
		return 0, nil
	}
	now, err := k.servers.GetConfig()
	if err != nil {
		return 0, fmt.Errorf("read IPVS timeouts: %w", err)
	}
	want := *now
	for _, t := range []struct {
		to   *time.Duration
		from time.Duration
	}{{&want.TimeoutTCP, c.TCPTimeout}, {&want.TimeoutTCPFin, c.TCPFinTimeout}, {&want.TimeoutUDP, c.UDPTimeout}} {
		if t.from != 0 {
			*t.to = t.from
		}
	}
	if want == *now {
		return 0, nil
	}
	if err := k.servers.SetConfig(&want); err != nil {
		return 0, fmt.Errorf("set IPVS timeouts: %w", err)
	}
	return 1, nil
}

// kernelDelaysReuse reports whether the running kernel is older than 5.9.
func kernelDelaysReuse() bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	return olderThan59(unix.ByteSliceToString(u.Release[:]))
}

// olderThan59 reads a release such as "5.4.0-100-generic".
func olderThan59(release string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major < 5 || major == 5 && minor < 9
}
