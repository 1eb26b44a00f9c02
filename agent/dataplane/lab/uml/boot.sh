#!/bin/sh
# The init process of the kernel: mounts what tests need, loads modules on demand, runs one test, and halts. The root is
# read-only, so modules are looked up below /run, by kernel and programs alike.
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mkdir -p /run/bin /run/tmp /run/lib/modules
release=$(uname -r)
ln -s "/usr/lib/uml/modules/$release" "/run/lib/modules/$release"
printf '#!/bin/sh\nexec /sbin/modprobe -d /run "$@"\n' >/run/bin/modprobe
chmod +x /run/bin/modprobe
echo /run/bin/modprobe >/proc/sys/kernel/modprobe
export PATH=/run/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/tmp TMPDIR=/run/tmp FAIRLEAD_UML=1
ip link set lo up
modprobe -a ip_vs br_netfilter
cd '@DIR@' && '@BINARY@' -test.v '-test.run=@RUN@' -test.timeout=18m
echo "test ended: $?"
echo o >/proc/sysrq-trigger
sleep 60
