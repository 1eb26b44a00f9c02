#!/bin/sh
# The first program of the kernel: mounts what programs need, loads modules on demand, does what the kernel is for, and
# halts. The root is read-only, so modules are looked up below /run, by kernel and programs alike, if the kernel has any.
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mkdir -p /run/bin /run/tmp /run/lib/modules
if [ -e /proc/modules ]; then
	release=$(uname -r)
	ln -s "/usr/lib/uml/modules/$release" "/run/lib/modules/$release"
	printf '#!/bin/sh\nexec /sbin/modprobe -d /run "$@"\n' >/run/bin/modprobe
	chmod +x /run/bin/modprobe
	echo /run/bin/modprobe >/proc/sys/kernel/modprobe
fi
export PATH=/run/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/tmp TMPDIR=/run/tmp
ip link set lo up
if [ -e /proc/modules ]; then modprobe -a ip_vs br_netfilter; fi
@INIT@
echo o >/proc/sysrq-trigger
sleep 60
