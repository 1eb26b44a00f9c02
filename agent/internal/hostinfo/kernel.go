package hostinfo

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Version is a kernel's version.
type Version struct{ Major, Minor int }

// Kernel returns the version of the running kernel.
func Kernel() (Version, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Version{}, fmt.Errorf("read kernel version: %w", err)
	}
	return parseVersion(unix.ByteSliceToString(u.Release[:]))
}

// AtLeast reports whether v is the version or a later one.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// String returns "6.18".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// parseVersion reads a release such as "6.1.0-18-amd64" or "5.15+".
func parseVersion(release string) (Version, error) {
	major, rest, _ := strings.Cut(release, ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	m, errMajor := strconv.Atoi(major)
	n, errMinor := strconv.Atoi(rest[:end])
	if errMajor != nil || errMinor != nil {
		return Version{}, fmt.Errorf("kernel release %q: want it to begin with two numbers", release)
	}
	return Version{Major: m, Minor: n}, nil
}

// onlineCores is the kernel's list of processors, such as "0-3,8".
const onlineCores = "/sys/devices/system/cpu/online"

// Cores is the number of processors of the host, not of those that this process may use (runtime.NumCPU counts the latter,
// which made limits too small: kubernetes issue 99225). It falls back to these.
func Cores() int {
	b, err := os.ReadFile(onlineCores)
	if err != nil {
		return runtime.NumCPU()
	}
	n, err := countList(strings.TrimSpace(string(b)))
	if err != nil || n == 0 {
		return runtime.NumCPU()
	}
	return n
}

// countList counts the numbers that a list such as "0-3,8" names.
func countList(list string) (int, error) {
	n := 0
	for item := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		a, err := strconv.Atoi(first)
		if err != nil {
			return 0, fmt.Errorf("count %q: %w", list, err)
		}
		b, err := strconv.Atoi(last)
		if err != nil {
			return 0, fmt.Errorf("count %q: %w", list, err)
		}
		n += b - a + 1
	}
	return n, nil
}
