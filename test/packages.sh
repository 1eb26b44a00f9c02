#!/usr/bin/env bash
# Installs the Debian packages that the tests, the demo and the test cluster run: what drives a kernel's forwarding, a
# kernel that runs as a process and has IPVS, what another one is built from that has everything, what a node needs to run
# containers, and the C compiler of the race detector.
# Asks for what a package brings rather than for the package itself: a machine with containerd.io of another source keeps
# it. Does nothing, quickly, when all is there. No service that a package starts is used, so a machine without systemd
# serves as well.
set -euo pipefail

PATH=$PATH:/usr/sbin:/sbin

# What must be there (a command, or a file, by a pattern, where it holds a slash) and the package that brings it.
wanted() {
	cat <<-'END'
		iptables-restore             iptables
		nft                          nftables
		ipset                        ipset
		ip                           iproute2
		conntrack                    conntrack
		ipvsadm                      ipvsadm
		linux.uml                    user-mode-linux
		modprobe                     kmod
		sysctl                       procps
		nsenter                      util-linux
		mount                        mount
		containerd                   containerd
		ctr                          containerd
		runc                         runc
		/usr/lib/cni/bridge          containernetworking-plugins
		openssl                      openssl
		/etc/ssl/certs               ca-certificates
		git                          git
		/usr/src/linux-source-*.tar.xz linux-source
		make                         make
		flex                         flex
		bison                        bison
		bc                           bc
		xz                           xz-utils
		gcc                          gcc
		/usr/include/stdlib.h        libc6-dev
	END
}

missing=()
while read -r what package; do
	if [[ $what == /* ]]; then
		compgen -G "$what" >/dev/null && continue
	else
		command -v "$what" >/dev/null && continue
	fi
	missing+=("$package")
done < <(wanted)

if ((${#missing[@]} == 0)); then
	exit 0
fi
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

if ! command -v apt-get >/dev/null; then
	echo "install packages: this is no Debian machine, please install: ${missing[*]}" >&2
	exit 1
fi
if ((EUID != 0)); then
	echo "install packages: root is needed, run: sudo apt-get install ${missing[*]}" >&2
	exit 1
fi
echo "installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Another apt at work (an upgrade at boot) is waited for rather than failed on.
if ! { apt-get -o DPkg::Lock::Timeout=300 update && apt-get -o DPkg::Lock::Timeout=300 install --yes \
	--no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
	cat "$log" >&2
	echo "install packages: apt-get failed, see above" >&2
	exit 1
fi
