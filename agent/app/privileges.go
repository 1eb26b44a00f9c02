package app

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// checkPrivileges reports whether this process may program the kernel of its network namespace: by capabilities, since a
// container's root may lack them and a user namespace's root may have them.
func checkPrivileges() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	return judgePrivileges(uint64(data[0].Effective) | uint64(data[1].Effective)<<32)
}

func judgePrivileges(effective uint64) error {
	for _, needed := range []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW} {
		if effective&(1<<needed) == 0 {
			return errors.New("not allowed to program the kernel: run as root, or with the capabilities NET_ADMIN and NET_RAW")
		}
	}
	return nil
}
